// Repairing always gives UTF-8 and leaves what was UTF-8 alone; a stream in any pieces gives the same text as the
// whole.

#include <algorithm>
#include <cstdint>

#include "protocols/utf8.hpp"
#include "require.hpp"

using namespace holt::protocols;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  std::uint32_t state = *data++ * 2654435761U + 1;
  const std::string_view input(reinterpret_cast<const char*>(data), --size);

  const auto whole = utf8::repair(input);
  REQUIRE(utf8::valid(whole.text));
  REQUIRE(whole.lossy == !utf8::valid(input));
  REQUIRE(whole.lossy || whole.text == input);

  utf8::stream_decoder decoder;
  std::string text;
  for (std::size_t at = 0; at < input.size();) {
    state = state * 1664525U + 1013904223U;
    const std::size_t length = std::min<std::size_t>((state >> 16) % 6, input.size() - at);
    const std::string piece(input.substr(at, length));
    decoder.feed(piece, text);
    REQUIRE(utf8::valid(text) && decoder.pending() <= 3);
    at += length;
  }
  decoder.finish(text);
  REQUIRE(text == whole.text && decoder.lossy() == whole.lossy);

  const std::size_t prefix = utf8::complete_prefix(input);
  REQUIRE(prefix <= input.size() && input.size() - prefix <= 3);
  if (!whole.lossy) {
    REQUIRE(prefix == input.size());
    REQUIRE(utf8::count(input) <= input.size());
    for (std::size_t cut = 0; cut <= std::min<std::size_t>(input.size(), 64); ++cut) {
      const std::string_view front = input.substr(0, cut);
      REQUIRE(utf8::valid(front.substr(0, utf8::complete_prefix(front))));
    }
  }
  return 0;
}
