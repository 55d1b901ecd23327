#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

/// A small HTTP server on loopback whose answers a test writes by hand, also the broken ones. A thread a connection.
namespace holt::test {

struct seen_request {
  std::string method;
  std::string target;
  std::map<std::string, std::string> headers; // names in lower case
  std::string body;
};

class scripted_server;

/// One request's way back.
class reply_channel {
public:
  reply_channel(scripted_server& server, int fd) : server_(server), fd_(fd) {
  }
  void answer(int status, std::string_view body, std::string_view type = "application/json",
              std::string_view more_headers = "");
  void problem(int status, const std::string& code, const std::string& detail);
  void begin_events();
  void event(const std::string& id, const std::string& type, const std::string& data);
  void end_events();
  /// Answers a WebSocket handshake; from then on messages go both ways.
  void upgrade(const seen_request& request);
  void message(bool text, std::string_view bytes);
  /// The next message of the client, of at most 64 KiB. False: the connection ended.
  bool next_message(bool& text, std::string& bytes);
  /// Closes in the middle of whatever it is.
  void cut();
  bool open() const {
    return fd_ >= 0;
  }
  scripted_server& server() {
    return server_;
  }

private:
  void send(std::string_view bytes);
  scripted_server& server_;
  int fd_;
  friend class scripted_server;
};

class scripted_server {
public:
  using handler = std::function<void(const seen_request&, reply_channel&)>;
  explicit scripted_server(handler answer);
  ~scripted_server();

  std::string url() const;
  std::vector<seen_request> requests();
  /// How many requests had this method and a target that begins so.
  std::size_t count(std::string_view method, std::string_view target);
  /// Waits, for 30 s at most, until there was such a request. Handlers may call it too.
  bool wait_for(std::string_view method, std::string_view target, std::size_t times = 1);

private:
  void accept_all();
  void serve(int fd);

  handler answer_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<seen_request> requests_;
  std::vector<int> connections_;
  std::vector<std::thread> threads_;
  bool stopping_ = false;
  std::thread acceptor_;
};

} // namespace holt::test
