#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/files/error.hpp"

namespace holt::agent::search {

/// A pattern for one name: `*` any bytes, `?` one character, `[a-z]` `[!a-z]` `[^a-z]` one of a set, `\x` x itself. A
/// character is a UTF-8 one where the bytes are UTF-8, else a byte. Time is at most the product of both lengths.
class name_pattern {
public:
  /// False: a `[` without its end, or a `\` at the end.
  static bool parse(std::string_view text, name_pattern& out);

  bool matches(std::string_view name) const;

private:
  enum class kind : std::uint8_t { exact, any, prefix, suffix, general };
  struct token {
    enum class type : std::uint8_t { byte, one, star, set } what;
    char byte = 0;
    bool negated = false;
    std::uint32_t first = 0; // of its ranges in ranges_
    std::uint32_t count = 0;
  };
  struct range {
    std::uint32_t from;
    std::uint32_t to;
  };

  /// Bytes taken from the front of `name`, 0 if the token doesn't match there.
  std::size_t step(const token& token, std::string_view name) const;

  kind kind_ = kind::exact;
  std::string text_; // exact, prefix or suffix
  std::vector<token> tokens_;
  std::vector<range> ranges_;
};

/// A pattern for a relative path. `**` as a whole component crosses directories (none, one or more), and at the end means
/// everything below. Pure; immutable once parsed: any thread.
class path_pattern {
public:
  struct options {
    bool braces = true; // `{a,b}` are alternatives; else braces are plain characters
    bool anywhere = false; // may begin in any directory, as if it began with `**/`
  };

  /// Error: search.invalid_glob. A leading slash is dropped; "." components are too. Braces give at most 1,000 alternatives.
  static files::result<path_pattern> parse(std::string_view text, options how);

  /// The path is given as its directory ("" at the base) and its last name.
  bool matches(std::string_view directory, std::string_view name) const;

  /// Whether something below this directory ("" is the base) can match.
  bool may_match_below(std::string_view directory) const;

private:
  struct segment {
    bool deep = false; // `**`
    name_pattern name;
  };
  using segments = std::vector<segment>;

  static bool match_directories(const segments& pattern, std::size_t count, std::string_view directory);

  std::vector<segments> alternatives_;
};

} // namespace holt::agent::search
