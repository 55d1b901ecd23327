#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace holt::agent::search {

/// Finds one byte string in others, fast: compares its two rarest bytes (by how source and text use bytes) at 16 or 32
/// places at once, and the rest only where both fit. Immutable: any thread.
class literal_finder {
public:
  /// `fold`: ASCII letters match in either case. REQUIRES: a needle that isn't empty.
  literal_finder(std::string needle, bool fold);

  /// The first place at or after `from`, or npos.
  std::size_t find(std::string_view text, std::size_t from = 0) const;

  std::size_t size() const {
    return needle_.size();
  }

private:
  bool equal(const char* text) const;
  const char* find_plain(const char* at, const char* end) const;
#if defined(__x86_64__)
  const char* find_16(const char* at, const char* end) const;
  const char* find_32(const char* at, const char* end) const;
#endif

  std::string needle_; // lower case when folding
  bool fold_;
  std::size_t first_ = 0; // offsets of the two bytes that are looked for
  std::size_t second_ = 0;
};

} // namespace holt::agent::search
