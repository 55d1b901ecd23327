#include "runtime/cli/http_client.hpp"

#include <algorithm>

#include <sys/socket.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include "runtime/cli/tls.hpp"

namespace holt::runtime::cli {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using error_code = boost::system::error_code;

namespace {

constexpr std::size_t longest_body = 64 * 1024 * 1024;
constexpr std::size_t piece = 256 * 1024;
constexpr auto connect_timeout = std::chrono::seconds(10);

std::string reason_of(const error_code& ec) {
  if (ec == beast::error::timeout)
    return "no answer in time";
  if (ec == http::error::end_of_stream || ec == http::error::partial_message || ec == asio::error::eof)
    return "the connection was closed";
  return ec.message();
}

/// Whether sending it twice does no harm: it may have been carried out though no answer came.
bool may_repeat(const http_request& request) {
  if (request.method != "POST" && request.method != "PATCH")
    return true;
  return std::any_of(request.headers.begin(), request.headers.end(),
                     [](const auto& field) { return beast::iequals(field.first, "Idempotency-Key"); });
}

} // namespace

std::string_view http_head::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (beast::iequals(key, name))
      return value;
  return {};
}

/// A connection, and the answer under way on it. Each wait is an asynchronous operation on a loop of its own, since
/// that is what can time out.
struct http_client::connection {
  asio::io_context loop{1};
  beast::tcp_stream tcp{loop};
  std::unique_ptr<tls_stream> tls;
  beast::flat_buffer buffer;
  std::optional<http::response_parser<http::buffer_body>> parser;
  bool used = false; // an answer was read from it before

  template <class Start>
  error_code wait(std::chrono::steady_clock::duration timeout, Start start) {
    error_code outcome = asio::error::operation_aborted;
    tcp.expires_after(timeout);
    start([&outcome](error_code ec, auto&&...) { outcome = ec; });
    loop.restart();
    loop.run();
    return outcome;
  }

  template <class Do>
  void on_stream(Do act) {
    if (tls)
      act(tls->stream);
    else
      act(tcp);
  }

  bool reusable() const {
    return parser && parser->is_done() && parser->get().keep_alive();
  }
};

http_client::http_client(server_access access) : access_(std::move(access)) {
}

http_client::~http_client() {
  disconnect();
}

void http_client::disconnect() {
  {
    std::lock_guard lock(interrupt_mutex_);
    socket_ = -1;
  }
  connection_.reset();
}

void http_client::interrupt() {
  std::lock_guard lock(interrupt_mutex_);
  interrupted_ = true;
  if (socket_ >= 0)
    ::shutdown(socket_, SHUT_RDWR);
}

result<void> http_client::connect() {
  const auto& address = access_.address;
  auto unreachable = [&](const std::string& why) {
    return fail(exit_unavailable, "cannot reach " + address.text() + " (" + why
                                      + "); is holt serve running there? --url or HOLT_URL names another server");
  };
  auto fresh = std::make_unique<connection>();
  error_code ec;
  asio::ip::tcp::resolver resolver(fresh->loop);
  auto endpoints = resolver.resolve(address.host, std::to_string(address.port), ec);
  if (ec)
    return unreachable(ec.message());
  ec = fresh->wait(connect_timeout, [&](auto handler) { fresh->tcp.async_connect(endpoints, handler); });
  if (ec)
    return unreachable(reason_of(ec));
  fresh->tcp.socket().set_option(asio::ip::tcp::no_delay(true), ec);
  if (address.tls) {
    fresh->tls = std::make_unique<tls_stream>(fresh->tcp, address.host);
    ec = fresh->wait(connect_timeout, [&](auto handler) {
      fresh->tls->stream.async_handshake(asio::ssl::stream_base::client, handler);
    });
    if (ec)
      return unreachable(reason_of(ec));
  }
  std::lock_guard lock(interrupt_mutex_);
  if (interrupted_)
    return fail(exit_unavailable, "interrupted");
  socket_ = fresh->tcp.socket().native_handle();
  connection_ = std::move(fresh);
  return {};
}

result<http_head> http_client::open(const http_request& request) {
  bool stale = false;
  auto head = try_open(request, stale);
  if (!head && stale) // most likely the server had closed the idle connection
    head = try_open(request, stale);
  return head;
}

result<http_head> http_client::try_open(const http_request& request, bool& stale) {
  stale = false;
  sent_ = false;
  if (connection_ && !connection_->reusable())
    disconnect();
  if (!connection_)
    if (auto connected = connect(); !connected)
      return tl::unexpected(connected.error());
  sent_ = true;
  auto& c = *connection_;
  bool reused = c.used;
  c.parser.emplace();
  c.parser->body_limit(boost::none);
  c.parser->header_limit(64 * 1024);
  if (request.method == "HEAD")
    c.parser->skip(true);

  auto fill_head = [&](auto& message) {
    message.version(11);
    message.method_string(request.method);
    message.target(request.target);
    message.set(http::field::host, access_.address.host_header());
    message.set(http::field::user_agent, "holt");
    message.set(http::field::authorization, "Bearer " + access_.key);
    for (const auto& [name, value] : request.headers)
      message.set(name, value);
  };

  error_code ec;
  std::optional<failure> source_failure;
  if (request.source) {
    http::request<http::buffer_body> message;
    fill_head(message);
    message.content_length(request.source->size);
    message.body().data = nullptr;
    message.body().more = true;
    http::request_serializer<http::buffer_body> serializer(message);
    ec = c.wait(request.timeout, [&](auto handler) {
      c.on_stream([&](auto& stream) { http::async_write_header(stream, serializer, handler); });
    });
    std::vector<char> buffer(std::min<std::uint64_t>(piece, std::max<std::uint64_t>(request.source->size, 1)));
    for (std::uint64_t offset = 0; !ec && offset < request.source->size;) {
      auto n = request.source->read(offset, buffer);
      if (!n || *n == 0) {
        source_failure = n ? failure{exit_usage, "the file became shorter while it was sent"} : n.error();
        disconnect();
        return tl::unexpected(*source_failure);
      }
      auto take = std::min<std::uint64_t>(*n, request.source->size - offset);
      offset += take;
      message.body().data = buffer.data();
      message.body().size = take;
      message.body().more = offset < request.source->size;
      ec = c.wait(request.timeout, [&](auto handler) {
        c.on_stream([&](auto& stream) { http::async_write(stream, serializer, handler); });
      });
      if (ec == http::error::need_buffer)
        ec = {};
    }
    if (request.source->size == 0 && !ec) {
      message.body().more = false;
      ec = c.wait(request.timeout, [&](auto handler) {
        c.on_stream([&](auto& stream) { http::async_write(stream, serializer, handler); });
      });
    }
  } else {
    http::request<http::string_body> message;
    fill_head(message);
    message.body() = request.body;
    message.prepare_payload();
    ec = c.wait(request.timeout,
                [&](auto handler) { c.on_stream([&](auto& stream) { http::async_write(stream, message, handler); }); });
  }

  // A server that refuses a large body answers, and closes, before it has read it all: its answer counts.
  auto read = c.wait(request.timeout, [&](auto handler) {
    c.on_stream([&](auto& stream) { http::async_read_header(stream, c.buffer, *c.parser, handler); });
  });
  while (!read && c.parser->get().result_int() / 100 == 1) { // 100 Continue and the like
    c.parser.emplace();
    c.parser->body_limit(boost::none);
    read = c.wait(request.timeout, [&](auto handler) {
      c.on_stream([&](auto& stream) { http::async_read_header(stream, c.buffer, *c.parser, handler); });
    });
  }
  if (read) {
    stale = reused && !c.parser->got_some() && read != beast::error::timeout && may_repeat(request);
    auto why = reason_of(ec && read != beast::error::timeout ? ec : read);
    bool garbage = c.parser->got_some() && read != http::error::partial_message && read != beast::error::timeout;
    disconnect();
    if (garbage)
      return fail(exit_bug, access_.address.text() + " does not speak HTTP as holt does (" + why + "); check --url");
    return fail(exit_unavailable,
                access_.address.text() + " did not answer (" + why + "); try again, and see the server's log");
  }
  c.used = true;
  http_head head;
  head.status = c.parser->get().result_int();
  for (const auto& field : c.parser->get())
    head.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  if (ec)
    c.parser->get().keep_alive(false); // the body was not sent whole
  return head;
}

result<std::size_t> http_client::read_body(std::span<char> buffer, std::chrono::milliseconds timeout) {
  if (!connection_)
    return fail(exit_unavailable, "the connection was closed");
  auto& c = *connection_;
  while (!c.parser->is_done()) {
    auto& body = c.parser->get().body();
    body.data = buffer.data();
    body.size = buffer.size();
    auto ec = c.wait(timeout, [&](auto handler) {
      c.on_stream([&](auto& stream) { http::async_read_some(stream, c.buffer, *c.parser, handler); });
    });
    if (ec == http::error::need_buffer)
      ec = {};
    if (ec) {
      disconnect();
      return fail(exit_unavailable,
                  access_.address.text() + " stopped in the middle of an answer (" + reason_of(ec) + "); try again");
    }
    if (auto got = buffer.size() - body.size; got > 0)
      return got;
  }
  return 0;
}

result<std::string> http_client::read_rest() {
  std::string text;
  std::vector<char> buffer(64 * 1024);
  for (;;) {
    auto n = read_body(buffer, std::chrono::minutes(1));
    if (!n)
      return tl::unexpected(n.error());
    if (*n == 0)
      return text;
    text.append(buffer.data(), *n);
    if (text.size() > longest_body) {
      disconnect();
      return fail(exit_bug, "an answer of " + access_.address.text() + " is longer than 64 MiB");
    }
  }
}

result<http_response> http_client::call(const http_request& request) {
  auto head = open(request);
  if (!head)
    return tl::unexpected(head.error());
  auto body = read_rest();
  if (!body)
    return tl::unexpected(body.error());
  return http_response{std::move(*head), std::move(*body)};
}

} // namespace holt::runtime::cli
