#pragma once

#include "protocols/json.hpp"

namespace holt::protocols::json::detail {

/// parse_text over Boost.JSON's parser: the whole of it in the agent; in the server it explains what simdjson refused,
/// with line and column, and reads the whole numbers that simdjson doesn't (beyond 64 bits, as doubles).
tl::expected<value, error> parse_with_boost(std::string_view text, const text_limits& limits);

/// The one point in which the parsers differ: an exponent beyond 32 bits is refused here, and simdjson makes 0 of the
/// number where it is 0 or negative enough. No such number passes from one to the other, since both write 0.
inline constexpr std::string_view exponent_too_large = "a number's exponent is too large";

/// The refusals that both parsers share, so that they read the same.
error too_long(std::size_t found, std::size_t limit);
error too_deep(unsigned limit);
error duplicate_key(std::string pointer_of_object, std::string_view key);

} // namespace holt::protocols::json::detail
