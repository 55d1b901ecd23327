#include "tests/agent/files/temporary_tree.hpp"

#include <thread>

#include <sys/stat.h>

#include "agent/files/edit_text.hpp"
#include "agent/files/file_operations.hpp"
#include "agent/files/sha256.hpp"

namespace holt::tests {
namespace {

using namespace agent::files;
namespace wire = protocols::agent;

std::string edited(std::string content, std::vector<wire::text_edit> edits) {
  auto done = apply_edits(std::move(content), edits, most_edit_bytes);
  return done ? done->content : done.error().code;
}

TEST(edit_text_test, only_matched_bytes_change) {
  EXPECT_EQ(edited("a b c", {{"b", "B", false}}), "a B c");
  EXPECT_EQ(edited(std::string("\xEF\xBB\xBFone\0two\xff", 11), {{"two", "2", false}}), std::string("\xEF\xBB\xBFone\0" "2\xff", 9));
  EXPECT_EQ(edited("a\r\nb\nc\r\n", {{"b", "B", false}}), "a\r\nB\nc\r\n");
}

TEST(edit_text_test, each_way_to_fail_has_its_own_code) {
  EXPECT_EQ(edited("abc", {{"x", "y", false}}), "edit.no_match");
  EXPECT_EQ(edited("x x", {{"x", "y", false}}), "edit.several_matches");
  EXPECT_EQ(edited("abc", {{"", "y", false}}), "edit.invalid");
  EXPECT_EQ(edited("aaa", {{"aa", "y", false}}), "edit.several_matches");
  EXPECT_EQ(edited("aa", {{"aa", "y", false}}), "y");
  auto several = apply_edits("x x x", {{"x", "y", false}}, 100);
  ASSERT_FALSE(several);
  EXPECT_EQ(several.error().details->at("count").to_number<int>(), 3);
  EXPECT_EQ(several.error().details->at("edit").to_number<int>(), 0);
  auto too_large = apply_edits("x", {{"x", std::string(200, 'y'), false}}, 100);
  ASSERT_FALSE(too_large);
  EXPECT_EQ(too_large.error().code, "file.too_large");
}

TEST(edit_text_test, all_replaces_every_one) {
  EXPECT_EQ(edited("x x x", {{"x", "yy", true}}), "yy yy yy");
  EXPECT_EQ(edited("aaaa", {{"aa", "a", true}}), "aa");
  EXPECT_EQ(edited("a\na\r\na", {{"a\n", "b\n", true}}), "b\nb\r\na");
}

TEST(edit_text_test, edits_follow_each_other_and_are_all_or_none) {
  EXPECT_EQ(edited("a", {{"a", "b", false}, {"b", "c", false}}), "c");
  EXPECT_EQ(edited("a", {{"a", "b", false}, {"a", "c", false}}), "edit.no_match");
}

TEST(edit_text_test, line_ends_of_a_crlf_file_stay) {
  EXPECT_EQ(edited("one\r\ntwo\r\nthree\r\n", {{"one\ntwo\n", "1\n2\n", false}}), "1\r\n2\r\nthree\r\n");
  EXPECT_EQ(edited("one\r\ntwo\r\n", {{"two", "2\n3", false}}), "one\r\n2\r\n3\r\n");
  EXPECT_EQ(edited("one\r\ntwo\r\n", {{"one\r\n", "1\r\n", false}}), "1\r\ntwo\r\n");
  EXPECT_EQ(edited("one\r\ntwo\r\n", {{"\ntwo", "\n2", false}}), "one\r\n2\r\n");
  EXPECT_EQ(edited("a\r\nb", {{"\n", "\n\n", false}}), "a\r\n\r\nb");
  EXPECT_EQ(edited("one\ntwo\r\n", {{"one\ntwo", "1\n2", false}}), "1\n2\r\n");
  // A file with LF gets what was said.
  EXPECT_EQ(edited("one\ntwo\n", {{"one", "1\r\n", false}}), "1\r\n\ntwo\n");
}

class edit_test : public temporary_tree {
protected:
  result<wire::file_edit_result> edit(const std::string& path, std::vector<wire::text_edit> edits,
                                      std::optional<std::string> if_match = {}) {
    wire::file_edit arguments;
    arguments.path.bytes = path;
    arguments.edits = std::move(edits);
    arguments.if_match = std::move(if_match);
    return edit_file(*roots, locks, arguments);
  }
  std::string code(const result<wire::file_edit_result>& done) {
    return done ? "" : done.error().code;
  }
};

TEST_F(edit_test, an_edit_keeps_mode_and_link_and_says_what_it_made) {
  put(workspace + "/a", "one two");
  ::chmod((workspace + "/a").c_str(), 0750);
  link("a", "link");
  auto done = edit("link", {{"two", "2", false}});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->replacements, 1u);
  EXPECT_EQ(done->size, 5u);
  EXPECT_EQ(done->sha256, sha256::of("one 2"));
  EXPECT_EQ(get(workspace + "/a"), "one 2");
  EXPECT_TRUE(std::filesystem::is_symlink(workspace + "/link"));
  struct stat status {};
  ::stat((workspace + "/a").c_str(), &status);
  EXPECT_EQ(status.st_mode & 07777, 0750u);
}

TEST_F(edit_test, a_failed_edit_changes_nothing) {
  put(workspace + "/a", "one");
  EXPECT_EQ(code(edit("a", {{"one", "1", false}, {"x", "y", false}})), "edit.no_match");
  EXPECT_EQ(code(edit("none", {{"x", "y", false}})), "file.not_found");
  EXPECT_EQ(code(edit("a", {{"one", "1", false}}, sha256::of("other"))), "file.changed");
  EXPECT_EQ(code(edit(".", {{"x", "y", false}})), "file.is_directory");
  EXPECT_EQ(get(workspace + "/a"), "one");
  EXPECT_EQ(names(workspace), std::vector<std::string>{"a"});
}

TEST_F(edit_test, a_file_that_is_too_large_is_refused) {
  put(workspace + "/a", "x");
  std::filesystem::resize_file(workspace + "/a", most_edit_bytes + 1);
  EXPECT_EQ(code(edit("a", {{"x", "y", false}})), "file.too_large");
}

TEST_F(edit_test, edits_of_one_file_follow_each_other) {
  put(workspace + "/a", "count:");
  directory("d");
  link(workspace + "/a", "d/link");
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < 50; ++k)
        if (!edit(i % 2 == 0 ? "a" : "d/link", {{"count:", "count:x", false}}))
          ++failed;
    });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(get(workspace + "/a"), "count:" + std::string(200, 'x'));
}

} // namespace
} // namespace holt::tests
