#include "runtime/http/connection.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <random>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>

#include "protocols/ids.hpp"
#include "runtime/http/core.hpp"
#include "runtime/http/secrets.hpp"
#include "runtime/http/web_socket.hpp"

namespace holt::runtime::http {

namespace {

namespace beast = boost::beast;
using parser = beast::http::request_parser<beast::http::buffer_body>;

constexpr std::size_t small_buffer = 4 * 1024;
/// A body that nobody read is read and dropped up to here, so that the connection can go on.
constexpr std::uint64_t max_drained = 256 * 1024;
/// Bytes that one coroutine writes before others have their turn.
constexpr std::size_t turn_bytes = 2 * 1024 * 1024;
/// For the count of requests only, as others count it: nobody was left to answer.
constexpr unsigned client_closed = 499;
constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

std::string_view view(beast::string_view text) {
  return {text.data(), text.size()};
}

/// The `Date` header, made once a second for each thread.
std::string_view date_line() {
  thread_local std::time_t made = 0;
  thread_local std::array<char, 64> text;
  thread_local std::size_t size = 0;
  auto now = std::time(nullptr);
  if (now != made) {
    std::tm parts{};
    gmtime_r(&now, &parts);
    size = std::strftime(text.data(), text.size(), "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &parts);
    made = now;
  }
  return {text.data(), size};
}

/// Ids of requests are for finding log lines again; nobody needs to be unable to guess them.
std::string make_request_id() {
  thread_local std::mt19937_64 source{std::random_device{}()};
  protocols::id_bytes bytes;
  std::uint64_t halves[2] = {source(), source()};
  std::memcpy(bytes.data(), halves, bytes.size());
  return protocols::format_id(protocols::id_kind::request, bytes);
}

bool plain_id(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.';
  });
}

/// The trace id of a W3C traceparent ("00-<32 hex>-<16 hex>-<2 hex>"), or "".
std::string_view trace_id_of(std::string_view traceparent) {
  auto hex = [](std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  };
  if (traceparent.size() < 55 || traceparent[2] != '-' || traceparent[35] != '-' || traceparent[52] != '-')
    return {};
  auto trace = traceparent.substr(3, 32);
  bool good = hex(traceparent.substr(0, 2)) && traceparent.substr(0, 2) != "ff" && hex(trace) &&
              hex(traceparent.substr(36, 16)) && trace.find_first_not_of('0') != std::string_view::npos;
  return good ? trace : std::string_view{};
}

verb verb_of(beast::http::verb method) {
  switch (method) {
  case beast::http::verb::get:
    return verb::get;
  case beast::http::verb::head:
    return verb::head;
  case beast::http::verb::post:
    return verb::post;
  case beast::http::verb::put:
    return verb::put;
  case beast::http::verb::patch:
    return verb::patch;
  case beast::http::verb::delete_:
    return verb::del;
  case beast::http::verb::options:
    return verb::options;
  default:
    return verb::other;
  }
}

class tcp_connection final : public connection {
public:
  tcp_connection(std::shared_ptr<server_core> core, asio::io_context& context, int descriptor)
      : core_(std::move(core)), strand_(asio::make_strand(context)), socket_(strand_) {
    socket_.assign(asio::ip::tcp::v4(), descriptor);
    buffer_.resize(small_buffer);
    core_->metrics.connection_opened();
  }

  ~tcp_connection() override {
    core_->metrics.connection_closed();
    core_->left(this);
  }

  void start() override {
    auto self = std::static_pointer_cast<tcp_connection>(shared_from_this());
    // A named local, moved in (g++ 12).
    auto body = [self]() -> task<> { return self->run(); };
    asio::co_spawn(strand_, std::move(body), [self](std::exception_ptr failure) {
      if (failure)
        self->report(failure);
      self->shut();
    });
  }

  // -- any thread ------------------------------------------------------------------------------------------------------

  void check_deadline(clock::time_point now) override {
    if (now.time_since_epoch().count() < deadline_.load(std::memory_order_relaxed))
      return;
    asio::post(strand_, [self = mine()] { self->on_deadline(); });
  }

  void close_when_idle() override {
    asio::post(strand_, [self = mine()] {
      if (!self->busy.load(std::memory_order_relaxed))
        self->shut();
    });
  }

  void abort() override {
    asio::post(strand_, [self = mine()] { self->shut(); });
  }

  // -- exchange --------------------------------------------------------------------------------------------------------

  std::string_view header(std::string_view name) const override {
    auto found = message().find(beast::string_view{name.data(), name.size()});
    return found == message().end() ? std::string_view{} : view(found->value());
  }

  std::size_t count(std::string_view name) const override {
    return message().count(beast::string_view{name.data(), name.size()});
  }

  server_core& core() override {
    return *core_;
  }

  executor home() override {
    return strand_;
  }

  bool has_body() const override {
    return chunked_ || body_length_ > 0;
  }

  std::optional<std::uint64_t> content_length() const override {
    if (chunked_)
      return std::nullopt;
    return body_length_;
  }

  task<tl::expected<std::string, protocols::problem>> read_body(std::uint64_t limit) override {
    auto too_large = [&] {
      return tl::unexpected(protocols::make_problem(
        "request.too_large", "The body may have at most " + std::to_string(limit) + " bytes."));
    };
    if (body_length_ > limit)
      co_return too_large();
    std::string out;
    out.resize(chunked_ ? std::min<std::uint64_t>(limit + 1, 16 * 1024) : body_length_);
    std::size_t filled = 0;
    auto until = clock::now() + core_->settings.body_timeout;
    while (!body_done_) {
      if (filled == out.size()) {
        if (!chunked_)
          break;
        if (filled > limit)
          co_return too_large();
        out.resize(std::min<std::size_t>(out.size() * 2, limit + 1));
      }
      auto got = co_await read_within(out.data() + filled, out.size() - filled, until);
      if (got < 0)
        co_return tl::unexpected(body_fault());
      if (got == 0)
        break;
      filled += static_cast<std::size_t>(got);
    }
    if (filled > limit)
      co_return too_large();
    out.resize(filled);
    co_return out;
  }

  task<std::ptrdiff_t> read_some(char* into, std::size_t size) override {
    return read_within(into, size, clock::time_point::max());
  }

  void add_header(std::string_view name, std::string_view value) override {
    headers_.append(name).append(": ");
    for (char c : value)
      if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f)
        headers_ += c;
    headers_ += "\r\n";
  }

  void answer(unsigned status, std::string_view content_type, std::string body) override {
    if (answer_ != answer_state::none)
      return;
    answer_ = answer_state::whole;
    settle_body();
    write_head(status, content_type, body.size());
    if (method_ != verb::head)
      out_ += body;
  }

  bool answered() const override {
    return answer_ != answer_state::none;
  }

  task<bool> begin(unsigned status, std::string_view content_type, std::optional<std::uint64_t> length) override {
    answer_ = answer_state::streaming;
    settle_body();
    chunked_answer_ = !length && version_11_;
    if (!length && !version_11_)
      keep_alive_ = false;
    write_head(status, content_type, length);
    no_body_ = method_ == verb::head;
    co_return co_await flush();
  }

  task<bool> write(std::span<const asio::const_buffer> buffers) override {
    if (broken_)
      co_return false;
    if (no_body_)
      co_return true;
    std::size_t total = 0;
    gather_.clear();
    gather_.push_back({}); // the chunk's size, when there is one
    for (auto& one : buffers) {
      total += one.size();
      if (one.size() > 0)
        gather_.push_back({const_cast<void*>(one.data()), one.size()});
    }
    if (total == 0)
      co_return true;
    char size_line[24];
    if (chunked_answer_) {
      auto end = std::to_chars(size_line, size_line + 20, total, 16).ptr;
      *end++ = '\r';
      *end++ = '\n';
      gather_[0] = {size_line, static_cast<std::size_t>(end - size_line)};
      gather_.push_back({const_cast<char*>("\r\n"), 2});
    }
    co_return co_await send(std::span{gather_}.subspan(chunked_answer_ ? 0 : 1));
  }

  task<bool> finish(std::string_view trailers) override {
    if (answer_ != answer_state::streaming)
      co_return false;
    answer_ = answer_state::finished;
    if (broken_)
      co_return false;
    if (!chunked_answer_ || no_body_)
      co_return true;
    out_ = "0\r\n";
    out_.append(trailers).append("\r\n");
    co_return co_await flush();
  }

  void cut() override {
    keep_alive_ = false;
    broken_ = true;
    if (answer_ == answer_state::streaming)
      answer_ = answer_state::finished;
    // Reset rather than closed: no client takes what it has for the whole.
    linger reset{1, 0};
    setsockopt(socket_.native_handle(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  }

  void set_waker(std::shared_ptr<wakeup> waker) override {
    waker_ = std::move(waker);
    if (waker_ && (broken_ || client_left_))
      waker_->notify();
  }

  void watch_client() override {
    if (watching_ || broken_)
      return;
    watching_ = true;
    socket_.async_wait(tcp_socket::wait_read, [self = mine()](boost::system::error_code error) {
      self->watching_ = false;
      if (error)
        return;
      char byte;
      auto got = ::recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      bool open = got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
      if (open)
        return;
      self->client_left_ = true;
      if (got < 0)
        self->broken_ = true;
      if (self->waker_)
        self->waker_->notify();
    });
  }

  bool client_left() const override {
    return client_left_;
  }

  bool broken() const override {
    return broken_;
  }

  bool stopping() const override {
    return core_->stopping();
  }

  task<std::shared_ptr<web_socket>> upgrade() override {
    if (!is_web_socket_request(parser_->get())) {
      add_header("Upgrade", "websocket");
      refuse("request.invalid", "This is a WebSocket: send an Upgrade request.");
      co_return nullptr;
    }
    keep_alive_ = false;
    answer_ = answer_state::finished;
    status_ = 101;
    auto made = co_await accept_web_socket(socket_, parser_->get());
    if (!made)
      broken_ = true;
    co_return made;
  }

private:
  enum class answer_state : std::uint8_t { none, whole, streaming, finished };

  std::shared_ptr<tcp_connection> mine() {
    return std::static_pointer_cast<tcp_connection>(shared_from_this());
  }

  const request_message& message() const {
    return parser_->get();
  }

  void report(std::exception_ptr failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      core_->log("error", "http.bug", protocols::json::write_text(protocols::json::object{{"what", error.what()}}));
    } catch (...) {
      core_->log("error", "http.bug", "{}");
    }
  }

  // -- deadlines -------------------------------------------------------------------------------------------------------

  void set_deadline(clock::time_point at) {
    deadline_.store(at == clock::time_point::max() ? never : at.time_since_epoch().count(), std::memory_order_relaxed);
  }

  void clear_deadline() {
    deadline_.store(never, std::memory_order_relaxed);
  }

  void on_deadline() {
    if (clock::now().time_since_epoch().count() < deadline_.load(std::memory_order_relaxed))
      return; // met in the meantime
    clear_deadline();
    timed_out_ = true;
    boost::system::error_code ignored;
    socket_.cancel(ignored);
  }

  void shut() {
    broken_ = true;
    keep_alive_ = false;
    closing_ = true;
    boost::system::error_code ignored;
    socket_.shutdown(tcp_socket::shutdown_both, ignored);
    socket_.cancel(ignored);
    if (waker_)
      waker_->notify();
  }

  // -- reading ---------------------------------------------------------------------------------------------------------

  std::string_view unread() const {
    return {buffer_.data() + begin_, end_ - begin_};
  }

  /// Room after end_, by moving or growing up to `most`. False: full.
  bool make_room(std::size_t most) {
    if (begin_ == end_)
      begin_ = end_ = 0;
    if (end_ < buffer_.size())
      return true;
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
      return true;
    }
    if (buffer_.size() >= most)
      return false;
    buffer_.resize(std::min(most, buffer_.size() * 2));
    return true;
  }

  /// More into the buffer, which has room. False: ended, broken or too late.
  task<bool> fill() {
    boost::system::error_code error;
    auto got = co_await socket_.async_read_some(asio::buffer(buffer_.data() + end_, buffer_.size() - end_),
                                                asio::redirect_error(use_task, error));
    end_ += got;
    if (error && !timed_out_)
      broken_ = error != asio::error::eof || broken_;
    co_return !error && got > 0;
  }

  /// One request's header into parser_. False: no more requests come, or one that was answered with its fault.
  task<bool> read_header() {
    bool begun = false;
    set_deadline(clock::now() + core_->settings.idle_timeout);
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(core_->settings.max_header_bytes));
    parser_->body_limit(boost::none);
    while (true) {
      // Empty lines before a request are allowed for (RFC 9112, 2.2).
      while (!begun && begin_ < end_ && (buffer_[begin_] == '\r' || buffer_[begin_] == '\n'))
        ++begin_;
      if (begin_ < end_) {
        if (!begun)
          set_deadline(clock::now() + core_->settings.header_timeout);
        begun = true;
        boost::system::error_code error;
        auto text = unread();
        begin_ += parser_->put(asio::const_buffer(text.data(), text.size()), error);
        if (!error && parser_->is_header_done()) {
          clear_deadline();
          co_return true;
        }
        if (error && error != beast::http::error::need_more) {
          co_await refuse_header(error);
          co_return false;
        }
      }
      if (closing_ || (!begun && core_->stopping()))
        co_return false;
      // One byte more than the limit, so that the parser is the one to say it.
      if (!make_room(core_->settings.max_header_bytes + small_buffer)) {
        co_await refuse_header(beast::http::error::header_limit);
        co_return false;
      }
      if (!co_await fill()) {
        if (timed_out_ && begun)
          co_await refuse_now("request.timeout", "The request's header did not arrive in time.");
        co_return false;
      }
    }
  }

  task<> refuse_header(boost::system::error_code error) {
    if (error == beast::http::error::header_limit)
      co_await refuse_now("request.headers_too_large", "The header may have at most " +
                                                         std::to_string(core_->settings.max_header_bytes) + " bytes.");
    else
      co_await refuse_now("request.invalid", "This is not an HTTP/1.1 request: " + error.message() + ".");
  }

  /// Answers what is no whole request, and ends the connection.
  task<> refuse_now(std::string_view code, std::string detail) {
    begin_request();
    method_ = verb::other;
    keep_alive_ = false;
    request_id = make_request_id();
    core_->metrics.request_began();
    auto began = clock::now();
    refuse(code, std::move(detail));
    co_await flush();
    core_->metrics.request_ended(metrics::no_route, status_, clock::now() - began);
  }

  protocols::problem body_fault() {
    keep_alive_ = false;
    if (timed_out_)
      return protocols::make_problem("request.timeout", "The body did not arrive in time.");
    return protocols::make_problem("request.invalid", "The body broke off, or its chunks are not well formed.");
  }

  task<std::ptrdiff_t> read_within(char* into, std::size_t size, clock::time_point until) {
    if (body_done_ || size == 0)
      co_return 0;
    if (broken_)
      co_return -1;
    if (expects_continue_) {
      expects_continue_ = false;
      if (begin_ == end_) {
        static constexpr std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";
        iovec part{const_cast<char*>(go_on.data()), go_on.size()};
        if (!co_await send({&part, 1}))
          co_return -1;
      }
    }
    // Not as one conditional expression: g++ 12 would run both.
    if (chunked_)
      co_return co_await read_chunked(into, size, until);
    co_return co_await read_plain(into, size, until);
  }

  clock::time_point read_limit(clock::time_point until) const {
    return std::min(until, clock::now() + core_->settings.stall_timeout);
  }

  /// Straight into the reader's memory once the buffer is used up.
  task<std::ptrdiff_t> read_plain(char* into, std::size_t size, clock::time_point until) {
    size = std::min<std::uint64_t>(size, body_left_);
    std::size_t got = std::min(size, end_ - begin_);
    if (got > 0) {
      std::memcpy(into, buffer_.data() + begin_, got);
      begin_ += got;
    } else {
      auto now = ::recv(socket_.native_handle(), into, size, MSG_DONTWAIT);
      if (now > 0) {
        got = static_cast<std::size_t>(now);
      } else {
        set_deadline(read_limit(until));
        boost::system::error_code error;
        got = co_await socket_.async_read_some(asio::buffer(into, size), asio::redirect_error(use_task, error));
        clear_deadline();
        if (error || got == 0)
          co_return body_broke();
      }
    }
    body_left_ -= got;
    body_done_ = body_left_ == 0;
    co_return static_cast<std::ptrdiff_t>(got);
  }

  task<std::ptrdiff_t> read_chunked(char* into, std::size_t size, clock::time_point until) {
    while (true) {
      if (begin_ < end_) {
        auto& body = parser_->get().body();
        body.data = into;
        body.size = size;
        body.more = true;
        boost::system::error_code error;
        auto text = unread();
        begin_ += parser_->put(asio::const_buffer(text.data(), text.size()), error);
        bool fine = !error || error == beast::http::error::need_more || error == beast::http::error::need_buffer;
        if (!fine)
          co_return body_broke();
        auto got = size - body.size;
        body_done_ = parser_->is_done();
        if (got > 0 || body_done_)
          co_return static_cast<std::ptrdiff_t>(got);
        if (!error && begin_ < end_)
          continue;
      }
      if (!make_room(std::max<std::size_t>(64 * 1024, buffer_.size())))
        co_return body_broke();
      set_deadline(read_limit(until));
      bool more = co_await fill();
      clear_deadline();
      if (!more)
        co_return body_broke();
    }
  }

  std::ptrdiff_t body_broke() {
    body_done_ = true;
    keep_alive_ = false;
    return -1;
  }

  /// Before the answer: whether the connection can go on when the rest of the body was not read.
  void settle_body() {
    if (body_done_)
      return;
    // Whoever waits for "100 Continue" may or may not send the body after another answer.
    bool small = !chunked_ && body_left_ <= max_drained;
    if (expects_continue_ || !small)
      keep_alive_ = false;
  }

  /// After the answer.
  task<> drain_body() {
    char dropped[4096];
    auto until = clock::now() + core_->settings.body_timeout;
    while (!body_done_ && !broken_)
      if (co_await read_within(dropped, sizeof dropped, until) < 0)
        break;
  }

  // -- writing ---------------------------------------------------------------------------------------------------------

  void write_head(unsigned status, std::string_view content_type, std::optional<std::uint64_t> length) {
    status_ = status;
    if (core_->stopping())
      keep_alive_ = false;
    char number[24];
    out_.clear();
    out_ += "HTTP/1.1 ";
    out_.append(number, std::to_chars(number, number + sizeof number, status).ptr);
    out_ += ' ';
    auto reason = beast::http::obsolete_reason(static_cast<beast::http::status>(status));
    out_.append(reason.data(), reason.size());
    out_ += "\r\n";
    out_ += date_line();
    if (!content_type.empty())
      out_.append("Content-Type: ").append(content_type).append("\r\n");
    if (length) {
      if (status != 204 && status != 304) {
        out_ += "Content-Length: ";
        out_.append(number, std::to_chars(number, number + sizeof number, *length).ptr);
        out_ += "\r\n";
      }
    } else if (chunked_answer_) {
      out_ += "Transfer-Encoding: chunked\r\n";
    }
    if (!request_id.empty())
      out_.append("X-Request-Id: ").append(request_id).append("\r\n");
    if (who)
      out_ += "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n";
    out_ += headers_;
    if (!keep_alive_)
      out_ += "Connection: close\r\n";
    else if (!version_11_)
      out_ += "Connection: keep-alive\r\n";
    out_ += "\r\n";
  }

  task<bool> flush() {
    iovec part{out_.data(), out_.size()};
    co_return co_await send({&part, 1});
  }

  /// Without a coroutine when the socket takes all at once: the common case. False: not all is out.
  bool flush_now() {
    auto sent = ::send(socket_.native_handle(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0)
      return false;
    out_.erase(0, static_cast<std::size_t>(sent));
    return out_.empty();
  }

  /// Everything, in as few calls as the socket takes. Changes `parts`.
  task<bool> send(std::span<iovec> parts) {
    while (!parts.empty()) {
      if (broken_)
        co_return false;
      msghdr message{};
      message.msg_iov = parts.data();
      message.msg_iovlen = std::min<std::size_t>(parts.size(), 1024);
      auto sent = ::sendmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0) {
        if (errno == EINTR)
          continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) {
          broken_ = true;
          co_return false;
        }
        set_deadline(clock::now() + core_->settings.stall_timeout);
        boost::system::error_code error;
        co_await socket_.async_wait(tcp_socket::wait_write, asio::redirect_error(use_task, error));
        clear_deadline();
        if (error) {
          broken_ = true;
          co_return false;
        }
        continue;
      }
      written_ += static_cast<std::size_t>(sent);
      while (!parts.empty() && static_cast<std::size_t>(sent) >= parts.front().iov_len) {
        sent -= static_cast<ssize_t>(parts.front().iov_len);
        parts = parts.subspan(1);
      }
      if (!parts.empty()) {
        parts.front().iov_base = static_cast<char*>(parts.front().iov_base) + sent;
        parts.front().iov_len -= static_cast<std::size_t>(sent);
      }
    }
    if (written_ >= turn_bytes) {
      written_ = 0;
      co_await asio::post(strand_, use_task);
    }
    co_return !broken_;
  }

  // -- one request -----------------------------------------------------------------------------------------------------

  void begin_request() {
    out_.clear();
    headers_.clear();
    answer_ = answer_state::none;
    status_ = 0;
    chunked_answer_ = no_body_ = false;
    timed_out_ = false;
    chunked_ = expects_continue_ = false;
    body_length_ = body_left_ = 0;
    body_done_ = true;
    who.reset();
    request_id.clear();
    trace_id.clear();
    route_index_ = metrics::no_route;
  }

  /// What the header says, into the fields of this exchange. False: refused.
  bool take_header() {
    auto& request = parser_->get();
    method_ = method = verb_of(request.method());
    version_11_ = request.version() >= 11;
    keep_alive_ = request.keep_alive();
    chunked_ = request.chunked();
    if (!chunked_) {
      body_length_ = body_left_ = parser_->content_length().value_or(0);
      body_done_ = body_left_ == 0;
    } else {
      body_done_ = false;
    }
    auto given = header("X-Request-Id");
    if (plain_id(given))
      request_id = given;
    else
      request_id = make_request_id();
    if (auto traceparent = header("traceparent"); !traceparent.empty())
      trace_id = trace_id_of(traceparent);
    if (request.version() != 11 && request.version() != 10)
      return keep_alive_ = false, refuse("request.invalid", "Only HTTP/1.1 and HTTP/1.0 are spoken here."), false;
    if (request.count(beast::http::field::transfer_encoding) > 0 && !chunked_)
      return keep_alive_ = false, refuse("request.invalid", "The only transfer encoding understood is chunked."), false;
    if (auto expected = header("Expect"); !expected.empty()) {
      if (!beast::iequals({expected.data(), expected.size()}, "100-continue"))
        return refuse("request.invalid", "The only expectation understood is 100-continue."), false;
      expects_continue_ = has_body() && version_11_;
    }
    auto target = view(request.target());
    if (target.starts_with("http://") || target.starts_with("https://")) { // the absolute form
      auto slash = target.find('/', target.find("//") + 2);
      target = slash == std::string_view::npos ? std::string_view{"/"} : target.substr(slash);
    }
    if (target.empty() || target.front() != '/')
      return refuse("request.invalid", "The request's target must begin with a slash."), false;
    target = target.substr(0, target.find('#'));
    auto question = target.find('?');
    path = target.substr(0, question);
    query = question == std::string_view::npos ? std::string_view{} : target.substr(question + 1);
    return check_host();
  }

  bool check_host() {
    auto hosts = count("Host");
    auto host = header("Host");
    if (hosts > 1 || (hosts == 0 && version_11_))
      return refuse("request.invalid", "A request has exactly one Host header."), false;
    if (hosts == 1 && host != checked_host_) {
      if (!core_->host_allowed(host))
        return refuse("request.host_refused", "This host name is not served here; the operator can allow it."), false;
      checked_host_ = host;
    }
    auto origin = header("Origin");
    if (origin.empty())
      return true;
    if (!core_->origin_allowed(origin, host))
      return refuse("request.origin_refused", "Pages of this origin may not call; the operator can allow it."), false;
    add_header("Access-Control-Allow-Origin", origin);
    add_header("Access-Control-Expose-Headers",
               "ETag, Retry-After, Holt-Op-Id, Holt-Log-From, Holt-Log-Next, Holt-Log-End, Holt-Log-Omitted, X-Request-Id");
    add_header("Vary", "Origin");
    return true;
  }

  /// The route, or an answer that says why there is none.
  const route* find_route() {
    auto matched = core_->routes.find(method, path);
    if (matched.found) {
      params = matched.params;
      return matched.found;
    }
    if (matched.allow.empty()) {
      refuse("request.not_found", "There is nothing at this path; see /openapi.json.");
      return nullptr;
    }
    add_header("Allow", matched.allow);
    if (method == verb::options && !header("Origin").empty() && !header("Access-Control-Request-Method").empty()) {
      add_header("Access-Control-Allow-Methods", matched.allow);
      add_header("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, "
                                                 "Range, If-Range, Last-Event-ID, Content-SHA256, traceparent");
      add_header("Access-Control-Max-Age", "600");
      answer(204, "", "");
      return nullptr;
    }
    refuse("request.method_not_allowed", "The methods allowed here are " + matched.allow + ".");
    return nullptr;
  }

  std::string_view bearer() const {
    auto given = header("Authorization");
    constexpr std::string_view scheme = "bearer ";
    if (given.size() <= scheme.size() || !beast::iequals({given.data(), scheme.size()}, {scheme.data(), scheme.size()}))
      return {};
    given.remove_prefix(scheme.size());
    while (!given.empty() && given.front() == ' ')
      given.remove_prefix(1);
    return given;
  }

  bool admit(const known_key& key, const route& wanted) {
    if (key.expires_at && *key.expires_at <= core_->now_us())
      return refuse("auth.invalid", "The key has expired."), false;
    auto wait = key.limit->take(core_->settings.api_per_second, clock::now());
    if (wait.count() > 0) {
      add_header("Retry-After", std::to_string((wait.count() + 999) / 1000));
      return refuse("rate.limited", "This key sends more requests than it may."), false;
    }
    if (!(key.who->scopes & wanted.scopes)) {
      std::string needed;
      for (auto& one : wanted.doc.scopes)
        needed += (needed.empty() ? "" : " or ") + one;
      return refuse("auth.forbidden", "This needs a key with the scope " + needed + "."), false;
    }
    who = key.who;
    return true;
  }

  task<bool> authenticate(const route& wanted) {
    auto secret = bearer();
    if (secret.empty())
      co_return refuse("auth.required", "Send the key as Authorization: Bearer holt_…"), false;
    auto hash = sha256_hex(secret);
    if (auto known = core_->keys.find(hash, clock::now()))
      co_return admit(*known, wanted);
    auto ask = [core = core_, hash](auto reply) { core->parts.store->find_key(hash, std::move(reply)); };
    auto row = co_await answer_of<storage::store_result<storage::key_row>>(std::move(ask));
    if (!row) {
      if (row.error().code == storage::store_errc::not_found)
        co_return refuse("auth.invalid", "There is no such key."), false;
      add_header("Retry-After", "1");
      co_return refuse("storage.unavailable", "The key could not be looked up; try again."), false;
    }
    identity found{row->org_id, row->principal, row->id, 0};
    for (auto& one : row->scopes)
      found.scopes |= one == "use" ? scope_use : one == "manage" ? scope_manage : one == "operate" ? scope_operate : 0;
    co_return admit(core_->keys.put(hash, std::move(found), row->expires_at, clock::now()), wanted);
  }

  task<> serve(const route& wanted) {
    if (wanted.scopes != 0 && !co_await authenticate(wanted))
      co_return;
    std::exception_ptr failure;
    try {
      co_await wanted.run(*this);
    } catch (...) {
      failure = std::current_exception();
    }
    if (failure) {
      report(failure);
      waker_.reset();
      if (answer_ == answer_state::none)
        refuse("server.internal", "A fault of the server; its log has more under this request's id.");
      else
        cut();
    }
  }

  task<> run() {
    while (true) {
      begin_request();
      if (!co_await read_header())
        break;
      busy.store(true, std::memory_order_relaxed);
      core_->metrics.request_began();
      auto began = clock::now();
      const route* wanted = take_header() ? find_route() : nullptr;
      if (wanted) {
        route_index_ = wanted->index;
        if (wanted->run_plain)
          wanted->run_plain(*this);
        else
          co_await serve(*wanted);
      }
      if (answer_ == answer_state::none && broken_)
        status_ = client_closed; // cut before there was an answer
      else if (answer_ == answer_state::none)
        refuse("server.internal", "A fault of the server: the request was not answered.");
      if (answer_ == answer_state::whole) {
        answer_ = answer_state::finished;
        if (!flush_now())
          co_await flush();
      }
      waker_.reset();
      if (answer_ == answer_state::streaming)
        cut(); // whoever began it didn't end it
      ended(clock::now() - began);
      busy.store(false, std::memory_order_relaxed);
      if (!keep_alive_ || broken_)
        break;
      if (!body_done_)
        co_await drain_body();
      if (!keep_alive_ || broken_)
        break;
      // A large header or paste is rare: memory goes back.
      if (begin_ == end_ && buffer_.size() > 4 * small_buffer) {
        buffer_.resize(small_buffer);
        buffer_.shrink_to_fit();
        begin_ = end_ = 0;
      }
    }
    co_await linger_out();
  }

  void ended(clock::duration took) {
    core_->metrics.request_ended(route_index_, status_, took);
    if (status_ < 500 && !core_->settings.log_requests)
      return;
    using namespace protocols::json;
    object fields{{"request_id", request_id},
                  {"method", verb_name(method)},
                  {"route", route_index_ == metrics::no_route ? "none" : core_->routes.all()[route_index_]->doc.id},
                  {"status", status_},
                  {"duration_us", std::chrono::duration_cast<std::chrono::microseconds>(took).count()}};
    if (!trace_id.empty())
      fields["trace_id"] = trace_id;
    if (who)
      fields["org_id"] = who->org_id;
    core_->log(status_ >= 500 ? "warn" : "info", "http.request", write_text(fields));
  }

  /// Says that nothing more comes, and reads on for a moment: closing with unread bytes would reset the connection, and
  /// the client might lose the answer.
  task<> linger_out() {
    if (broken_ || closing_)
      co_return;
    boost::system::error_code error;
    socket_.shutdown(tcp_socket::shutdown_send, error);
    set_deadline(clock::now() + std::chrono::seconds{2});
    char dropped[4096];
    while (!error && !timed_out_)
      co_await socket_.async_read_some(asio::buffer(dropped), asio::redirect_error(use_task, error));
    clear_deadline();
  }

  std::shared_ptr<server_core> core_;
  executor strand_;
  tcp_socket socket_;
  std::atomic<std::int64_t> deadline_{never};
  std::optional<parser> parser_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  std::string out_;
  std::string headers_;
  std::vector<iovec> gather_;
  std::string checked_host_;
  std::shared_ptr<wakeup> waker_;
  std::uint64_t body_length_ = 0, body_left_ = 0;
  std::size_t written_ = 0;
  std::size_t route_index_ = metrics::no_route;
  unsigned status_ = 0;
  verb method_ = verb::get;
  answer_state answer_ = answer_state::none;
  bool chunked_ = false, body_done_ = true, expects_continue_ = false;
  bool chunked_answer_ = false, no_body_ = false;
  bool keep_alive_ = true, version_11_ = true;
  bool timed_out_ = false, closing_ = false;
  bool broken_ = false, client_left_ = false, watching_ = false;
};

} // namespace

std::shared_ptr<connection> connection::make(std::shared_ptr<server_core> core, asio::io_context& context, int descriptor) {
  return std::make_shared<tcp_connection>(std::move(core), context, descriptor);
}

} // namespace holt::runtime::http
