#pragma once

#include <cstddef>
#include <string>
#include <string_view>

/// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
///
/// Pure: any thread. The stream decoder belongs to one stream at a time.
namespace holt::protocols::utf8 {

/// U+FFFD, which stands in for what was not UTF-8.
inline constexpr std::string_view replacement = "\xEF\xBF\xBD";

bool valid(std::string_view bytes);

/// Length of the longest prefix that does not end inside a character. Bytes that can't begin or continue a character
/// count as whole, so a prefix is at most 3 bytes shorter than `bytes`. For cutting text between characters (spec 38).
std::size_t complete_prefix(std::string_view bytes);

/// How many characters (code points). REQUIRES: valid(text).
std::size_t count(std::string_view text);

struct repaired {
  std::string text;
  /// Whether something had to be replaced.
  bool lossy = false;
};

/// Each longest piece of a broken character becomes one U+FFFD, as the WHATWG decoder does it.
repaired repair(std::string_view bytes);

/// Appends `bytes` to `out`, repaired. Returns whether something was replaced.
bool append_repaired(std::string& out, std::string_view bytes);

/// Text of a byte stream that arrives in pieces: a character that is cut by a piece's end waits for the next.
class stream_decoder {
public:
  /// Appends the text that is now certain. `lossy()` tells of replacements.
  void feed(std::string_view piece, std::string& out);
  /// The stream has ended: a character that is still open becomes U+FFFD.
  void finish(std::string& out);
  /// Whether anything was replaced since the beginning.
  bool lossy() const {
    return lossy_;
  }
  /// Bytes that wait for the rest of their character: 0 to 3.
  std::size_t pending() const {
    return pending_size_;
  }

private:
  char pending_[4] = {};
  std::size_t pending_size_ = 0;
  bool lossy_ = false;
};

} // namespace holt::protocols::utf8
