#include "agent/search/line_matcher.hpp"

#include <algorithm>
#include <cstring>

#include <re2/filtered_re2.h>
#include <re2/re2.h>

namespace holt::agent::search {
namespace {

/// More alternatives cost more to look for than RE2's own scan.
constexpr std::size_t most_literals = 6;
constexpr std::size_t most_atoms = 64;
constexpr std::size_t longest_pattern = 64 * 1024;

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

/// Whether letters of the pattern may match in other cases, or be written so that we don't see which they are.
bool may_fold(std::string_view pattern) {
  if (!is_ascii(pattern))
    return true;
  for (std::size_t i = 0; i + 1 < pattern.size(); ++i) {
    if (pattern[i] == '(' && pattern[i + 1] == '?')
      return true; // (?i), (?s-i:…): not worth telling apart
    if (pattern[i] == '\\' && (pattern[i + 1] == 'x' || pattern[i + 1] == 'p' || pattern[i + 1] == 'P'))
      return true;
  }
  return false;
}

/// The longest part of an atom (lower case, as RE2 gives them) that every text it stands for has, up to the case of ASCII
/// letters. Outside ASCII, case is more than one bit, and the letters k and s have relatives there (KELVIN SIGN, LONG S).
std::string safe_part(std::string_view atom, bool folds) {
  std::string_view best;
  std::size_t from = 0;
  for (std::size_t i = 0; i <= atom.size(); ++i) {
    bool safe = i < atom.size() && static_cast<unsigned char>(atom[i]) < 0x80 &&
                !(folds && (atom[i] == 'k' || atom[i] == 's'));
    if (safe)
      continue;
    if (i - from > best.size())
      best = atom.substr(from, i - from);
    from = i + 1;
  }
  return std::string(best);
}

/// A line end in the pattern itself, outside of a class.
bool wants_line_end(std::string_view pattern, bool literal) {
  if (pattern.find('\n') != pattern.npos)
    return true;
  if (literal)
    return false;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      if (++i < pattern.size() && pattern[i] == 'n' && !in_class)
        return true;
    } else if (pattern[i] == '[' && !in_class) {
      in_class = true;
      if (i + 1 < pattern.size() && pattern[i + 1] == '^')
        ++i;
      if (i + 1 < pattern.size() && pattern[i + 1] == ']')
        ++i;
    } else if (pattern[i] == ']') {
      in_class = false;
    }
  }
  return false;
}

tl::unexpected<files::operation_error> invalid(std::string why) {
  return files::failure("search.invalid_pattern", std::move(why), "after_change");
}

RE2::Options options_of(const protocols::agent::search_grep& arguments) {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_case_sensitive(!arguments.ignore_case);
  // Classes such as \s and [^x] match a line end in RE2. A match that isn't to leave its line must not.
  options.set_never_nl(!arguments.multiline);
  return options;
}

} // namespace

line_matcher::line_matcher() = default;
line_matcher::line_matcher(line_matcher&&) noexcept = default;
line_matcher::~line_matcher() = default;

files::result<line_matcher> line_matcher::compile(const protocols::agent::search_grep& arguments) {
  const auto& pattern = arguments.pattern;
  if (pattern.size() > longest_pattern)
    return invalid("the pattern is longer than 65536 bytes");
  if (!arguments.multiline && wants_line_end(pattern, arguments.literal))
    return invalid("the pattern has a line end, which only a multiline search can match");

  line_matcher out;
  out.multiline_ = arguments.multiline;
  bool folds = arguments.ignore_case;
  if (arguments.literal && !pattern.empty()) {
    // Case beyond ASCII is RE2's business.
    bool exact = !folds || (is_ascii(pattern) && pattern.find_first_of("kKsS") == pattern.npos);
    if (exact) {
      out.literals_.emplace_back(pattern, folds);
      return out;
    }
  }
  auto source = arguments.literal ? RE2::QuoteMeta(pattern) : pattern;
  auto options = options_of(arguments);
  // Parsed alone first: "a)(b" must not become a pattern by what is put around it.
  auto alone = std::make_unique<RE2>(source, options);
  if (!alone->ok())
    return invalid("not a valid regular expression: " + alone->error());
  out.regex_ = std::make_unique<RE2>("(?m:" + source + ")", options);
  if (!out.regex_->ok())
    return invalid("not a valid regular expression: " + out.regex_->error());
  out.find_required(source, folds || may_fold(source));
  return out;
}

void line_matcher::find_required(std::string_view pattern, bool folds) {
  re2::FilteredRE2 filter(2);
  int id = 0;
  if (filter.Add(re2::StringPiece(pattern.data(), pattern.size()), regex_->options(), &id) != RE2::NoError)
    return;
  std::vector<std::string> atoms;
  filter.Compile(&atoms);
  if (atoms.empty() || atoms.size() > most_atoms)
    return;
  std::vector<int> potential;
  auto may_match_with = [&](const std::vector<int>& present) {
    potential.clear();
    filter.AllPotentials(present, &potential);
    return !potential.empty();
  };

  // An atom without which nothing matches is enough alone; the longest one is likely the rarest.
  std::string best;
  for (std::size_t i = 0; i < atoms.size(); ++i) {
    std::vector<int> others;
    for (std::size_t k = 0; k < atoms.size(); ++k)
      if (k != i)
        others.push_back(static_cast<int>(k));
    if (may_match_with(others))
      continue;
    auto part = safe_part(atoms[i], folds);
    if (part.size() > best.size())
      best = std::move(part);
  }
  if (best.size() >= 2) {
    literals_.emplace_back(std::move(best), true);
    return;
  }
  // Else one of them all.
  if (atoms.size() > most_literals || may_match_with({}))
    return;
  std::vector<literal_finder> all;
  for (const auto& atom : atoms) {
    auto part = safe_part(atom, folds);
    if (part.size() < 2)
      return;
    all.emplace_back(std::move(part), true);
  }
  literals_ = std::move(all);
}

bool line_matcher::find(std::string_view text, std::size_t from, match& out) const {
  if (!regex_) {
    auto at = literals_.front().find(text, from);
    out = {at, literals_.front().size()};
    return at != text.npos;
  }
  if (literals_.empty())
    return find_regex(text, from, text.size(), out);
  if (!multiline_)
    return find_line(text, from, out);
  // A match may begin anywhere before its literal: without any, there is no match; else RE2 looks.
  for (const auto& literal : literals_)
    if (literal.find(text, from) != text.npos)
      return find_regex(text, from, text.size(), out);
  return false;
}

bool line_matcher::find_line(std::string_view text, std::size_t from, match& out) const {
  std::size_t next[most_literals];
  std::fill(next, next + literals_.size(), std::size_t{0});
  std::size_t tried = 0;
  const std::size_t begin = from;
  bool first = true;
  while (from < text.size()) {
    auto at = text.npos;
    for (std::size_t i = 0; i < literals_.size(); ++i) {
      if (first || next[i] < from)
        next[i] = literals_[i].find(text, from);
      at = std::min(at, next[i]);
    }
    first = false;
    if (at == text.npos)
      return false;
    auto line = from;
    if (auto before = static_cast<const char*>(::memrchr(text.data() + from, '\n', at - from)))
      line = static_cast<std::size_t>(before - text.data()) + 1;
    auto after = static_cast<const char*>(std::memchr(text.data() + at, '\n', text.size() - at));
    auto end = after == nullptr ? text.size() : static_cast<std::size_t>(after - text.data());
    if (find_regex(text.substr(0, end), line, end, out))
      return true;
    from = end + 1;
    // A literal that is on every other line tells nothing: then RE2's own scan is faster.
    if (++tried > 32 && tried * 160 > from - begin)
      return from < text.size() && find_regex(text, from, text.size(), out);
  }
  return false;
}

bool line_matcher::find_regex(std::string_view text, std::size_t from, std::size_t to, match& out) const {
  if (from > to)
    return false;
  re2::StringPiece found;
  if (!regex_->Match(re2::StringPiece(text.data(), text.size()), from, to, RE2::UNANCHORED, &found, 1))
    return false;
  out = {static_cast<std::size_t>(found.data() - text.data()), found.size()};
  return true;
}

bool line_matcher::find_in_piece(std::string_view text, std::size_t from, std::size_t to, match& out) const {
  if (regex_)
    return find_regex(text, from, to, out);
  auto at = literals_.front().find(text.substr(0, to), from);
  out = {at, literals_.front().size()};
  return at != text.npos;
}

} // namespace holt::agent::search
