#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Server-sent events (the event stream format of WHATWG HTML). Pure: any thread; a parser belongs to one stream.
namespace holt::protocols {

inline constexpr std::string_view sse_content_type = "text/event-stream";

struct sse_event {
  std::string event; // "" is "message"
  std::string data;  // any number of lines
  std::string id;    // "" when none was ever sent
  friend bool operator==(const sse_event&, const sse_event&) = default;
};

/// Appends one event as it stands on the wire. Lines of `data` may end in LF, CR LF or CR and arrive ended by LF.
/// A line end in `event` or `id`, or a NUL in `id`, can't be sent and is left out. An empty `id` is not sent.
void append_sse(std::string& out, std::string_view event, std::string_view data, std::string_view id = {});

/// Appends a comment, which clients skip: it keeps an idle connection alive.
void append_sse_comment(std::string& out, std::string_view text = {});

/// Appends the time after which a client that lost the stream should come back.
void append_sse_retry(std::string& out, std::uint32_t retry_ms);

/// Events out of a stream that arrives in pieces of any size.
class sse_parser {
public:
  /// A line or an event that is longer than this breaks the stream: the other side is not trusted to end it.
  explicit sse_parser(std::size_t max_event_bytes = 1024 * 1024) : max_event_bytes_(max_event_bytes) {
  }

  /// Appends the events that are now whole. false: the limit was passed, and the stream is unusable from here on.
  bool feed(std::string_view piece, std::vector<sse_event>& out);

  /// For `Last-Event-ID` when coming back; changes when the event that carries it is whole.
  const std::string& last_id() const {
    return last_id_;
  }
  std::optional<std::uint32_t> retry_ms() const {
    return retry_ms_;
  }

private:
  bool take_line(std::string_view line, std::vector<sse_event>& out);
  void take_field(std::string_view name, std::string_view text);

  std::size_t max_event_bytes_;
  std::string line_; // the beginning of a line that is not whole yet
  bool after_cr_ = false;
  bool first_line_ = true;
  bool broken_ = false;
  std::string event_;
  std::string data_;
  std::string id_;
  std::string last_id_;
  std::optional<std::uint32_t> retry_ms_;
};

} // namespace holt::protocols
