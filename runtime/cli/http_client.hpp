#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/cli/failure.hpp"
#include "runtime/cli/settings.hpp"

/// HTTP/1.1 to holt's server, over TCP or TLS, one request at a time. Every wait has an end. Beast stays in the .cpp.
namespace holt::runtime::cli {

using header_list = std::vector<std::pair<std::string, std::string>>;

/// A body that is read in pieces, from the start again if the request has to be sent again.
struct body_source {
  std::uint64_t size = 0;
  /// Bytes put into the buffer, at least 1; 0: the source ended early.
  std::function<result<std::size_t>(std::uint64_t offset, std::span<char> buffer)> read;
};

struct http_request {
  std::string method = "GET";
  std::string target; // with its leading slash, percent-encoded
  header_list headers = {};
  std::string body = {};
  const body_source* source = nullptr; // instead of `body`
  /// Longest silence while sending and until the answer begins. A first use may have to create a sandbox.
  std::chrono::milliseconds timeout = std::chrono::minutes(2);
};

struct http_head {
  unsigned status = 0;
  header_list headers;
  /// Case-insensitive; empty if there is none.
  std::string_view header(std::string_view name) const;
};

struct http_response {
  http_head head;
  std::string body;
};

/// One thread at a time may use it, but any may interrupt it; several clients may be used by several threads.
class http_client {
public:
  explicit http_client(server_access access);
  ~http_client();
  http_client(const http_client&) = delete;
  http_client& operator=(const http_client&) = delete;

  const server_access& access() const {
    return access_;
  }

  /// Sends and reads the whole answer (64 MiB at most). Any status is a success here. Errors: exit_unavailable when the
  /// server can't be reached or stops answering.
  result<http_response> call(const http_request& request);

  /// Sends and reads the head; the body comes through read_body. The connection ends with it when it isn't read to its
  /// end.
  result<http_head> open(const http_request& request);
  /// Waits for some bytes at most `timeout`; 0: the body's proper end. Errors: cut off, or silent for too long.
  result<std::size_t> read_body(std::span<char> buffer, std::chrono::milliseconds timeout);
  /// Whether the last request may have reached the server, though it failed.
  bool sent() const {
    return sent_;
  }
  /// The rest of a body that open() left, for an error's text.
  result<std::string> read_rest();

  /// Ends what another thread is waiting for here, and everything after it.
  void interrupt();

private:
  struct connection;
  result<http_head> try_open(const http_request& request, bool& stale);
  result<void> connect();
  void disconnect();

  server_access access_;
  std::unique_ptr<connection> connection_;
  std::mutex interrupt_mutex_;
  int socket_ = -1; // of connection_, for interrupt()
  bool interrupted_ = false;
  bool sent_ = false;
};

} // namespace holt::runtime::cli
