#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/http/exchange.hpp"
#include "runtime/http/keys.hpp"
#include "runtime/http/metrics.hpp"
#include "runtime/http/router.hpp"
#include "runtime/http/server.hpp"

/// What all connections share. Any thread.
namespace holt::runtime::http {

class connection;
class acceptor;

class server_core : public std::enable_shared_from_this<server_core> {
public:
  server_core(asio::io_context& context, server_settings settings, server_parts parts);
  ~server_core();

  const server_settings settings;
  const server_parts parts;
  route_table routes;
  http::metrics metrics;
  key_cache keys;
  std::string openapi_text;

  std::int64_t now_us() const;
  void log(const char* level, const char* event, std::string fields) const;
  bool stopping() const {
    return stopping_.load(std::memory_order_relaxed);
  }
  /// Whether a `Host` is one of ours (spec 95, DNS rebinding).
  bool host_allowed(std::string_view host) const;
  bool origin_allowed(std::string_view origin, std::string_view host) const;

  // -- connections --
  void joined(const std::shared_ptr<connection>& one);
  void left(connection* one);
  bool room_for_one();

  // -- of http_server --
  tl::expected<void, std::string> start();
  void stop_accepting();
  bool drain(std::chrono::milliseconds grace);
  void close();
  std::uint16_t port = 0;

private:
  void sweep();
  std::vector<std::shared_ptr<connection>> everyone();

  asio::io_context& context_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> closed_{false};
  std::shared_ptr<acceptor> acceptor_;
  std::unordered_map<connection*, std::weak_ptr<connection>> connections_;
  std::mutex mutex_;
  std::condition_variable left_;
};

} // namespace holt::runtime::http
