#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// Reads a stream of server-sent events (WHATWG HTML, 9.2.6) from pieces of any size. Pure; one thread.
namespace holt::runtime::cli {

struct sse_event {
  std::string id; // of this event, or the last one before it that had any
  std::string type = "message";
  std::string data;
};

class sse_parser {
public:
  /// Takes the next bytes; answers the events that they complete. An event that the stream's end cuts off is never
  /// answered. After too_long() nothing more is answered.
  std::vector<sse_event> feed(std::string_view bytes);

  /// A line or an event was over the limit (4 MiB): the stream can't be trusted any more.
  bool too_long() const {
    return too_long_;
  }

private:
  void take_line(std::string_view line, std::vector<sse_event>& events);

  std::string line_;
  bool after_cr_ = false;
  bool first_line_ = true;
  std::string id_;
  std::string type_;
  std::string data_;
  bool has_data_ = false;
  bool too_long_ = false;
};

} // namespace holt::runtime::cli
