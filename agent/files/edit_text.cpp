#include "agent/files/edit_text.hpp"

#include <algorithm>
#include <cstring>

#include <boost/json/object.hpp>

namespace holt::agent::files {
namespace {

struct match {
  std::size_t at;
  bool crlf; // found with its line ends as CRLF
};

std::string with_crlf(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 16);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n' && (i == 0 || text[i - 1] != '\r'))
      out += '\r';
    out += text[i];
  }
  return out;
}

std::size_t index_of(std::string_view text, std::string_view what, std::size_t from) {
  if (from > text.size())
    return text.npos;
  auto hit = ::memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return hit == nullptr ? text.npos : static_cast<std::size_t>(static_cast<const char*>(hit) - text.data());
}

/// Places that don't overlap, from the left. Stops after `most`.
std::vector<match> find_all(std::string_view text, std::string_view what, bool crlf, std::size_t most) {
  std::vector<match> found;
  for (auto at = index_of(text, what, 0); at != text.npos && found.size() < most; at = index_of(text, what, at + what.size()))
    found.push_back({at, crlf});
  return found;
}

/// Whether the file's lines end in CRLF throughout.
bool is_crlf(std::string_view text) {
  bool any = false;
  for (auto at = index_of(text, "\n", 0); at != text.npos; at = index_of(text, "\n", at + 1)) {
    if (at == 0 || text[at - 1] != '\r')
      return false;
    any = true;
  }
  return any;
}

tl::unexpected<operation_error> refused(const char* code, std::string message, std::size_t index,
                                        std::size_t count = 0) {
  auto error = failure(code, std::move(message), "after_change");
  boost::json::object details;
  details["edit"] = index;
  if (count != 0)
    details["count"] = count;
  error.value().details = std::move(details);
  return error;
}

/// Of one edit; bounds the memory that a short old_text in a large file takes.
constexpr std::size_t most_replacements = 1'000'000;

struct planned {
  std::vector<match> matches;
  std::string old_crlf;
  std::string new_crlf;
};

/// Where an edit applies.
planned plan(std::string_view content, const protocols::agent::text_edit& edit) {
  constexpr auto all = most_replacements + 1;
  planned out;
  bool has_lf = edit.old_text.find('\n') != std::string::npos;
  bool adapts = edit.old_text.find('\r') == std::string::npos && edit.new_text.find('\r') == std::string::npos;
  out.new_crlf = edit.new_text;
  if (!has_lf) {
    // The match itself has no line end to go by: the file's own style decides, where it has one.
    bool crlf = adapts && edit.new_text.find('\n') != std::string::npos && is_crlf(content);
    out.matches = find_all(content, edit.old_text, crlf, all);
    out.old_crlf = edit.old_text;
    if (crlf)
      out.new_crlf = with_crlf(edit.new_text);
    return out;
  }
  out.matches = find_all(content, edit.old_text, false, all);
  bool old_adapts = edit.old_text.find('\r') == std::string::npos;
  if (!old_adapts)
    return out;
  out.old_crlf = with_crlf(edit.old_text);
  out.new_crlf = adapts ? with_crlf(edit.new_text) : edit.new_text;
  auto crlf = find_all(content, out.old_crlf, true, all);
  if (crlf.empty() && edit.old_text.front() != '\n')
    return out;
  // An old_text that begins with LF is also found inside its own CRLF match, and must not tear the two bytes apart.
  std::erase_if(out.matches, [&](const match& each) { return each.at > 0 && content[each.at] == '\n' && content[each.at - 1] == '\r'; });
  std::vector<match> merged;
  merged.reserve(out.matches.size() + crlf.size());
  std::merge(out.matches.begin(), out.matches.end(), crlf.begin(), crlf.end(), std::back_inserter(merged),
             [](const match& a, const match& b) { return a.at < b.at; });
  // The two kinds could overlap at their ends; the first one wins.
  std::size_t end = 0;
  std::erase_if(merged, [&](const match& each) {
    if (each.at < end)
      return true;
    end = each.at + (each.crlf ? out.old_crlf : edit.old_text).size();
    return false;
  });
  out.matches = std::move(merged);
  return out;
}

} // namespace

result<edited_text> apply_edits(std::string content, const std::vector<protocols::agent::text_edit>& edits,
                                std::size_t max_bytes) {
  edited_text out;
  out.content = std::move(content);
  for (std::size_t index = 0; index < edits.size(); ++index) {
    const auto& edit = edits[index];
    if (edit.old_text.empty())
      return refused("edit.invalid", "old_text is empty", index);
    auto planned = plan(out.content, edit);
    const auto& matches = planned.matches;
    if (matches.empty())
      return refused("edit.no_match", "old_text of edit " + std::to_string(index + 1) + " is not in the file", index);
    auto old_size = [&](const match& each) { return each.crlf ? planned.old_crlf.size() : edit.old_text.size(); };
    if (!edit.all) {
      // "aa" occurs twice in "aaa", though only one of the two could be replaced.
      auto count = matches.size();
      const auto& first = matches.front();
      if (count == 1 && index_of(out.content, first.crlf ? planned.old_crlf : edit.old_text, first.at + 1) != std::string::npos)
        count = 2;
      if (count > 1)
        return refused("edit.several_matches",
                       "old_text of edit " + std::to_string(index + 1) + " is in the file " + std::to_string(count) +
                           " times; give more of its surroundings, or set all",
                       index, count);
    }
    if (matches.size() > most_replacements)
      return refused("edit.invalid", "old_text is in the file more than 1000000 times", index);
    std::size_t size = out.content.size();
    for (const auto& each : matches)
      size = size - old_size(each) + (each.crlf ? planned.new_crlf : edit.new_text).size();
    if (size > max_bytes)
      return refused("file.too_large",
                     "the file would be larger than " + std::to_string(max_bytes) + " bytes after edit " +
                         std::to_string(index + 1),
                     index);
    std::string next;
    next.reserve(size);
    std::size_t from = 0;
    for (const auto& each : matches) {
      next.append(out.content, from, each.at - from);
      next += each.crlf ? planned.new_crlf : edit.new_text;
      from = each.at + old_size(each);
    }
    next.append(out.content, from);
    out.content = std::move(next);
    out.replacements += static_cast<std::uint32_t>(matches.size());
  }
  return out;
}

} // namespace holt::agent::files
