#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "storage/store.hpp"

namespace boost::asio {
class io_context;
}
namespace holt::actors {
class front;
}

/// The HTTP/1.1 edge of holt: the API of `api.md` on one loopback listener (spec 91 to 95, 102).
namespace holt::runtime::http {

struct server_settings {
  std::string address = "127.0.0.1"; // an IP address; [::1] without brackets
  std::uint16_t port = 7117;         // 0: any free one
  std::uint32_t max_connections = 10000;

  std::uint64_t max_header_bytes = 16 * 1024;
  std::uint64_t max_body_bytes = 1024 * 1024;                        // of JSON
  std::uint64_t max_file_bytes = std::uint64_t{16} << 30;            // of one file that is written
  std::uint32_t max_json_depth = 32;

  /// From a request's first byte to the end of its header: a client that drips is cut here, not at each byte.
  std::chrono::milliseconds header_timeout{10'000};
  std::chrono::milliseconds body_timeout{30'000};  // for all of a JSON body
  std::chrono::milliseconds stall_timeout{60'000}; // a streamed body or a reader that makes no progress
  std::chrono::milliseconds idle_timeout{75'000};  // between requests
  std::chrono::milliseconds heartbeat{15'000};     // comment of an idle event stream

  /// Names that `Host` may have beside localhost, the loopback addresses and the listen address, without port.
  std::vector<std::string> allowed_hosts;
  /// Origins of other sites whose pages may call: "https://app.example".
  std::vector<std::string> trusted_origins;

  std::uint64_t api_per_second = 0; // requests of one key, 0: not limited; a burst of twice as many is let through
  std::chrono::milliseconds key_cache{5'000}; // how long a key that was looked up is believed

  bool log_requests = false; // each one at info; faults are told always
  std::string version = "0.1.0";
  std::vector<std::string> roles{"all"};
};

struct server_parts {
  std::shared_ptr<storage::store> store;
  actors::front* front = nullptr; // outlives the server
  /// As node_parts::log. May be empty.
  std::function<void(const char* level, const char* event, std::string fields)> log;
  /// Microseconds since 1970. Empty: the system's clock.
  std::function<std::int64_t()> now;
};

class server_core;

/// Owned by main. The io_context is run by threads of its owner, and outlives the server. Stop is in stages, so that the
/// actors can fail running calls in between (spec 100): stop_accepting → drain → close.
class http_server {
public:
  http_server(boost::asio::io_context& context, server_settings settings, server_parts parts);
  ~http_server();
  http_server(const http_server&) = delete;
  http_server& operator=(const http_server&) = delete;

  /// Binds and listens. The error is one line for the operator.
  tl::expected<void, std::string> start();
  /// After start.
  std::uint16_t port() const;
  std::string url() const;

  /// New connections are refused, connections without a request are closed, and /readyz says so. Any thread.
  void stop_accepting();
  /// Waits until every request was answered, at most `grace`. Whether all were. Not on a thread of the io_context.
  bool drain(std::chrono::milliseconds grace);
  /// Cuts what is left and waits until nothing of it runs any more. Not on a thread of the io_context.
  void close();

  /// The text of /openapi.json.
  static std::string openapi(const std::string& version);

private:
  std::shared_ptr<server_core> core_;
};

} // namespace holt::runtime::http
