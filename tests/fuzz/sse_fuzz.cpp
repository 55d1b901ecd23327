// Any stream cut into any pieces gives the same events; what is written is read back as it was.

#include "protocols/sse.hpp"
#include "require.hpp"

using namespace holt::protocols;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  std::uint32_t state = *data++ * 2654435761U + 1;
  const std::string_view input(reinterpret_cast<const char*>(data), --size);

  sse_parser at_once(1000);
  std::vector<sse_event> whole;
  const bool good = at_once.feed(input, whole);

  sse_parser in_pieces(1000);
  std::vector<sse_event> cut;
  bool cut_good = true;
  for (std::size_t at = 0; at < input.size() && cut_good;) {
    state = state * 1664525U + 1013904223U;
    const std::size_t length = std::min<std::size_t>(1 + (state >> 16) % 20, input.size() - at);
    const std::string piece(input.substr(at, length));
    cut_good = in_pieces.feed(piece, cut);
    at += length;
  }
  REQUIRE(cut == whole && cut_good == good);

  std::string wire;
  for (const sse_event& event : whole) {
    append_sse(wire, event.event, event.data, event.id);
  }
  sse_parser again(10000);
  std::vector<sse_event> back;
  REQUIRE(again.feed(wire, back) && back.size() == whole.size());
  for (std::size_t i = 0; i < back.size(); ++i) {
    REQUIRE(back[i].event == whole[i].event && back[i].data == whole[i].data);
    REQUIRE(whole[i].id.empty() || back[i].id == whole[i].id);
  }

  // Any data at all: only the kind of its line ends may change.
  wire.clear();
  append_sse(wire, input, input, input);
  append_sse_comment(wire, input);
  sse_parser any(10 * wire.size() + 100);
  back.clear();
  REQUIRE(any.feed(wire, back) && back.size() == 1);
  return 0;
}
