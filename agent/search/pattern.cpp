#include "agent/search/pattern.hpp"

#include <algorithm>
#include <cstring>

namespace holt::agent::search {
namespace {

constexpr std::size_t most_alternatives = 1000;
constexpr std::size_t longest_pattern = 64 * 1024; // also after braces were taken apart

/// Length of the character at the front, and its code point; a byte that is no UTF-8 is a character of its own, beyond
/// all code points.
std::size_t decode(std::string_view text, std::uint32_t& code) {
  auto lead = static_cast<unsigned char>(text[0]);
  std::size_t length = lead < 0x80 ? 1 : lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
  if (length == 1) {
    code = lead;
    return 1;
  }
  if (length != 0 && length <= text.size()) {
    std::uint32_t value = lead & (0xffu >> (length + 1));
    bool good = true;
    for (std::size_t i = 1; i < length; ++i) {
      auto byte = static_cast<unsigned char>(text[i]);
      good &= (byte & 0xc0) == 0x80;
      value = value << 6 | (byte & 0x3f);
    }
    if (good) {
      code = value;
      return length;
    }
  }
  code = 0x110000u + lead;
  return 1;
}

tl::unexpected<files::operation_error> invalid(std::string_view pattern, const char* why) {
  return files::failure("search.invalid_glob", std::string(why) + ": " + files::printable(pattern), "after_change");
}

/// The end of a `[…]` that begins at `at` (past its bracket), or npos.
std::size_t end_of_set(std::string_view text, std::size_t at) {
  std::size_t i = at + 1;
  if (i < text.size() && (text[i] == '!' || text[i] == '^'))
    ++i;
  if (i < text.size() && text[i] == ']')
    ++i;
  for (; i < text.size(); ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == ']')
      return i + 1;
    else if (text[i] == '/')
      break;
  }
  return text.npos;
}

/// Takes the first braces of `text` apart into whole patterns. Returns null or what is wrong.
const char* expand(std::string text, std::vector<std::string>& out, std::size_t& bytes) {
  std::vector<std::string> pending;
  pending.push_back(std::move(text));
  while (!pending.empty()) {
    auto current = std::move(pending.back());
    pending.pop_back();
    std::size_t open = current.npos;
    std::size_t close = current.npos;
    std::vector<std::size_t> cuts;
    int depth = 0;
    for (std::size_t i = 0; i < current.size() && close == current.npos; ++i) {
      switch (current[i]) {
      case '\\':
        ++i;
        break;
      case '[':
        if (auto end = end_of_set(current, i); end != current.npos)
          i = end - 1;
        break;
      case '{':
        if (depth++ == 0)
          open = i;
        break;
      case ',':
        if (depth == 1)
          cuts.push_back(i);
        break;
      case '}':
        if (depth == 0)
          return "a } without its {";
        if (--depth == 0)
          close = i;
        break;
      }
    }
    if (open == current.npos) {
      bytes += current.size();
      out.push_back(std::move(current));
      if (out.size() > most_alternatives || bytes > longest_pattern)
        return "too many alternatives in braces";
      continue;
    }
    if (close == current.npos)
      return "a { without its }";
    cuts.push_back(close);
    if (pending.size() + out.size() + cuts.size() > most_alternatives)
      return "too many alternatives in braces";
    // Last one first, so that the alternatives come out in their order.
    for (std::size_t i = cuts.size(); i-- > 0;) {
      auto from = i == 0 ? open + 1 : cuts[i - 1] + 1;
      pending.push_back(current.substr(0, open) + current.substr(from, cuts[i] - from) + current.substr(close + 1));
      // Nested and repeated braces multiply before they are whole patterns.
      bytes += pending.back().size() / 16;
      if (bytes > longest_pattern)
        return "too many alternatives in braces";
    }
  }
  return nullptr;
}

} // namespace

bool name_pattern::parse(std::string_view text, name_pattern& out) {
  out = {};
  for (std::size_t i = 0; i < text.size(); ++i) {
    token next{};
    switch (text[i]) {
    case '*':
      if (!out.tokens_.empty() && out.tokens_.back().what == token::type::star)
        continue;
      next.what = token::type::star;
      break;
    case '?':
      next.what = token::type::one;
      break;
    case '[': {
      auto end = end_of_set(text, i);
      if (end == text.npos)
        return false;
      next.what = token::type::set;
      next.first = static_cast<std::uint32_t>(out.ranges_.size());
      auto inside = text.substr(i + 1, end - i - 2);
      if (!inside.empty() && (inside[0] == '!' || inside[0] == '^')) {
        next.negated = true;
        inside.remove_prefix(1);
      }
      auto take = [&](std::uint32_t& code) {
        if (inside.size() > 1 && inside[0] == '\\')
          inside.remove_prefix(1);
        inside.remove_prefix(decode(inside, code));
      };
      while (!inside.empty()) {
        range each{};
        take(each.from);
        each.to = each.from;
        if (inside.size() >= 2 && inside[0] == '-') {
          inside.remove_prefix(1);
          take(each.to);
        }
        out.ranges_.push_back(each);
      }
      next.count = static_cast<std::uint32_t>(out.ranges_.size()) - next.first;
      i = end - 1;
      break;
    }
    case '\\':
      if (++i == text.size())
        return false;
      [[fallthrough]];
    default:
      next.what = token::type::byte;
      next.byte = text[i];
    }
    out.tokens_.push_back(next);
  }

  // Most patterns in use are a name, "*.ext" or "name*": compare those as bytes.
  auto& tokens = out.tokens_;
  auto stars = std::count_if(tokens.begin(), tokens.end(), [](auto& each) { return each.what == token::type::star; });
  auto bytes = std::count_if(tokens.begin(), tokens.end(), [](auto& each) { return each.what == token::type::byte; });
  auto size = static_cast<std::ptrdiff_t>(tokens.size());
  if (stars + bytes != size || stars > 1) {
    out.kind_ = kind::general;
    return true;
  }
  for (auto& each : tokens)
    if (each.what == token::type::byte)
      out.text_ += each.byte;
  if (stars == 0)
    out.kind_ = kind::exact;
  else if (bytes == 0)
    out.kind_ = kind::any;
  else if (tokens.front().what == token::type::star)
    out.kind_ = kind::suffix;
  else if (tokens.back().what == token::type::star)
    out.kind_ = kind::prefix;
  else {
    out.kind_ = kind::general;
    return true;
  }
  tokens.clear();
  tokens.shrink_to_fit();
  return true;
}

std::size_t name_pattern::step(const token& token, std::string_view name) const {
  if (name.empty())
    return 0;
  if (token.what == token::type::byte)
    return name[0] == token.byte ? 1 : 0;
  std::uint32_t code = 0;
  auto length = decode(name, code);
  if (token.what == token::type::one)
    return length;
  bool in = false;
  for (std::uint32_t i = 0; i < token.count && !in; ++i) {
    const auto& each = ranges_[token.first + i];
    in = code >= each.from && code <= each.to;
  }
  return in != token.negated ? length : 0;
}

bool name_pattern::matches(std::string_view name) const {
  switch (kind_) {
  case kind::exact:
    return name == text_;
  case kind::any:
    return true;
  case kind::prefix:
    return name.starts_with(text_);
  case kind::suffix:
    return name.ends_with(text_);
  case kind::general:
    break;
  }
  // When something after a star doesn't fit, only the last star has to take more: never more than product time.
  std::size_t at = 0;
  std::size_t token = 0;
  std::size_t star = tokens_.size();
  std::size_t star_at = 0;
  while (at < name.size() || token < tokens_.size()) {
    if (token < tokens_.size()) {
      if (tokens_[token].what == token::type::star) {
        star = token++;
        star_at = at;
        continue;
      }
      if (auto taken = step(tokens_[token], name.substr(at)); taken != 0) {
        at += taken;
        ++token;
        continue;
      }
    }
    if (star == tokens_.size() || star_at >= name.size())
      return false;
    std::uint32_t code = 0;
    star_at += decode(name.substr(star_at), code);
    at = star_at;
    token = star + 1;
  }
  return true;
}

files::result<path_pattern> path_pattern::parse(std::string_view text, options how) {
  if (text.empty())
    return invalid(text, "the pattern is empty");
  if (text.size() > longest_pattern / 16)
    return invalid(text, "the pattern is longer than 4096 bytes");
  if (text.find('\0') != text.npos)
    return invalid(text, "the pattern has a NUL byte");
  std::vector<std::string> plain;
  std::size_t bytes = 0;
  if (how.braces) {
    if (auto wrong = expand(std::string(text), plain, bytes))
      return invalid(text, wrong);
  } else {
    plain.emplace_back(text);
  }

  path_pattern out;
  for (const auto& each : plain) {
    segments parsed;
    if (how.anywhere)
      parsed.push_back({true, {}});
    for (std::size_t at = 0; at <= each.size();) {
      // A slash inside a set ends the name all the same: names have none.
      auto end = std::min(each.find('/', at), each.size());
      auto component = std::string_view(each).substr(at, end - at);
      at = end + 1;
      if (component.empty() || component == ".")
        continue;
      if (component == "..")
        return invalid(text, "\"..\" in a pattern");
      if (component == "**") {
        if (parsed.empty() || !parsed.back().deep)
          parsed.push_back({true, {}});
        continue;
      }
      segment next;
      if (!name_pattern::parse(component, next.name))
        return invalid(text, "a [ without its ], or a \\ with nothing behind it");
      parsed.push_back(std::move(next));
    }
    if (parsed.empty())
      continue; // "{,x}" alone: the base itself, which is nothing below it
    if (parsed.back().deep) {
      segment any;
      name_pattern::parse("*", any.name);
      parsed.push_back(std::move(any));
    }
    out.alternatives_.push_back(std::move(parsed));
  }
  return out;
}

bool path_pattern::match_directories(const segments& pattern, std::size_t count, std::string_view directory) {
  std::size_t at = 0;
  std::size_t index = 0;
  std::size_t deep = count;
  std::size_t deep_at = 0;
  auto component_end = [&](std::size_t from) { return std::min(directory.find('/', from), directory.size()); };
  while (at < directory.size() || index < count) {
    if (index < count) {
      if (pattern[index].deep) {
        deep = index++;
        deep_at = at;
        continue;
      }
      if (at < directory.size()) {
        auto end = component_end(at);
        if (pattern[index].name.matches(directory.substr(at, end - at))) {
          at = end + 1;
          ++index;
          continue;
        }
      }
    }
    if (deep == count || deep_at >= directory.size())
      return false;
    deep_at = component_end(deep_at) + 1;
    at = deep_at;
    index = deep + 1;
  }
  return true;
}

bool path_pattern::matches(std::string_view directory, std::string_view name) const {
  for (const auto& each : alternatives_)
    if (each.back().name.matches(name) && match_directories(each, each.size() - 1, directory))
      return true;
  return false;
}

bool path_pattern::may_match_below(std::string_view directory) const {
  for (const auto& each : alternatives_) {
    std::size_t at = 0;
    std::size_t index = 0;
    bool fits = true;
    while (fits && at < directory.size() && !each[index].deep) {
      auto end = std::min(directory.find('/', at), directory.size());
      // The last segment is the entry's own name: a directory there has nothing below it that matches.
      fits = index + 1 < each.size() && each[index].name.matches(directory.substr(at, end - at));
      ++index;
      at = end + 1;
    }
    if (fits)
      return true;
  }
  return false;
}

} // namespace holt::agent::search
