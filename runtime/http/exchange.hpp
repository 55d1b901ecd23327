#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <tl/expected.hpp>

#include "protocols/json_read.hpp"
#include "protocols/json_write.hpp"
#include "protocols/problem.hpp"
#include "runtime/http/io.hpp"

/// One request and its answer, as handlers see them. On the connection's strand only; owned by the connection.
namespace holt::runtime::http {

class server_core;

enum class verb : std::uint8_t { get, head, post, put, patch, del, options, other };

/// What a key may do (spec 93).
enum scope : std::uint8_t { scope_use = 1, scope_manage = 2, scope_operate = 4 };

struct identity {
  std::string org_id;
  std::string principal;
  std::string key_id;
  std::uint8_t scopes = 0;
};

/// What follows `?`, decoded. A name given twice is a mistake, and the first counts.
class query_values {
public:
  explicit query_values(std::string_view query);
  const std::string* find(std::string_view name) const;
  const std::vector<std::pair<std::string, std::string>>& all() const {
    return values_;
  }

private:
  std::vector<std::pair<std::string, std::string>> values_;
};

/// %XX to bytes; nullopt for a broken escape. `plus` makes + a space, as forms do.
std::optional<std::string> percent_decode(std::string_view text, bool plus = false);

/// A WebSocket that has been accepted. One reader and one writer at a time.
class web_socket {
public:
  struct message {
    bool text = false;
    std::string data;
  };
  virtual ~web_socket() = default;
  /// nullopt: closed.
  virtual task<std::optional<message>> read() = 0;
  virtual task<bool> write(bool text, std::vector<asio::const_buffer> buffers) = 0;
  virtual task<> close(std::uint16_t code, std::string reason) = 0;
  /// Breaks off what runs.
  virtual void cut() = 0;
};

class exchange {
public:
  virtual ~exchange() = default;

  // -- asked: views hold until the handler ends --

  verb method = verb::get;
  std::string_view path;  // as sent, still with escapes
  std::string_view query; // likewise
  std::array<std::string_view, 4> params;
  std::shared_ptr<const identity> who; // null on open routes
  std::string request_id;
  std::string trace_id; // of W3C traceparent, or empty

  /// "" when it isn't there.
  virtual std::string_view header(std::string_view name) const = 0;
  /// How often it is there.
  virtual std::size_t count(std::string_view name) const = 0;
  virtual server_core& core() = 0;
  virtual executor home() = 0;

  // -- the body --

  virtual bool has_body() const = 0;
  virtual std::optional<std::uint64_t> content_length() const = 0; // nullopt: chunked
  /// All of it. The error is to be answered as it is.
  virtual task<tl::expected<std::string, protocols::problem>> read_body(std::uint64_t limit) = 0;
  /// Up to `size` bytes; 0 at the end, −1 when the client broke off or sent what is no body.
  virtual task<std::ptrdiff_t> read_some(char* into, std::size_t size) = 0;

  // -- the answer: either answer(), or begin/write/finish --

  virtual void answer(unsigned status, std::string_view content_type, std::string body) = 0;
  /// A header of the answer, before answer() or begin().
  virtual void add_header(std::string_view name, std::string_view value) = 0;
  virtual bool answered() const = 0;
  /// Streams: with `length` plain, else chunked. All of them false when the client has gone.
  virtual task<bool> begin(unsigned status, std::string_view content_type, std::optional<std::uint64_t> length) = 0;
  virtual task<bool> write(std::span<const asio::const_buffer> buffers) = 0;
  /// `trailers` are whole lines.
  virtual task<bool> finish(std::string_view trailers = {}) = 0;
  /// The stream can't be made whole: the connection is cut, so that nobody takes it for whole (spec 39).
  virtual void cut() = 0;

  /// Whom to wake when this connection is cut; null when nobody waits any more.
  virtual void set_waker(std::shared_ptr<wakeup> waker) = 0;
  /// From now on the waker is also notified when the client closes its side; client_left() then says so. It may have
  /// closed only its sending half, and still read.
  virtual void watch_client() = 0;
  virtual bool client_left() const = 0;
  /// Nothing can be written any more.
  virtual bool broken() const = 0;
  /// The server is stopping and asks streams to end.
  virtual bool stopping() const = 0;

  /// nullptr: refused, and answered.
  virtual task<std::shared_ptr<web_socket>> upgrade() = 0;

  // -- shorthands --

  template <class T>
  void answer_json(unsigned status, const T& body) {
    answer(status, "application/json", protocols::json::write(body));
  }
  void refuse(const protocols::problem& problem);
  void refuse(std::string_view code, std::string detail);
  /// One thing wrong with what was sent: details [{pointer, message}].
  void refuse_field(std::string_view pointer, std::string message, std::string_view code = "request.invalid");
  bool accepts(std::string_view media_type) const;

  /// The JSON body as T, with an absent body as `{}`. nullopt: refused, and answered.
  template <class T>
  task<std::optional<T>> read_json() {
    auto value = co_await read_json_value();
    if (!value)
      co_return std::nullopt;
    auto read = protocols::json::read<T>(*value);
    if (!read) {
      refuse(protocols::make_problem(read.error()));
      co_return std::nullopt;
    }
    co_return std::move(*read);
  }
  task<std::optional<protocols::json::value>> read_json_value();
};

} // namespace holt::runtime::http
