#include "runtime/cli/shell_session.hpp"

#include <array>
#include <csignal>
#include <deque>
#include <memory>

#include <unistd.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/websocket/ssl.hpp>
#include <boost/beast/websocket/stream.hpp>

#include "protocols/json.hpp"
#include "runtime/cli/api.hpp"
#include "runtime/cli/exec_events.hpp"
#include "runtime/cli/local_file.hpp"
#include "runtime/cli/terminal.hpp"
#include "runtime/cli/tls.hpp"

namespace holt::runtime::cli {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;
namespace json = protocols::json;
using error_code = boost::system::error_code;

namespace {

constexpr std::size_t longest_message = 1024 * 1024;
constexpr std::size_t typed_piece = 4096;
constexpr std::size_t most_waiting = 16; // messages not yet sent, before the keyboard waits

/// Everything runs on the one thread that runs `loop`.
template <class Stream>
class session {
public:
  session(asio::io_context& loop, websocket::stream<Stream>& socket, shell_state& state)
      : loop_(loop), socket_(socket), state_(state), keyboard_(loop, ::dup(0)), resized_(loop, SIGWINCH) {
  }

  result<void> run() {
    send_size();
    read_messages();
    read_keyboard();
    await_resize();
    loop_.restart();
    loop_.run();
    if (outcome_)
      return tl::unexpected(*outcome_);
    return {};
  }

private:
  void read_messages() {
    socket_.async_read(incoming_, [this](error_code ec, std::size_t) {
      if (ec)
        return end(failure{exit_unavailable, "the connection was lost (" + ec.message() + ")"});
      std::string_view bytes(static_cast<const char*>(incoming_.data().data()), incoming_.size());
      if (socket_.got_binary()) {
        if (auto bad = write_all(1, bytes))
          return end(failure{exit_refused, "cannot write to the terminal (" + bad.message() + ")"});
        state_.position += bytes.size();
      } else if (take_control(bytes)) {
        return;
      }
      incoming_.consume(incoming_.size());
      read_messages();
    });
  }

  /// True: that was the end.
  bool take_control(std::string_view text) {
    auto message = json::parse_text(text);
    if (!message || !message->is_object())
      return false;
    const auto& fields = message->get_object();
    if (const auto* started = fields.if_contains("started")) {
      state_.started = true;
      if (auto op_id = text_at(*started, "op_id"); !op_id.empty())
        state_.op_id = op_id;
    } else if (const auto* gap = fields.if_contains("gap"); gap && gap->is_object()) {
      if (const auto* to = gap->get_object().if_contains("to"); to && to->is_number())
        state_.position = to->to_number<std::uint64_t>();
    } else if (const auto* exit = fields.if_contains("exit")) {
      auto event = read_exec_event({.event = "exit", .data = json::write_text(*exit), .id = {}});
      if (event)
        if (auto* ended = std::get_if<command_exit>(&*event))
          state_.exit_status = exit_status(*ended);
      if (!state_.exit_status)
        end(failure{exit_unavailable, "it is not known how the shell ended", "operation.outcome_unknown"});
      else
        end(std::nullopt);
      return true;
    } else if (const auto* error = fields.if_contains("error")) {
      auto event = read_exec_event({.event = "error", .data = json::write_text(*error), .id = {}});
      end(event ? failure{exit_bug, "the server reported an error"} : event.error());
      return true;
    }
    return false;
  }

  void read_keyboard() {
    keyboard_reading_ = true;
    keyboard_.async_read_some(asio::buffer(typed_), [this](error_code ec, std::size_t n) {
      keyboard_reading_ = false;
      if (ended_)
        return;
      keyboard_ended_ = !!ec;
      if (ec) // this terminal is gone: so is its user, and the shell is told
        return send(false, json::write_text(json::object{{"close", true}}));
      send(true, std::string(typed_.data(), n));
      if (waiting_.size() < most_waiting)
        read_keyboard();
    });
  }

  void await_resize() {
    resized_.async_wait([this](error_code ec, int) {
      if (ec || ended_)
        return;
      send_size();
      await_resize();
    });
  }

  void send_size() {
    auto size = size_of_terminal(0);
    send(false, json::write_text(json::object{{"resize", json::object{{"cols", size.cols}, {"rows", size.rows}}}}));
  }

  void send(bool binary, std::string bytes) {
    waiting_.emplace_back(binary, std::move(bytes));
    if (waiting_.size() == 1)
      write_next();
  }

  void write_next() {
    socket_.binary(waiting_.front().first);
    socket_.async_write(asio::buffer(waiting_.front().second), [this](error_code ec, std::size_t) {
      if (ended_)
        return;
      if (ec)
        return end(failure{exit_unavailable, "the connection was lost (" + ec.message() + ")"});
      waiting_.pop_front();
      if (!waiting_.empty())
        write_next();
      if (!keyboard_reading_ && !keyboard_ended_ && waiting_.size() < most_waiting)
        read_keyboard();
    });
  }

  void end(std::optional<failure> why) {
    if (ended_)
      return;
    ended_ = true;
    outcome_ = std::move(why);
    loop_.stop(); // what still waits (the WebSocket's own timer, 40 s) is dropped with the loop, and never called
  }

  asio::io_context& loop_;
  websocket::stream<Stream>& socket_;
  shell_state& state_;
  asio::posix::stream_descriptor keyboard_;
  asio::signal_set resized_;
  beast::flat_buffer incoming_{longest_message};
  std::array<char, typed_piece> typed_{};
  std::deque<std::pair<bool, std::string>> waiting_; // binary or text; the first is being sent
  bool keyboard_reading_ = false;
  bool keyboard_ended_ = false;
  bool ended_ = false;
  std::optional<failure> outcome_;
};

/// Runs one asynchronous step of the connection's making to its end.
template <class Start>
error_code step(asio::io_context& loop, Start start) {
  error_code outcome = asio::error::operation_aborted;
  // Stopped at once: a timer of the WebSocket may be left, which nobody waits for.
  start([&](error_code ec, auto&&...) {
    outcome = ec;
    loop.stop();
  });
  loop.restart();
  loop.run();
  return outcome;
}

template <class Stream>
result<void> upgrade_and_run(asio::io_context& loop, websocket::stream<Stream>& socket, const server_access& access,
                             const std::string& target, shell_state& state) {
  websocket::stream_base::timeout limits{};
  limits.handshake_timeout = std::chrono::minutes(2); // a first use creates a sandbox
  limits.idle_timeout = std::chrono::seconds(40);
  limits.keep_alive_pings = true;
  socket.set_option(limits);
  socket.read_message_max(longest_message);
  socket.set_option(websocket::stream_base::decorator([&](websocket::request_type& request) {
    request.set(http::field::authorization, "Bearer " + access.key);
    request.set(http::field::user_agent, "holt");
  }));
  websocket::response_type response;
  auto ec = step(
      loop, [&](auto handler) { socket.async_handshake(response, access.address.host_header(), target, handler); });
  if (ec == websocket::error::upgrade_declined) {
    http_head head;
    head.status = response.result_int();
    return tl::unexpected(failure_of(head, response.body()));
  }
  if (ec)
    return fail(exit_unavailable, access.address.text() + " did not open a terminal (" + ec.message() + ")");
  return session<Stream>(loop, socket, state).run();
}

} // namespace

result<void> run_shell_session(const server_access& access, const std::string& target, shell_state& state) {
  asio::io_context loop{1};
  error_code ec;
  asio::ip::tcp::resolver resolver(loop);
  auto endpoints = resolver.resolve(access.address.host, std::to_string(access.address.port), ec);
  auto unreachable = [&] {
    return fail(exit_unavailable, "cannot reach " + access.address.text() + " (" + ec.message()
                                      + "); is holt serve running there? --url or HOLT_URL names another server");
  };
  if (ec)
    return unreachable();
  beast::tcp_stream tcp(loop);
  tcp.expires_after(std::chrono::seconds(10));
  ec = step(loop, [&](auto handler) { tcp.async_connect(endpoints, handler); });
  if (ec)
    return unreachable();
  tcp.socket().set_option(asio::ip::tcp::no_delay(true), ec);
  if (!access.address.tls) {
    tcp.expires_never(); // the WebSocket has its own limits
    websocket::stream<beast::tcp_stream> socket(std::move(tcp));
    return upgrade_and_run(loop, socket, access, target, state);
  }
  tls_stream tls(tcp, access.address.host);
  ec = step(loop, [&](auto handler) { tls.stream.async_handshake(asio::ssl::stream_base::client, handler); });
  if (ec)
    return unreachable();
  tcp.expires_never();
  websocket::stream<beast::ssl_stream<beast::tcp_stream&>&> socket(tls.stream);
  return upgrade_and_run(loop, socket, access, target, state);
}

} // namespace holt::runtime::cli
