#include <gtest/gtest.h>

#include "agent/search/ignore.hpp"

namespace holt::tests {
namespace {

using namespace agent::search;

verdict of(std::string_view text, std::string_view directory, std::string_view name, bool is_directory = false) {
  return rule_list::of_gitignore(text).of(directory, name, is_directory);
}

TEST(gitignore_test, a_name_matches_in_every_directory_and_a_slash_anchors_it) {
  EXPECT_EQ(of("*.o\n", "a/b", "x.o"), verdict::ignored);
  EXPECT_EQ(of("/x\n", "", "x"), verdict::ignored);
  EXPECT_EQ(of("/x\n", "a", "x"), verdict::none);
  EXPECT_EQ(of("a/x\n", "a", "x"), verdict::ignored);
  EXPECT_EQ(of("a/x\n", "b/a", "x"), verdict::none);
  EXPECT_EQ(of("**/a/x\n", "b/a", "x"), verdict::ignored);
  EXPECT_EQ(of("a/**\n", "a/b", "x"), verdict::ignored);
}

TEST(gitignore_test, a_slash_at_the_end_means_directories) {
  EXPECT_EQ(of("build/\n", "a", "build", true), verdict::ignored);
  EXPECT_EQ(of("build/\n", "a", "build", false), verdict::none);
}

TEST(gitignore_test, the_last_rule_that_matches_decides) {
  EXPECT_EQ(of("*.o\n!keep.o\n", "", "keep.o"), verdict::included);
  EXPECT_EQ(of("!keep.o\n*.o\n", "", "keep.o"), verdict::ignored);
  EXPECT_EQ(of("*.o\n!keep.o\n", "", "x.o"), verdict::ignored);
}

TEST(gitignore_test, comments_blanks_and_escapes) {
  EXPECT_EQ(of("# x\n\n  \n", "", "# x"), verdict::none);
  EXPECT_EQ(of("\\#x\n", "", "#x"), verdict::ignored);
  EXPECT_EQ(of("\\!x\n", "", "!x"), verdict::ignored);
  EXPECT_EQ(of("x  \n", "", "x"), verdict::ignored);
  EXPECT_EQ(of("x\\ \n", "", "x "), verdict::ignored);
  EXPECT_EQ(of("x\r\n", "", "x"), verdict::ignored);
  EXPECT_EQ(of("\xEF\xBB\xBFx", "", "x"), verdict::ignored);
  EXPECT_EQ(of("[x\ny\n", "", "y"), verdict::ignored) << "a line that is no pattern spoils no other";
  EXPECT_EQ(of("{a,b}\n", "", "a"), verdict::none) << "braces are plain here";
}

TEST(glob_filter_test, filters_include_and_exclude) {
  auto filter = rule_list::of_globs({"*.{c,h}", "!x.c", "!build/"}).value();
  EXPECT_EQ(filter.of("a", "y.c", false), verdict::included);
  EXPECT_EQ(filter.of("a", "x.c", false), verdict::ignored);
  EXPECT_EQ(filter.of("a", "y.txt", false), verdict::ignored);
  EXPECT_EQ(filter.of("a", "build", true), verdict::ignored);
  EXPECT_EQ(filter.of("a", "other", true), verdict::none);
  auto only_out = rule_list::of_globs({"!*.c"}).value();
  EXPECT_EQ(only_out.of("", "y.txt", false), verdict::none);
  auto named = rule_list::of_globs({"src/"}).value();
  EXPECT_EQ(named.of("src/a", "x", false), verdict::included);
  EXPECT_FALSE(rule_list::of_globs({"[a"}));
}

} // namespace
} // namespace holt::tests
