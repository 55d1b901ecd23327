/// No pattern, and no path beside it, may crash the parser, hang the matcher or make pruning lose a match.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "agent/search/pattern.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using holt::agent::search::path_pattern;
  if (size < 2)
    return 0;
  std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  auto cut = text.find('\n');
  auto pattern = path_pattern::parse(text.substr(0, cut), {(data[0] & 1) != 0, (data[0] & 2) != 0});
  if (!pattern || cut == text.npos)
    return 0;
  auto path = text.substr(cut + 1);
  auto slash = path.rfind('/');
  auto directory = slash == path.npos ? std::string_view() : path.substr(0, slash);
  bool clean = directory.find("//") == directory.npos && !directory.starts_with('/') && !directory.ends_with('/');
  bool found = pattern->matches(directory, slash == path.npos ? path : path.substr(slash + 1));
  if (found && clean && !pattern->may_match_below(directory))
    std::abort();
  return 0;
}
