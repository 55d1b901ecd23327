#include "protocols/json_write.hpp"

#include <cmath>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/string.hpp>

#include "protocols/utf8.hpp"

namespace holt::protocols::json {
namespace {

void append_escaped(std::string& out, std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::size_t done = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') {
      continue;
    }
    out.append(text.substr(done, i - done));
    done = i + 1;
    switch (c) {
    case '"':
      out += "\\\"";
      break;
    case '\\':
      out += "\\\\";
      break;
    case '\b':
      out += "\\b";
      break;
    case '\f':
      out += "\\f";
      break;
    case '\n':
      out += "\\n";
      break;
    case '\r':
      out += "\\r";
      break;
    case '\t':
      out += "\\t";
      break;
    default:
      out += "\\u00";
      out += digits[c >> 4];
      out += digits[c & 15];
    }
  }
  out.append(text.substr(done));
}

} // namespace

namespace detail {

void append_string(std::string& out, std::string_view text) {
  out += '"';
  if (utf8::valid(text)) {
    append_escaped(out, text);
  } else {
    append_escaped(out, utf8::repair(text).text);
  }
  out += '"';
}

void append_double(std::string& out, double number) {
  if (!std::isfinite(number)) {
    out += "null";
    return;
  }
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, number);
  const std::string_view text(digits, static_cast<std::size_t>(end.ptr - digits));
  out += text;
  // A double stays one when it is read again.
  if (text.find_first_of(".e") == std::string_view::npos) {
    out += ".0";
  }
}

void append_value(std::string& out, const value& json) {
  switch (json.kind()) {
  case boost::json::kind::null:
    out += "null";
    return;
  case boost::json::kind::bool_:
    out += json.get_bool() ? "true" : "false";
    return;
  case boost::json::kind::int64:
    append_integer(out, json.get_int64());
    return;
  case boost::json::kind::uint64:
    append_integer(out, json.get_uint64());
    return;
  case boost::json::kind::double_:
    append_double(out, json.get_double());
    return;
  case boost::json::kind::string:
    append_string(out, {json.get_string().data(), json.get_string().size()});
    return;
  case boost::json::kind::array: {
    out += '[';
    bool first = true;
    for (const value& item : json.get_array()) {
      if (!first) {
        out += ',';
      }
      append_value(out, item);
      first = false;
    }
    out += ']';
    return;
  }
  case boost::json::kind::object: {
    out += '{';
    bool first = true;
    for (const auto& item : json.get_object()) {
      if (!first) {
        out += ',';
      }
      append_string(out, {item.key().data(), item.key().size()});
      out += ':';
      append_value(out, item.value());
      first = false;
    }
    out += '}';
    return;
  }
  }
}

} // namespace detail

std::string write_text(const value& json) {
  std::string out;
  detail::append_value(out, json);
  return out;
}

} // namespace holt::protocols::json
