#pragma once

#include "protocols/json.hpp"

namespace holt::protocols::json::detail {

/// What simdjson makes of the text by itself. `number_range`: it has a number that simdjson has no type for. For
/// parse_text and its fuzzer.
enum class simdjson_verdict { good, refused, number_range, duplicate, too_deep };
struct simdjson_result {
  simdjson_verdict verdict;
  value json{};
};
simdjson_result parse_with_simdjson(std::string_view text, unsigned max_depth);

} // namespace holt::protocols::json::detail
