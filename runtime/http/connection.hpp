#pragma once

#include <atomic>
#include <memory>

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "runtime/http/exchange.hpp"

namespace holt::runtime::http {

using tcp_socket = asio::basic_stream_socket<asio::ip::tcp, executor>;

/// One client's connection: reads requests one after the other and has them answered. Keeps itself alive while it runs.
class connection : public exchange, public std::enable_shared_from_this<connection> {
public:
  /// Takes a connected descriptor, non-blocking and close-on-exec.
  static std::shared_ptr<connection> make(std::shared_ptr<server_core> core, asio::io_context& context, int descriptor);
  virtual void start() = 0;

  // Any thread:
  /// Cuts what has waited for longer than it may.
  virtual void check_deadline(clock::time_point now) = 0;
  /// Closes if no request is being answered; else after this one.
  virtual void close_when_idle() = 0;
  /// Cuts everything, also what runs.
  virtual void abort() = 0;
  /// A request is being answered.
  std::atomic<bool> busy{false};
};

} // namespace holt::runtime::http
