#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/describe/class.hpp>

#include "protocols/base64.hpp"
#include "protocols/json_read.hpp"
#include "protocols/json_rules.hpp"
#include "protocols/json_write.hpp"

/// What several of the API's requests and answers share (spec 91). The API document is generated from these structs.
/// Pure: any thread.
namespace holt::protocols::api {

/// Any bytes in JSON: `"text"`, or `{"b64": "…"}` where they are not UTF-8.
struct bytes {
  std::string data;
};

/// RFC 3339, UTC, milliseconds. Microseconds since 1970 inside.
std::string inline time_text(std::int64_t microseconds) {
  std::int64_t seconds = microseconds / 1000000;
  std::int64_t rest = microseconds % 1000000;
  if (rest < 0) {
    rest += 1000000;
    --seconds;
  }
  // Days to a civil date, after Howard Hinnant's published algorithm.
  std::int64_t days = seconds / 86400;
  std::int64_t of_day = seconds % 86400;
  if (of_day < 0) {
    of_day += 86400;
    --days;
  }
  days += 719468;
  const std::int64_t era = (days >= 0 ? days : days - 146096) / 146097;
  const auto day_of_era = static_cast<std::uint64_t>(days - era * 146097);
  const auto year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const auto day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const auto shifted = (5 * day_of_year + 2) / 153;
  const auto day = day_of_year - (153 * shifted + 2) / 5 + 1;
  const auto month = shifted < 10 ? shifted + 3 : shifted - 9;
  const auto year = static_cast<std::int64_t>(year_of_era) + era * 400 + (month <= 2 ? 1 : 0);
  char text[96];
  std::snprintf(text, sizeof text, "%04lld-%02d-%02dT%02d:%02d:%02d.%03dZ", static_cast<long long>(year),
                static_cast<int>(month), static_cast<int>(day), static_cast<int>(of_day / 3600),
                static_cast<int>(of_day / 60 % 60), static_cast<int>(of_day % 60), static_cast<int>(rest / 1000));
  return text;
}

/// A body that must be `{}` or absent.
struct empty_request {};
BOOST_DESCRIBE_STRUCT(empty_request, (), ())

/// Bytes [from, to) of a log that will never come.
struct missing_range {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
};
BOOST_DESCRIBE_STRUCT(missing_range, (), (from, to))

} // namespace holt::protocols::api

namespace holt::protocols::json {

template <>
struct custom<api::bytes> {
  static bool read(const value& in, api::bytes& out, const detail::place& at, detail::read_context& context) {
    if (in.is_string()) {
      out.data.assign(in.get_string().data(), in.get_string().size());
      return true;
    }
    if (in.is_object() && in.get_object().size() == 1) {
      if (const auto* text = in.get_object().if_contains("b64"); text != nullptr && text->is_string()) {
        if (auto decoded = base64_decode({text->get_string().data(), text->get_string().size()})) {
          out.data = std::move(*decoded);
          return true;
        }
        return detail::fail(context, at, "b64 must be padded base64 (RFC 4648 section 4)");
      }
    }
    return detail::fail(context, at, "must be a string, or {\"b64\": \"…\"} with base64");
  }
  static value to_value(const api::bytes& in) {
    return object{{"b64", base64_encode(in.data)}};
  }
  static value schema() {
    return object{
      {"oneOf",
       array{object{{"type", "string"}},
             object{{"type", "object"},
                    {"properties", object{{"b64", object{{"type", "string"}, {"contentEncoding", "base64"}}}}},
                    {"required", array{"b64"}},
                    {"additionalProperties", false}}}}};
  }
};

} // namespace holt::protocols::json
