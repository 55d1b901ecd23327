#include "runtime/http/web_socket.hpp"

#include <boost/asio/redirect_error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket.hpp>

namespace holt::runtime::http {

namespace {

namespace beast = boost::beast;
namespace websocket = beast::websocket;

/// Longest message taken from a client: keystrokes and pastes.
constexpr std::size_t max_message_bytes = 1024 * 1024;

class beast_web_socket : public web_socket {
public:
  explicit beast_web_socket(tcp_socket& socket) : socket_(socket), stream_(socket) {
    auto times = websocket::stream_base::timeout::suggested(beast::role_type::server);
    times.idle_timeout = std::chrono::seconds{40}; // pinged at half of it
    stream_.set_option(times);
    // No compression: a compressed idle connection costs far more memory than it saves.
    websocket::permessage_deflate none;
    none.server_enable = none.client_enable = false;
    stream_.set_option(none);
    stream_.read_message_max(max_message_bytes);
    stream_.auto_fragment(false);
  }

  task<bool> accept(const request_message& request) {
    boost::system::error_code error;
    co_await stream_.async_accept(request, asio::redirect_error(use_task, error));
    co_return !error;
  }

  task<std::optional<message>> read() override {
    boost::system::error_code error;
    buffer_.clear();
    co_await stream_.async_read(buffer_, asio::redirect_error(use_task, error));
    if (error)
      co_return std::nullopt;
    message out;
    out.text = stream_.got_text();
    out.data.assign(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    co_return out;
  }

  task<bool> write(bool text, std::vector<asio::const_buffer> buffers) override {
    boost::system::error_code error;
    stream_.text(text);
    co_await stream_.async_write(buffers, asio::redirect_error(use_task, error));
    co_return !error;
  }

  task<> close(std::uint16_t code, std::string reason) override {
    boost::system::error_code error;
    websocket::close_reason why;
    why.code = code;
    reason.resize(std::min<std::size_t>(reason.size(), 120));
    why.reason.assign(reason.data(), reason.size());
    co_await stream_.async_close(why, asio::redirect_error(use_task, error));
  }

  void cut() override {
    boost::system::error_code ignored;
    socket_.shutdown(tcp_socket::shutdown_both, ignored);
    socket_.cancel(ignored);
  }

private:
  tcp_socket& socket_;
  websocket::stream<tcp_socket&> stream_;
  beast::flat_buffer buffer_;
};

} // namespace

bool is_web_socket_request(const request_message& request) {
  return websocket::is_upgrade(request);
}

task<std::shared_ptr<web_socket>> accept_web_socket(tcp_socket& socket, const request_message& request) {
  auto made = std::make_shared<beast_web_socket>(socket);
  if (!co_await made->accept(request))
    co_return nullptr;
  co_return made;
}

} // namespace holt::runtime::http
