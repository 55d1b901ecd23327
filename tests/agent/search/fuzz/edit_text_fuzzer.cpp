/// An edit changes what it matched and nothing else: what lies before the first and behind the last match stays.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "agent/files/edit_text.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace holt::agent::files;
  if (size < 3)
    return 0;
  std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  auto a = std::min<std::size_t>(data[0], text.size());
  auto b = std::min<std::size_t>(data[1], text.size() - a);
  holt::protocols::agent::text_edit edit;
  edit.old_text = text.substr(0, a);
  edit.new_text = text.substr(a, b);
  edit.all = (data[2] & 1) != 0;
  std::string content(text.substr(a + b));
  auto done = apply_edits(content, {edit}, 1024 * 1024);
  if (!done)
    return 0;
  if (done->replacements == 0 || (!edit.all && done->replacements != 1))
    std::abort();
  if (edit.old_text == edit.new_text && edit.old_text.find('\n') == std::string::npos && done->content != content)
    std::abort();
  if (!edit.all) {
    // One place: a common beginning and a common end cover all but it.
    std::size_t begin = 0;
    while (begin < content.size() && begin < done->content.size() && content[begin] == done->content[begin])
      ++begin;
    std::size_t end = 0;
    while (end < content.size() - begin && end < done->content.size() - begin &&
           content[content.size() - 1 - end] == done->content[done->content.size() - 1 - end])
      ++end;
    if (content.size() - begin - end > 2 * edit.old_text.size())
      std::abort();
  }
  return 0;
}
