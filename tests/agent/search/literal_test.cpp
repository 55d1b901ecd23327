#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "agent/search/literal.hpp"

namespace holt::tests {
namespace {

using agent::search::literal_finder;

std::string lower(std::string text) {
  for (auto& c : text)
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return text;
}

TEST(literal_finder_test, finds_what_a_plain_search_finds) {
  std::mt19937 random(1);
  const std::string letters = "abAB_ \n@`{[";
  for (int round = 0; round < 20'000; ++round) {
    std::string text(random() % 300, ' ');
    for (auto& c : text)
      c = letters[random() % letters.size()];
    std::string needle(1 + random() % 5, ' ');
    for (auto& c : needle)
      c = letters[random() % letters.size()];
    auto from = random() % (text.size() + 1);
    ASSERT_EQ(literal_finder(needle, false).find(text, from), text.find(needle, from)) << needle << " in " << text;
    ASSERT_EQ(literal_finder(needle, true).find(text, from), lower(text).find(lower(needle), from)) << needle << " in " << text;
  }
}

TEST(literal_finder_test, every_place_in_a_long_text_is_seen) {
  for (std::size_t size : {1u, 15u, 16u, 31u, 63u, 64u, 65u, 200u})
    for (std::size_t at = 0; at + 3 <= size; ++at) {
      std::string text(size, 'x');
      text.replace(at, 3, "aQz");
      EXPECT_EQ(literal_finder("aQz", false).find(text), at);
      EXPECT_EQ(literal_finder("AqZ", true).find(text), at);
    }
}

} // namespace
} // namespace holt::tests
