/// Any bytes are a .gitignore, and any glob list is accepted or refused.
#include <cstdint>
#include <string>
#include <string_view>

#include "agent/search/ignore.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace holt::agent::search;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  auto cut = text.rfind('\n');
  auto name = cut == text.npos ? text : text.substr(cut + 1);
  auto rules = rule_list::of_gitignore(text.substr(0, cut));
  (void)rules.of("some/directory", name, false);
  (void)rules.of("", name, true);
  if (auto globs = rule_list::of_globs({std::string(text.substr(0, cut)), "!" + std::string(name)}))
    (void)globs->of("some/directory", name, false);
  return 0;
}
