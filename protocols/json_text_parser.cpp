#include "protocols/json_text_parser.hpp"

#include <charconv>
#include <cmath>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/object.hpp>
#include <boost/json/string.hpp>

namespace holt::protocols::json::detail {
namespace {

/// Builds the value from the parser's events. Not Boost's own builder, since that keeps the last of duplicate keys
/// silently, and its doubles may be off in the last digit.
struct builder {
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);
  using code = boost::json::error_code;
  using text = boost::json::string_view;

  struct level {
    bool is_object;
    std::size_t index = 0;
    std::string key{};
  };

  unsigned max_depth;
  std::vector<value> values{};
  std::vector<std::string> keys{};
  std::vector<level> levels{};
  std::string pending{};
  std::string number{};
  error failure{};

  // An error code of ours only stops the parser; `failure` says what it was.
  bool stop(code& ec, error what) {
    failure = std::move(what);
    ec = boost::json::make_error_code(boost::json::error::exception);
    return false;
  }

  std::string pointer() const {
    std::string out;
    for (std::size_t i = 0; i + 1 < levels.size(); ++i) {
      out += '/';
      if (!levels[i].is_object) {
        out += std::to_string(levels[i].index);
        continue;
      }
      for (const char c : levels[i].key) {
        if (c == '~') {
          out += "~0";
        } else if (c == '/') {
          out += "~1";
        } else {
          out += c;
        }
      }
    }
    return out;
  }

  bool begin(bool is_object, code& ec) {
    if (levels.size() >= max_depth) {
      return stop(ec, too_deep(max_depth));
    }
    levels.push_back({is_object});
    return true;
  }

  void add(value item) {
    values.push_back(std::move(item));
    if (!levels.empty()) {
      ++levels.back().index;
    }
  }

  bool on_document_begin(code&) {
    return true;
  }
  bool on_document_end(code&) {
    return true;
  }
  bool on_array_begin(code& ec) {
    return begin(false, ec);
  }
  bool on_array_end(std::size_t n, code&) {
    array items;
    items.reserve(n);
    for (std::size_t i = values.size() - n; i < values.size(); ++i) {
      items.push_back(std::move(values[i]));
    }
    values.resize(values.size() - n);
    levels.pop_back();
    add(std::move(items));
    return true;
  }
  bool on_object_begin(code& ec) {
    return begin(true, ec);
  }
  bool on_object_end(std::size_t n, code& ec) {
    object fields;
    fields.reserve(n);
    for (std::size_t i = 0; i < n; ++i) {
      const std::string& key = keys[keys.size() - n + i];
      if (!fields.emplace(key, std::move(values[values.size() - n + i])).second) {
        return stop(ec, duplicate_key(pointer(), key));
      }
    }
    values.resize(values.size() - n);
    keys.resize(keys.size() - n);
    levels.pop_back();
    add(std::move(fields));
    return true;
  }
  bool on_string_part(text part, std::size_t, code&) {
    pending.append(part.data(), part.size());
    return true;
  }
  bool on_string(text part, std::size_t, code&) {
    pending.append(part.data(), part.size());
    add(value(boost::json::string(pending)));
    pending.clear();
    return true;
  }
  bool on_key_part(text part, std::size_t, code&) {
    pending.append(part.data(), part.size());
    return true;
  }
  bool on_key(text part, std::size_t, code&) {
    pending.append(part.data(), part.size());
    levels.back().key = pending;
    keys.push_back(std::move(pending));
    pending.clear();
    return true;
  }
  bool on_number_part(text part, code&) {
    number.append(part.data(), part.size());
    return true;
  }
  bool on_int64(std::int64_t n, text, code&) {
    number.clear();
    add(n);
    return true;
  }
  bool on_uint64(std::uint64_t n, text, code&) {
    number.clear();
    add(n);
    return true;
  }
  bool on_double(double approximate, text part, code& ec) {
    number.append(part.data(), part.size());
    double n = 0;
    const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), n);
    if (problem == std::errc::result_out_of_range) {
      // Too small is as good as 0; too large is no number that anyone could use.
      n = std::abs(approximate) < 1 ? 0.0 : HUGE_VAL;
    }
    if (!std::isfinite(n)) {
      return stop(ec, {"", "has a number that is too large: " + number.substr(0, 32), fault::malformed});
    }
    number.clear();
    add(n);
    return true;
  }
  bool on_bool(bool b, code&) {
    add(b);
    return true;
  }
  bool on_null(code&) {
    add(nullptr);
    return true;
  }
  bool on_comment_part(text, code&) {
    return true;
  }
  bool on_comment(text, code&) {
    return true;
  }
};

std::string position_of(std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, std::min(at, text.size()));
  std::size_t line = 1;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i] == '\n') {
      ++line;
      begin = i + 1;
    }
  }
  return "line " + std::to_string(line) + ", column " + std::to_string(before.size() - begin + 1);
}

error not_json(std::string_view text, std::size_t at, const boost::json::error_code& ec) {
  using boost::json::error;
  std::string what;
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return {"", "must be one JSON value, and is empty", fault::malformed};
  }
  if (ec == error::incomplete || at >= text.size()) {
    what = "it ends too early";
  } else if (ec == error::extra_data) {
    what = "more follows after the value";
  } else if (ec == error::illegal_leading_surrogate || ec == error::illegal_trailing_surrogate
             || ec == error::expected_hex_digit || ec == error::expected_utf16_escape) {
    what = "a \\u escape is not a character";
  } else if (ec == error::exponent_overflow) {
    what = std::string(exponent_too_large);
  } else if (at < text.size() && static_cast<unsigned char>(text[at]) >= 0x80) {
    what = "bytes that are not valid UTF-8, or a character outside a string";
  } else {
    what = "this is not what JSON has here";
  }
  return {"", "must be one JSON value in UTF-8: at " + position_of(text, at) + ", " + what, fault::malformed};
}

} // namespace

error too_long(std::size_t found, std::size_t limit) {
  return {"", "has " + std::to_string(found) + " bytes; at most " + std::to_string(limit) + " are accepted",
          fault::too_large};
}

error too_deep(unsigned limit) {
  return {"", "is nested too deeply; at most " + std::to_string(limit) + " levels are accepted", fault::malformed};
}

error duplicate_key(std::string pointer_of_object, std::string_view key) {
  return {std::move(pointer_of_object), "has the key '" + std::string(key.substr(0, 64)) + "' more than once",
          fault::malformed};
}

tl::expected<value, error> parse_with_boost(std::string_view text, const text_limits& limits) {
  if (text.size() > limits.max_bytes) {
    return tl::unexpected(too_long(text.size(), limits.max_bytes));
  }
  boost::json::parse_options options;
  options.max_depth = limits.max_depth + 1; // the builder refuses first, with its own words
  boost::json::basic_parser<builder> parser(options, builder{limits.max_depth});
  boost::json::error_code ec;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (ec) {
    error& own = parser.handler().failure;
    return tl::unexpected(own.message.empty() ? not_json(text, used, ec) : std::move(own));
  }
  if (used < text.size()) {
    return tl::unexpected(not_json(text, used, boost::json::make_error_code(boost::json::error::extra_data)));
  }
  return std::move(parser.handler().values.front());
}

} // namespace holt::protocols::json::detail
