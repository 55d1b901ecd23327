// Messages from an agent or to it, in any shape: they are read or refused with words, and what was read survives the
// way.

#include "protocols/control.hpp"
#include "protocols/json_canonical.hpp"
#include "protocols/utf8.hpp"
#include "require.hpp"

namespace {

using namespace holt::protocols;

template <class T>
void check(const json::value& in) {
  for (const auto unknown : {json::unknown_fields::ignore, json::unknown_fields::refuse}) {
    const auto read = json::read<T>(in, unknown);
    if (!read) {
      REQUIRE(!read.error().message.empty());
      REQUIRE(read.error().pointer.empty() || read.error().pointer.front() == '/');
      REQUIRE(utf8::valid(read.error().message));
      continue;
    }
    const std::string text = json::write(*read);
    const auto value = json::parse_text(text, {.max_bytes = text.size(), .max_depth = 64});
    REQUIRE(value && json::canonical(*value) == json::canonical(json::to_value(*read)));
    const auto again = json::read<T>(*value);
    REQUIRE(again && json::write(*again) == text);
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto in = parse_control({reinterpret_cast<const char*>(data), size});
  if (!in) {
    return 0;
  }
  check<agent::hello>(*in);
  check<agent::op_start>(*in);
  check<agent::op_result>(*in);
  check<agent::process_start>(*in);
  check<agent::process_state>(*in);
  check<agent::file_edit>(*in);
  check<agent::file_stat_result>(*in);
  check<agent::grep_record>(*in);
  return 0;
}
