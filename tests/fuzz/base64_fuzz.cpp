// Every byte string survives, and a text that decodes is the only text of its bytes.

#include <cstdint>

#include "protocols/base64.hpp"
#include "require.hpp"

using namespace holt::protocols;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  REQUIRE(base64_decode(base64_encode(input)) == input);
  REQUIRE(base64url_decode(base64url_encode(input)) == input);
  REQUIRE(hex_decode(hex_encode(input)) == input);
  if (const auto bytes = base64_decode(input)) {
    REQUIRE(base64_encode(*bytes) == input);
  }
  if (const auto bytes = base64url_decode(input)) {
    REQUIRE(base64url_encode(*bytes) == input);
  }
  if (const auto bytes = hex_decode(input)) {
    REQUIRE(hex_encode(*bytes) == input);
  }
  return 0;
}
