#include <gtest/gtest.h>

#include "agent/search/pattern.hpp"

namespace holt::tests {
namespace {

using namespace agent::search;

bool matches(const std::string& pattern, const std::string& path, path_pattern::options how = {}) {
  auto parsed = path_pattern::parse(pattern, how);
  EXPECT_TRUE(parsed) << pattern << ": " << parsed.error().message;
  if (!parsed)
    return false;
  auto slash = path.rfind('/');
  auto directory = slash == path.npos ? "" : path.substr(0, slash);
  bool found = parsed->matches(directory, slash == path.npos ? path : path.substr(slash + 1));
  // Pruning must never lose a match.
  for (std::size_t at = directory.size(); found && at != 0;) {
    EXPECT_TRUE(parsed->may_match_below(directory.substr(0, at))) << pattern << " " << path;
    at = directory.rfind('/', at - 1) == directory.npos ? 0 : directory.rfind('/', at - 1);
  }
  return found;
}

TEST(path_pattern_test, stars_stay_within_a_name) {
  EXPECT_TRUE(matches("*.h", "a.h"));
  EXPECT_FALSE(matches("*.h", "d/a.h"));
  EXPECT_TRUE(matches("*/a.h", "d/a.h"));
  EXPECT_TRUE(matches("a*b*c", "axxbyyc"));
  EXPECT_FALSE(matches("a*b*c", "axxbyy"));
  EXPECT_TRUE(matches("*", ".hidden"));
  EXPECT_TRUE(matches("a**b", "axb"));
}

TEST(path_pattern_test, two_stars_cross_directories) {
  EXPECT_TRUE(matches("**/a.h", "a.h"));
  EXPECT_TRUE(matches("**/a.h", "x/y/a.h"));
  EXPECT_TRUE(matches("x/**/a.h", "x/a.h"));
  EXPECT_TRUE(matches("x/**/a.h", "x/y/z/a.h"));
  EXPECT_FALSE(matches("x/**/a.h", "y/x/a.h"));
  EXPECT_TRUE(matches("**/x/**/*.c", "a/x/b/x/c/d.c"));
  EXPECT_TRUE(matches("x/**", "x/y/z"));
  EXPECT_FALSE(matches("x/**", "x"));
  EXPECT_TRUE(matches("**", "a/b"));
  EXPECT_TRUE(matches("**/**/a", "a"));
}

TEST(path_pattern_test, one_character_is_a_character_not_a_byte) {
  EXPECT_TRUE(matches("a?c", "abc"));
  EXPECT_TRUE(matches("a?c", "a\xc3\xa4" "c"));
  EXPECT_TRUE(matches("a?c", "a\xff" "c"));
  EXPECT_FALSE(matches("a?c", "ac"));
  EXPECT_TRUE(matches("[a-c]x", "bx"));
  EXPECT_FALSE(matches("[!a-c]x", "bx"));
  EXPECT_TRUE(matches("[^a-c]x", "dx"));
  EXPECT_TRUE(matches("[]]", "]"));
  EXPECT_TRUE(matches("[a-]", "-"));
  EXPECT_TRUE(matches("[\xc3\xa4-\xc3\xb6]", "\xc3\xa5"));
  EXPECT_TRUE(matches("\\*", "*"));
  EXPECT_FALSE(matches("\\*", "a"));
}

TEST(path_pattern_test, braces_are_alternatives) {
  EXPECT_TRUE(matches("*.{h,cpp}", "a.h"));
  EXPECT_TRUE(matches("*.{h,cpp}", "a.cpp"));
  EXPECT_FALSE(matches("*.{h,cpp}", "a.c"));
  EXPECT_TRUE(matches("{a,b/{c,d}}/x", "b/d/x"));
  EXPECT_TRUE(matches("a{,b}", "a"));
  EXPECT_TRUE(matches("[{]a", "{a"));
  EXPECT_TRUE(matches("\\{a\\}", "{a}"));
  EXPECT_TRUE(matches("{a}", "{a}", {false, false}));
}

TEST(path_pattern_test, what_is_no_pattern_is_refused_in_words) {
  for (auto pattern : {"", "[a", "{a", "a}", "a\\", "../x", "a/../b"}) {
    auto parsed = path_pattern::parse(pattern, {});
    ASSERT_FALSE(parsed) << pattern;
    EXPECT_EQ(parsed.error().code, "search.invalid_glob");
  }
  EXPECT_FALSE(path_pattern::parse("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", {}));
  EXPECT_FALSE(path_pattern::parse(std::string(5000, 'a'), {}));
}

TEST(path_pattern_test, no_pattern_takes_exponential_time) {
  std::string pattern;
  for (int i = 0; i < 100; ++i)
    pattern += "*a";
  EXPECT_FALSE(matches(pattern + "b", std::string(200, 'a')));
  std::string deep;
  std::string path;
  for (int i = 0; i < 50; ++i) {
    deep += "**/a/";
    path += "a/";
  }
  EXPECT_FALSE(matches(deep + "b", path + path + "c"));
}

TEST(path_pattern_test, directories_that_can_hold_no_match_are_known) {
  auto pattern = path_pattern::parse("src/*/x.{c,h}", {});
  ASSERT_TRUE(pattern);
  EXPECT_TRUE(pattern->may_match_below(""));
  EXPECT_TRUE(pattern->may_match_below("src"));
  EXPECT_TRUE(pattern->may_match_below("src/a"));
  EXPECT_FALSE(pattern->may_match_below("src/a/b"));
  EXPECT_FALSE(pattern->may_match_below("lib"));
}

} // namespace
} // namespace holt::tests
