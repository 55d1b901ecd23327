#include "protocols/sse.hpp"

#include <charconv>
#include <utility>

namespace holt::protocols {
namespace {

constexpr std::string_view line_ends = "\r\n";

void append_clean(std::string& out, std::string_view text, std::string_view without) {
  for (const char c : text) {
    if (without.find(c) == std::string_view::npos) {
      out += c;
    }
  }
}

/// Takes the first line off `text`, with its end.
std::string_view cut_line(std::string_view& text) {
  const std::size_t end = text.find_first_of(line_ends);
  if (end == std::string_view::npos) {
    return std::exchange(text, std::string_view{});
  }
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + (text.substr(end).starts_with("\r\n") ? 2 : 1));
  return line;
}

} // namespace

void append_sse(std::string& out, std::string_view event, std::string_view data, std::string_view id) {
  if (!id.empty()) {
    out += "id: ";
    append_clean(out, id, std::string_view("\r\n\0", 3));
    out += '\n';
  }
  if (!event.empty()) {
    out += "event: ";
    append_clean(out, event, line_ends);
    out += '\n';
  }
  const bool ends_with_line_end = !data.empty() && line_ends.find(data.back()) != std::string_view::npos;
  do {
    out += "data: ";
    out += cut_line(data);
    out += '\n';
  } while (!data.empty());
  if (ends_with_line_end) {
    out += "data: \n"; // the line end at the end is data too
  }
  out += '\n';
}

void append_sse_comment(std::string& out, std::string_view text) {
  out += ": ";
  append_clean(out, text, line_ends);
  out += "\n\n";
}

void append_sse_retry(std::string& out, std::uint32_t retry_ms) {
  out += "retry: " + std::to_string(retry_ms) + "\n\n";
}

bool sse_parser::feed(std::string_view piece, std::vector<sse_event>& out) {
  while (!broken_ && !piece.empty()) {
    if (after_cr_ && piece.front() == '\n') {
      piece.remove_prefix(1);
    }
    after_cr_ = false;
    const std::size_t end = piece.find_first_of(line_ends);
    const std::string_view part = piece.substr(0, end);
    if (line_.size() + part.size() > max_event_bytes_) {
      broken_ = true;
      break;
    }
    if (end == std::string_view::npos) {
      line_ += part;
      break;
    }
    after_cr_ = piece[end] == '\r';
    piece.remove_prefix(end + 1);
    if (line_.empty()) {
      broken_ = !take_line(part, out);
    } else {
      line_ += part;
      broken_ = !take_line(line_, out);
      line_.clear();
    }
  }
  return !broken_;
}

bool sse_parser::take_line(std::string_view line, std::vector<sse_event>& out) {
  if (std::exchange(first_line_, false) && line.starts_with("\xEF\xBB\xBF")) {
    line.remove_prefix(3);
  }
  if (line.empty()) {
    last_id_ = id_;
    if (!data_.empty()) {
      data_.pop_back(); // the line end after the last line
      out.push_back({std::move(event_), std::move(data_), last_id_});
    }
    event_.clear();
    data_.clear();
    return true;
  }
  const std::size_t colon = line.find(':');
  std::string_view text = colon == std::string_view::npos ? std::string_view{} : line.substr(colon + 1);
  if (text.starts_with(' ')) {
    text.remove_prefix(1);
  }
  take_field(line.substr(0, colon), text); // a comment is a field without a name
  return data_.size() <= max_event_bytes_;
}

void sse_parser::take_field(std::string_view name, std::string_view text) {
  if (name == "data") {
    data_ += text;
    data_ += '\n';
  } else if (name == "event") {
    event_ = text;
  } else if (name == "id") {
    if (text.find('\0') == std::string_view::npos) {
      id_ = text;
    }
  } else if (name == "retry") {
    std::uint32_t number = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (problem == std::errc{} && end == text.data() + text.size()) {
      retry_ms_ = number;
    }
  }
}

} // namespace holt::protocols
