#include "protocols/json_text_parser.hpp"

namespace holt::protocols::json {

tl::expected<value, error> parse_text(std::string_view text, const text_limits& limits) {
  return detail::parse_with_boost(text, limits);
}

} // namespace holt::protocols::json
