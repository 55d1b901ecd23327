#include "runtime/cli/sse_parser.hpp"

#include <utility>

namespace holt::runtime::cli {

namespace {
constexpr std::size_t longest_event = 4 * 1024 * 1024;
}

std::vector<sse_event> sse_parser::feed(std::string_view bytes) {
  std::vector<sse_event> events;
  while (!bytes.empty() && !too_long_) {
    if (after_cr_ && bytes.front() == '\n') { // CR LF is one end of line, also when it comes in two pieces
      bytes.remove_prefix(1);
      after_cr_ = false;
      continue;
    }
    after_cr_ = false;
    auto end = bytes.find_first_of("\r\n");
    auto part = bytes.substr(0, end);
    if (line_.size() + data_.size() + part.size() > longest_event) {
      too_long_ = true;
      break;
    }
    if (end == std::string_view::npos) {
      line_ += part;
      break;
    }
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (line_.empty()) {
      take_line(part, events);
    } else {
      line_ += part;
      take_line(line_, events);
      line_.clear();
    }
  }
  return events;
}

void sse_parser::take_line(std::string_view line, std::vector<sse_event>& events) {
  if (std::exchange(first_line_, false) && line.starts_with("\xEF\xBB\xBF"))
    line.remove_prefix(3);
  if (line.empty()) {
    if (has_data_)
      events.push_back({id_, type_.empty() ? "message" : type_, std::move(data_)});
    type_.clear();
    data_.clear();
    has_data_ = false;
    return;
  }
  auto colon = line.find(':');
  auto field = line.substr(0, colon);
  auto value = colon == std::string_view::npos ? std::string_view{} : line.substr(colon + 1);
  if (value.starts_with(' '))
    value.remove_prefix(1);
  if (field == "data") {
    if (std::exchange(has_data_, true))
      data_ += '\n';
    data_ += value;
  } else if (field == "event") {
    type_ = value;
  } else if (field == "id" && value.find('\0') == std::string_view::npos) {
    id_ = value;
  } // an empty field is a comment (the server's sign of life); others are for later versions
}

} // namespace holt::runtime::cli
