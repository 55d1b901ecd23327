// A text that is an id is the only text of its kind and bytes.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "protocols/ids.hpp"
#include "require.hpp"

using namespace holt::protocols;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (const auto kind = kind_of_id(input)) {
    const auto bytes = parse_id(*kind, input);
    REQUIRE(bytes && format_id(*kind, *bytes) == input && is_op_id(input));
  }
  if (is_op_id(input)) {
    REQUIRE(input.find_first_of(":/ \n%?#") == std::string_view::npos && input.size() <= max_op_id_length);
  }
  id_bytes bytes{};
  std::memcpy(bytes.data(), data, std::min(size, bytes.size()));
  for (int i = 0; i <= static_cast<int>(id_kind::request); ++i) {
    const auto kind = static_cast<id_kind>(i);
    const std::string text = format_id(kind, bytes);
    REQUIRE(parse_id(kind, text) == bytes && kind_of_id(text) == kind);
  }
  return 0;
}
