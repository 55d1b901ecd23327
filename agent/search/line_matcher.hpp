#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "agent/files/error.hpp"
#include "agent/search/literal.hpp"

namespace re2 {
class RE2;
}

namespace holt::agent::search {

/// The pattern of one search, made ready: finds matches in a buffer of many lines at once rather than line by line.
///
/// Where RE2 says that every match must contain one of a few strings, those are looked for first, and RE2 sees only the
/// lines that have one. Immutable: any thread.
class line_matcher {
public:
  /// Errors: search.invalid_pattern, with RE2's own words.
  static files::result<line_matcher> compile(const protocols::agent::search_grep& arguments);
  line_matcher(line_matcher&&) noexcept;
  ~line_matcher();

  struct match {
    std::size_t at = 0;
    std::size_t size = 0;
  };

  /// The first match that begins at or after `from`. REQUIRES: `from` and the text's beginning are beginnings of lines.
  bool find(std::string_view text, std::size_t from, match& out) const;

  /// As find, in a piece of one long line, which it may neither begin nor end with: `^` and `$` see the neighbours
  /// that lie in `text` outside [from, to).
  bool find_in_piece(std::string_view text, std::size_t from, std::size_t to, match& out) const;

private:
  line_matcher();

  bool find_line(std::string_view text, std::size_t from, match& out) const;
  bool find_regex(std::string_view text, std::size_t from, std::size_t to, match& out) const;
  void find_required(std::string_view pattern, bool folds);

  std::unique_ptr<re2::RE2> regex_; // none for a pattern that is its literal
  std::vector<literal_finder> literals_; // one of them is in every match; the pattern itself without regex_
  bool multiline_ = false;
};

} // namespace holt::agent::search
