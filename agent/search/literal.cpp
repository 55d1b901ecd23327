#include "agent/search/literal.hpp"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace holt::agent::search {
namespace {

constexpr bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
constexpr char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
}

/// How common a byte is in sources and text: only the order matters.
int frequency(char c, bool fold) {
  constexpr std::string_view common = " etaoinrslcdu_phmfg\n\t.,;()-0*/=\"1:2>xbyvw<&3{}[]4#'58+679kSETRAICDNLOPq\\jzMU";
  auto place = common.find(c);
  int value = place == common.npos ? (static_cast<unsigned char>(c) >= 0x80 ? 10 : c == 0 ? 30 : 8)
                                   : 100 - static_cast<int>(place);
  // Both cases match when folding.
  if (fold && is_letter(c))
    value += 4;
  return value;
}

} // namespace

literal_finder::literal_finder(std::string needle, bool fold) : needle_(std::move(needle)), fold_(fold) {
  bool letters = false;
  for (auto& c : needle_) {
    letters |= is_letter(c);
    if (fold_)
      c = lower(c);
  }
  fold_ = fold_ && letters;
  auto rarer = [&](std::size_t a, std::size_t b) { return frequency(needle_[a], fold_) < frequency(needle_[b], fold_); };
  for (std::size_t i = 1; i < needle_.size(); ++i)
    if (rarer(i, first_))
      first_ = i;
  second_ = needle_.size() > 1 && first_ == 0 ? 1 : 0;
  for (std::size_t i = 0; i < needle_.size(); ++i)
    // Another byte than the first, if there is one: the same byte twice tells less.
    if (i != first_ && (needle_[second_] == needle_[first_] || (needle_[i] != needle_[first_] && rarer(i, second_))))
      second_ = i;
}

bool literal_finder::equal(const char* text) const {
  if (!fold_)
    return std::memcmp(text, needle_.data(), needle_.size()) == 0;
  for (std::size_t i = 0; i < needle_.size(); ++i)
    if (lower(text[i]) != needle_[i])
      return false;
  return true;
}

const char* literal_finder::find_plain(const char* at, const char* end) const {
  // `end` is past the last place where the needle could begin.
  const char wanted = needle_[first_];
  if (!fold_) {
    while (at < end) {
      auto hit = static_cast<const char*>(std::memchr(at + first_, wanted, static_cast<std::size_t>(end - at)));
      if (hit == nullptr)
        return nullptr;
      at = hit - first_;
      if (equal(at))
        return at;
      ++at;
    }
    return nullptr;
  }
  for (; at < end; ++at)
    if (lower(at[first_]) == wanted && equal(at))
      return at;
  return nullptr;
}

#if defined(__x86_64__)

const char* literal_finder::find_16(const char* at, const char* end) const {
  auto mask = [&](std::size_t i) { return _mm_set1_epi8(fold_ && is_letter(needle_[i]) ? 0x20 : 0); };
  const auto first = _mm_set1_epi8(needle_[first_]);
  const auto second = _mm_set1_epi8(needle_[second_]);
  const auto first_mask = mask(first_);
  const auto second_mask = mask(second_);
  for (; end - at >= 16; at += 16) {
    auto a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + first_));
    auto b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + second_));
    auto both = _mm_and_si128(_mm_cmpeq_epi8(_mm_or_si128(a, first_mask), first),
                              _mm_cmpeq_epi8(_mm_or_si128(b, second_mask), second));
    for (auto bits = static_cast<unsigned>(_mm_movemask_epi8(both)); bits != 0; bits &= bits - 1)
      if (auto place = at + __builtin_ctz(bits); equal(place))
        return place;
  }
  return find_plain(at, end);
}

__attribute__((target("avx2"))) const char* literal_finder::find_32(const char* at, const char* end) const {
  const auto first = _mm256_set1_epi8(needle_[first_]);
  const auto second = _mm256_set1_epi8(needle_[second_]);
  const auto first_mask = _mm256_set1_epi8(fold_ && is_letter(needle_[first_]) ? 0x20 : 0);
  const auto second_mask = _mm256_set1_epi8(fold_ && is_letter(needle_[second_]) ? 0x20 : 0);
  for (; end - at >= 64; at += 64) {
    auto a0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + first_));
    auto b0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + second_));
    auto a1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + first_ + 32));
    auto b1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + second_ + 32));
    auto both0 = _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_or_si256(a0, first_mask), first),
                                  _mm256_cmpeq_epi8(_mm256_or_si256(b0, second_mask), second));
    auto both1 = _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_or_si256(a1, first_mask), first),
                                  _mm256_cmpeq_epi8(_mm256_or_si256(b1, second_mask), second));
    auto either = _mm256_or_si256(both0, both1);
    if (_mm256_testz_si256(either, either))
      continue;
    auto bits = static_cast<unsigned long long>(static_cast<unsigned>(_mm256_movemask_epi8(both0))) |
                static_cast<unsigned long long>(static_cast<unsigned>(_mm256_movemask_epi8(both1))) << 32;
    for (; bits != 0; bits &= bits - 1)
      if (auto place = at + __builtin_ctzll(bits); equal(place))
        return place;
  }
  return find_16(at, end);
}

#endif

std::size_t literal_finder::find(std::string_view text, std::size_t from) const {
  if (from > text.size() || text.size() - from < needle_.size())
    return text.npos;
  const char* at = text.data() + from;
  const char* end = text.data() + text.size() - needle_.size() + 1;
#if defined(__x86_64__)
  static const bool wide = __builtin_cpu_supports("avx2");
  const char* hit = wide ? find_32(at, end) : find_16(at, end);
#else
  const char* hit = find_plain(at, end);
#endif
  return hit == nullptr ? text.npos : static_cast<std::size_t>(hit - text.data());
}

} // namespace holt::agent::search
