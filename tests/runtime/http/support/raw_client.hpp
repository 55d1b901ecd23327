#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

/// A client that sends exactly what a test says, over one loopback connection. Blocking, with a limit on every wait.
namespace holt::tests::http {

struct response {
  int status = 0;
  std::map<std::string, std::string> headers; // names in lower case
  std::map<std::string, std::string> trailers;
  std::string body;
  bool whole = false; // the body ended as its framing says
  std::string header(const std::string& name) const {
    auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

class raw_client {
public:
  explicit raw_client(std::uint16_t port);
  ~raw_client();
  raw_client(const raw_client&) = delete;
  raw_client& operator=(const raw_client&) = delete;

  /// False: the server closed.
  bool send(std::string_view bytes);
  /// The next whole response; status 0 when the connection ends first. `head`: no body follows.
  response read_response(bool head = false);
  /// Up to the end of the header: for streams.
  response read_head();
  /// Up to and with `until`, of the bytes after the header; "" when the connection ends first.
  std::string read_until(std::string_view until);
  std::string read_exactly(std::size_t size);
  /// Whether the server closes within the time.
  bool closed_within(std::chrono::milliseconds time);
  void close_sending();
  /// As when the client's process dies.
  void close();
  /// Takes whatever is there now.
  std::size_t drop_available();

  response exchange(std::string_view bytes) {
    send(bytes);
    return read_response();
  }

private:
  bool fill(std::chrono::milliseconds time = std::chrono::seconds{20});
  std::string read_line();
  int socket_ = -1;
  std::string buffer_;
};

/// A request's text. `headers`: whole lines.
std::string request_text(std::string_view method, std::string_view target, std::string_view key, std::string_view body = {},
                         std::string_view headers = {});

} // namespace holt::tests::http
