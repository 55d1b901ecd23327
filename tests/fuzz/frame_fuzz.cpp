// Any bytes, cut into any pieces: the decoder gives the same frames and the same error as for the whole, and each frame
// that it accepts is written back to the bytes that it came from.

#include <string>
#include <vector>

#include "protocols/frame.hpp"
#include "require.hpp"

namespace {

using namespace holt::protocols;

struct outcome {
  std::string written;
  std::vector<frame_header> headers;
  std::optional<frame_ec> error;
  bool operator==(const outcome&) const = default;
};

void drain(frame_decoder& decoder, outcome& out) {
  while (true) {
    const auto next = decoder.next();
    if (!next) {
      out.error = next.error();
      return;
    }
    if (!*next) {
      return;
    }
    const frame& one = **next;
    REQUIRE(one.payload.size() == one.header.length && one.payload.size() <= max_payload);
    REQUIRE(one.header.offset <= max_position - one.header.length);
    if (one.header.type == frame_type::window) {
      REQUIRE(window_consumed(one) <= one.header.offset);
    }
    append_frame(out.written, one.header, one.text());
    out.headers.push_back(one.header);
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  // The first byte decides the sizes of the pieces.
  std::uint32_t state = *data++ * 2654435761U + 1;
  const std::string_view input(reinterpret_cast<const char*>(data), --size);

  outcome whole;
  frame_decoder at_once;
  at_once.feed(bytes_of(input));
  drain(at_once, whole);
  REQUIRE(input.starts_with(whole.written));

  outcome cut;
  frame_decoder in_pieces;
  for (std::size_t at = 0; at < input.size() && !cut.error;) {
    state = state * 1664525U + 1013904223U;
    const std::size_t length = std::min<std::size_t>(1 + (state >> 16) % 40, input.size() - at);
    // A copy of its own, so that reading past the piece is seen.
    const std::vector<char> piece(input.begin() + static_cast<std::ptrdiff_t>(at),
                                  input.begin() + static_cast<std::ptrdiff_t>(at + length));
    in_pieces.feed(bytes_of({piece.data(), piece.size()}));
    drain(in_pieces, cut);
    REQUIRE(in_pieces.pending() <= frame_header_size + max_payload || cut.error);
    at += length;
  }
  REQUIRE(cut == whole);

  if (const auto message = decode_message(bytes_of(input))) {
    REQUIRE(whole.headers.size() == 1 && whole.written == input);
  }
  return 0;
}
