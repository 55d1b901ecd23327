#include "runtime/http/server.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>

#include "runtime/http/connection.hpp"
#include "runtime/http/core.hpp"

namespace holt::runtime::http {

namespace {

/// How often deadlines of connections are looked at. They are late by at most this.
constexpr std::chrono::milliseconds sweep_every{100};
constexpr std::chrono::milliseconds out_of_descriptors_pause{100};

std::string lower(std::string_view text) {
  std::string out{text};
  for (char& c : out)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

/// "[::1]:7117" → "::1", "localhost:7117" → "localhost"
std::string host_name(std::string_view host) {
  if (host.starts_with('[')) {
    auto end = host.find(']');
    return end == std::string_view::npos ? std::string{} : lower(host.substr(1, end - 1));
  }
  auto colon = host.rfind(':');
  if (colon != std::string_view::npos) {
    auto port = host.substr(colon + 1);
    if (port.find_first_not_of("0123456789") != std::string_view::npos)
      return {};
    host = host.substr(0, colon);
  }
  while (host.ends_with('.'))
    host.remove_suffix(1);
  return lower(host);
}

} // namespace

/// The listening socket and its timer, on one strand.
class acceptor : public std::enable_shared_from_this<acceptor> {
public:
  acceptor(std::shared_ptr<server_core> core, asio::io_context& context)
      : core_(std::move(core)), context_(context), strand_(asio::make_strand(context)), socket_(strand_), timer_(strand_) {
  }

  tl::expected<std::uint16_t, std::string> listen(const std::string& address, std::uint16_t port) {
    boost::system::error_code error;
    auto parsed = asio::ip::make_address(address, error);
    if (error)
      return tl::unexpected("the listen address \"" + address + "\" is not an IP address");
    asio::ip::tcp::endpoint endpoint{parsed, port};
    auto fail = [&](const char* what) {
      return tl::unexpected(std::string{what} + " " + address + ":" + std::to_string(port) + ": " + std::strerror(errno));
    };
    // By hand: Asio opens sockets without close-on-exec, and a sandboxed process would inherit the listener.
    int descriptor = ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0)
      return fail("can't open a socket for");
    socket_.assign(endpoint.protocol(), descriptor);
    int on = 1;
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(descriptor, endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0)
      return fail("can't listen on");
    if (::listen(descriptor, SOMAXCONN) != 0)
      return fail("can't listen on");
    return socket_.local_endpoint().port();
  }

  void start() {
    auto self = shared_from_this();
    auto body = [self]() -> task<> { return self->run(); };
    asio::co_spawn(strand_, std::move(body), [self](std::exception_ptr) {});
  }

  void stop() {
    asio::post(strand_, [self = shared_from_this()] {
      boost::system::error_code ignored;
      self->socket_.close(ignored);
      self->timer_.cancel();
    });
  }

  void every(std::chrono::milliseconds period, std::function<bool()> tick) {
    sweep_timer_.emplace(strand_);
    again(period, std::move(tick));
  }

private:
  void again(std::chrono::milliseconds period, std::function<bool()> tick) {
    sweep_timer_->expires_after(period);
    sweep_timer_->async_wait([self = shared_from_this(), period, tick = std::move(tick)](boost::system::error_code error) {
      if (!error && tick())
        self->again(period, tick);
    });
  }

  task<> run() {
    while (socket_.is_open()) {
      boost::system::error_code error;
      co_await socket_.async_wait(asio::socket_base::wait_read, asio::redirect_error(use_task, error));
      if (error)
        co_return;
      if (!accept_all()) {
        timer_.expires_after(out_of_descriptors_pause);
        co_await timer_.async_wait(asio::redirect_error(use_task, error));
      }
    }
  }

  /// False: no descriptors are left; wait.
  bool accept_all() {
    while (true) {
      int descriptor = ::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (descriptor < 0) {
        if (errno == EINTR || errno == ECONNABORTED)
          continue;
        bool waits = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        if (waits)
          core_->log("warn", "http.accept", protocols::json::write_text(protocols::json::object{{"error", std::strerror(errno)}}));
        return !waits;
      }
      int on = 1;
      setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      if (!core_->room_for_one()) {
        core_->metrics.connection_refused();
        static constexpr std::string_view full = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
                                                 "Content-Length: 0\r\nConnection: close\r\n\r\n";
        [[maybe_unused]] auto sent = ::send(descriptor, full.data(), full.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        ::close(descriptor);
        continue;
      }
      auto made = connection::make(core_, context_, descriptor);
      core_->joined(made);
      made->start();
    }
  }

  std::shared_ptr<server_core> core_;
  asio::io_context& context_;
  executor strand_;
  asio::basic_socket_acceptor<asio::ip::tcp, executor> socket_;
  timer timer_;
  std::optional<timer> sweep_timer_;
};

server_core::server_core(asio::io_context& context, server_settings given, server_parts given_parts)
    : settings([&] {
        for (auto& host : given.allowed_hosts)
          host = lower(host);
        for (auto& origin : given.trusted_origins)
          origin = lower(origin);
        return std::move(given);
      }()),
      parts(std::move(given_parts)),
      routes([] {
        route_table table;
        add_all_routes(table);
        return table;
      }()),
      metrics(routes),
      keys(settings.key_cache),
      openapi_text(http_server::openapi(settings.version)),
      context_(context) {
}

server_core::~server_core() = default;

std::int64_t server_core::now_us() const {
  if (parts.now)
    return parts.now();
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void server_core::log(const char* level, const char* event, std::string fields) const {
  if (parts.log)
    parts.log(level, event, std::move(fields));
}

bool server_core::host_allowed(std::string_view host) const {
  auto name = host_name(host);
  if (name == "localhost" || name == "127.0.0.1" || name == "::1" || name == lower(settings.address))
    return true;
  return std::find(settings.allowed_hosts.begin(), settings.allowed_hosts.end(), name) != settings.allowed_hosts.end();
}

bool server_core::origin_allowed(std::string_view origin, std::string_view host) const {
  auto given = lower(origin);
  auto own = lower(host);
  if (given == "http://" + own || given == "https://" + own)
    return true;
  return std::find(settings.trusted_origins.begin(), settings.trusted_origins.end(), given) != settings.trusted_origins.end();
}

bool server_core::room_for_one() {
  std::lock_guard guard{mutex_};
  return connections_.size() < settings.max_connections;
}

void server_core::joined(const std::shared_ptr<connection>& one) {
  std::lock_guard guard{mutex_};
  connections_.emplace(one.get(), one);
}

void server_core::left(connection* one) {
  std::lock_guard guard{mutex_};
  connections_.erase(one);
  if (connections_.empty())
    left_.notify_all();
}

std::vector<std::shared_ptr<connection>> server_core::everyone() {
  std::vector<std::shared_ptr<connection>> out;
  std::lock_guard guard{mutex_};
  out.reserve(connections_.size());
  for (auto& [pointer, weak] : connections_)
    if (auto one = weak.lock())
      out.push_back(std::move(one));
  return out;
}

void server_core::sweep() {
  auto now = clock::now();
  // Outside the lock: the last owner of a connection may be here, and it leaves under the lock.
  for (auto& one : everyone())
    one->check_deadline(now);
}

tl::expected<void, std::string> server_core::start() {
  acceptor_ = std::make_shared<acceptor>(shared_from_this(), context_);
  auto bound = acceptor_->listen(settings.address, settings.port);
  if (!bound) {
    acceptor_.reset();
    return tl::unexpected(bound.error());
  }
  port = *bound;
  acceptor_->start();
  acceptor_->every(sweep_every, [weak = weak_from_this()] {
    auto core = weak.lock();
    if (!core || core->closed_.load())
      return false;
    core->sweep();
    return true;
  });
  return {};
}

void server_core::stop_accepting() {
  stopping_ = true;
  if (acceptor_)
    acceptor_->stop();
  for (auto& one : everyone())
    one->close_when_idle();
}

bool server_core::drain(std::chrono::milliseconds grace) {
  std::unique_lock guard{mutex_};
  return left_.wait_for(guard, grace, [&] { return connections_.empty(); });
}

void server_core::close() {
  // A connection that was being accepted may still join.
  while (true) {
    for (auto& one : everyone())
      one->abort();
    if (drain(std::chrono::milliseconds{50}))
      break;
  }
  closed_ = true;
  acceptor_.reset();
}

http_server::http_server(asio::io_context& context, server_settings settings, server_parts parts)
    : core_(std::make_shared<server_core>(context, std::move(settings), std::move(parts))) {
}

http_server::~http_server() {
  if (core_->port != 0) {
    stop_accepting();
    close();
  }
}

tl::expected<void, std::string> http_server::start() {
  return core_->start();
}

std::uint16_t http_server::port() const {
  return core_->port;
}

std::string http_server::url() const {
  auto& address = core_->settings.address;
  bool v6 = address.find(':') != std::string::npos;
  return "http://" + (v6 ? "[" + address + "]" : address) + ":" + std::to_string(core_->port);
}

void http_server::stop_accepting() {
  core_->stop_accepting();
}

bool http_server::drain(std::chrono::milliseconds grace) {
  return core_->drain(grace);
}

void http_server::close() {
  core_->close();
}

} // namespace holt::runtime::http
