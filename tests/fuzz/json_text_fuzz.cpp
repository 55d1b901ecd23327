// Both parsers accept the same texts with the same values; what is accepted is written as a text that reads as the
// same.

#include <cmath>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "protocols/json.hpp"
#include "protocols/json_canonical.hpp"
#include "protocols/json_text_parser.hpp"
#include "protocols/json_text_simdjson.hpp"
#include "protocols/utf8.hpp"
#include "require.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace holt::protocols;
  using namespace holt::protocols::json;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const text_limits limits{.max_bytes = 64 * 1024, .max_depth = 16};

  const auto boost = detail::parse_with_boost(text, limits);
  if (!boost && boost.error().message.ends_with(detail::exponent_too_large)) {
    return 0;
  }
  if (size <= limits.max_bytes) {
    const auto simd = detail::parse_with_simdjson(text, limits.max_depth);
    switch (simd.verdict) {
    case detail::simdjson_verdict::good:
      REQUIRE(boost && canonical(*boost) == canonical(simd.json));
      break;
    case detail::simdjson_verdict::number_range:
      // Boost decides: a whole number beyond 64 bits is read, anything else refused.
      break;
    case detail::simdjson_verdict::refused:
    case detail::simdjson_verdict::duplicate:
    case detail::simdjson_verdict::too_deep:
      REQUIRE(!boost);
      break;
    }
  }
  const auto read = parse_text(text, limits);
  REQUIRE(read.has_value() == boost.has_value());
  if (!read) {
    REQUIRE(!read.error().message.empty());
    return 0;
  }
  REQUIRE(utf8::valid(text));
  const std::string written = write_text(*read);
  REQUIRE(utf8::valid(written));
  const auto again = parse_text(written, {.max_bytes = written.size(), .max_depth = limits.max_depth});
  REQUIRE(again && *again == *read);
  REQUIRE(write_text(*again) == written);
  return 0;
}
