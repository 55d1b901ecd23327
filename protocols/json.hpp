#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <boost/json/value.hpp>
#include <tl/expected.hpp>

/// JSON in and out, from described structs (BOOST_DESCRIBE_STRUCT): one description gives reading, writing and schema.
///
/// Text becomes a boost::json::value in parse_text (simdjson in the server, Boost.JSON in the static agent; see
/// json_text_*.cpp); structs are read from and written to such values by json_read.hpp, json_write.hpp and
/// json_schema.hpp. Pure: any thread.
namespace holt::protocols::json {

using value = boost::json::value;
using object = boost::json::object;
using array = boost::json::array;

/// The sort of fault, which decides the problem that the caller gets.
enum class fault { invalid, unknown_field, malformed, too_large };

/// What was wrong, where, and what would be right.
struct error {
  /// JSON pointer of the place, "" for the whole text: "/limits/memory_bytes".
  std::string pointer;
  /// "must be a whole number, and is a string".
  std::string message;
  fault what = fault::invalid;
};

struct text_limits {
  /// Longest text accepted, in bytes.
  std::size_t max_bytes = 1024 * 1024;
  /// Deepest nesting accepted. The outermost value has depth 1.
  unsigned max_depth = 32;
};

/// Parses exactly one JSON value, in strict UTF-8. Duplicate keys are refused.
tl::expected<value, error> parse_text(std::string_view text, const text_limits& limits = {});

/// Compact JSON.
std::string write_text(const value& json);

/// Whether a field that the struct doesn't know is an error (the API) or skipped (the agent protocol).
enum class unknown_fields { refuse, ignore };

// In json_read.hpp:   template <class T> tl::expected<T, error> read(const value&, unknown_fields = refuse);
//                     template <class T> tl::expected<T, error> read_text(std::string_view, unknown_fields = refuse,
//                     text_limits = {});
// In json_write.hpp:  template <class T> value to_value(const T&);   an empty optional is left out
//                     template <class T> std::string write(const T&);
// In json_schema.hpp: template <class T> value schema();             JSON Schema 2020-12

} // namespace holt::protocols::json
