#include "tests/agent/files/temporary_tree.hpp"

#include <sys/resource.h>
#include <sys/stat.h>

#include "agent/files/file_operations.hpp"
#include "agent/files/sha256.hpp"

namespace holt::tests {
namespace {

using namespace agent::files;
namespace wire = protocols::agent;

class file_operations_test : public temporary_tree {
protected:
  std::vector<std::string> list(const std::string& path, bool recursive, std::uint64_t limit = 10'000,
                                bool* truncated = nullptr) {
    wire::file_list arguments;
    arguments.path.bytes = path;
    arguments.recursive = recursive;
    arguments.limit = limit;
    std::vector<std::string> out;
    auto done = list_directory(*roots, arguments, [&](wire::file_entry&& entry) {
      out.push_back(entry.name.bytes + ":" + entry.type);
      return true;
    });
    EXPECT_TRUE(done) << done.error().message;
    if (done) {
      EXPECT_EQ(done->count, out.size());
      if (truncated != nullptr)
        *truncated = done->truncated;
    }
    return out;
  }
  std::string remove(const std::string& path, bool recursive = false, std::optional<std::string> if_match = {}) {
    wire::file_remove arguments;
    arguments.path.bytes = path;
    arguments.recursive = recursive;
    arguments.if_match = std::move(if_match);
    auto done = remove_path(*roots, locks, arguments);
    return done ? "" : done.error().code;
  }
  std::string move(const std::string& from, const std::string& to, bool replace = false) {
    wire::file_move arguments;
    arguments.from.bytes = from;
    arguments.to.bytes = to;
    arguments.replace = replace;
    auto done = move_path(*roots, locks, arguments);
    if (done) {
      EXPECT_EQ(done->path.bytes, roots->absolute(to).value());
    }
    return done ? "" : done.error().code;
  }
  std::string make(const std::string& path, bool parents = true, std::optional<std::uint32_t> mode = {}) {
    wire::file_mkdir arguments;
    arguments.path.bytes = path;
    arguments.parents = parents;
    arguments.mode = mode;
    auto done = make_directory(*roots, arguments);
    return done ? "" : done.error().code;
  }
};

TEST_F(file_operations_test, stat_tells_what_is_there) {
  put(workspace + "/a", "12345");
  ::chmod((workspace + "/a").c_str(), 0640);
  link("a", "link");
  wire::file_stat arguments;
  arguments.path.bytes = "link";
  arguments.hash = true;
  auto followed = stat_path(*roots, arguments);
  ASSERT_TRUE(followed);
  EXPECT_EQ(followed->path.bytes, workspace + "/link");
  EXPECT_EQ(followed->entry.name.bytes, "link");
  EXPECT_EQ(followed->entry.type, "file");
  EXPECT_EQ(followed->entry.size, 5u);
  EXPECT_EQ(followed->entry.mode, 0640u);
  EXPECT_GT(followed->entry.modified_at, 1'600'000'000'000'000);
  EXPECT_EQ(followed->sha256, sha256::of("12345"));
  arguments.follow = false;
  auto kept = stat_path(*roots, arguments);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->entry.type, "symlink");
  EXPECT_EQ(kept->entry.target->bytes, "a");
  EXPECT_FALSE(kept->sha256);
  arguments.path.bytes = workspace;
  EXPECT_EQ(stat_path(*roots, arguments)->entry.type, "directory");
  // The link itself may be looked at wherever it leads.
  link(outside, "out");
  arguments.path.bytes = "out";
  EXPECT_EQ(stat_path(*roots, arguments)->entry.target->bytes, outside);
  arguments.follow = true;
  EXPECT_EQ(stat_path(*roots, arguments).error().code, "file.outside_roots");
}

TEST_F(file_operations_test, a_listing_is_in_order_and_doesnt_follow_links) {
  directory("b/inner");
  put(workspace + "/b/x", "");
  put(workspace + "/a", "");
  link("b", "c");
  ASSERT_EQ(::mkfifo((workspace + "/p").c_str(), 0600), 0);
  EXPECT_EQ(list(".", false), (std::vector<std::string>{"a:file", "b:directory", "c:symlink", "p:other"}));
  EXPECT_EQ(list(".", true), (std::vector<std::string>{"a:file", "b:directory", "b/inner:directory", "b/x:file",
                                                       "c:symlink", "p:other"}));
  EXPECT_EQ(list("c", false), (std::vector<std::string>{"inner:directory", "x:file"}));
}

TEST_F(file_operations_test, a_long_listing_is_cut_and_says_so) {
  for (int i = 0; i < 50; ++i)
    put(workspace + "/f" + std::to_string(i), "");
  bool truncated = false;
  EXPECT_EQ(list(".", false, 10, &truncated).size(), 10u);
  EXPECT_TRUE(truncated);
  EXPECT_EQ(list(".", false, 50, &truncated).size(), 50u);
  EXPECT_FALSE(truncated);
  directory("d");
  put(workspace + "/d/x", "");
  EXPECT_EQ(list(".", true, 51, &truncated).size(), 51u);
  EXPECT_TRUE(truncated);
}

TEST_F(file_operations_test, a_listing_goes_deep_with_few_open_files) {
  std::string path;
  for (int i = 0; i < 150; ++i)
    path += (i == 0 ? "d" : "/d");
  directory(path);
  rlimit old{};
  ::getrlimit(RLIMIT_NOFILE, &old);
  rlimit few = old;
  few.rlim_cur = 100;
  ::setrlimit(RLIMIT_NOFILE, &few);
  auto count = list(".", true).size();
  ::setrlimit(RLIMIT_NOFILE, &old);
  EXPECT_EQ(count, 150u);
}

TEST_F(file_operations_test, mkdir_makes_parents_when_asked) {
  EXPECT_EQ(make("a/b/c"), "");
  EXPECT_EQ(make("a/b/c"), "");
  EXPECT_EQ(make("a/b/c", false), "file.exists");
  EXPECT_EQ(make("x/y", false), "file.not_found");
  EXPECT_EQ(make("m", true, 0700), "");
  EXPECT_EQ(std::filesystem::status(workspace + "/m").permissions(), std::filesystem::perms::owner_all);
  put(workspace + "/file", "");
  EXPECT_EQ(make("file"), "file.not_directory");
  EXPECT_EQ(make("file/x"), "file.not_directory");
  EXPECT_EQ(make(base + "/skills/x"), "file.read_only");
}

TEST_F(file_operations_test, remove_takes_the_link_and_not_what_it_names) {
  directory("d");
  put(workspace + "/d/x", "");
  link("d", "link");
  link(outside, "out");
  EXPECT_EQ(remove("link", true), "");
  EXPECT_EQ(remove("out", true), "");
  EXPECT_EQ(names(workspace), std::vector<std::string>{"d"});
  EXPECT_EQ(remove("d"), "file.not_empty");
  link(outside, "d/out");
  link(outside + "/secret", "d/secret");
  EXPECT_EQ(remove("d", true), "");
  EXPECT_TRUE(names(workspace).empty());
  EXPECT_EQ(names(outside), std::vector<std::string>{"secret"});
  EXPECT_EQ(remove("none"), "file.not_found");
}

TEST_F(file_operations_test, a_root_itself_is_never_removed_or_moved) {
  for (auto path : {std::string("."), workspace, base + "/tmp", base + "/skills", std::string("a/..")})
    EXPECT_NE(remove(path, true), "") << path;
  EXPECT_NE(move(base + "/tmp", "t"), "");
  EXPECT_TRUE(std::filesystem::exists(base + "/tmp"));
}

TEST_F(file_operations_test, remove_goes_deeper_than_files_can_be_open) {
  // Deeper than a path can be long, too: only steps lead there.
  const std::string name(200, 'd');
  descriptor at(::open(workspace.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(::mkdirat(at.get(), name.c_str(), 0755), 0);
    descriptor file(::openat(at.get(), "f", O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    at = descriptor(::openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(at);
  }
  at.reset();
  rlimit old{};
  ::getrlimit(RLIMIT_NOFILE, &old);
  rlimit few = old;
  few.rlim_cur = 120;
  ::setrlimit(RLIMIT_NOFILE, &few);
  auto code = remove(name, true);
  ::setrlimit(RLIMIT_NOFILE, &old);
  EXPECT_EQ(code, "");
  EXPECT_EQ(names(workspace), std::vector<std::string>{"f"});
}

TEST_F(file_operations_test, remove_with_if_match_spares_another_content) {
  put(workspace + "/a", "one");
  EXPECT_EQ(remove("a", false, sha256::of("two")), "file.changed");
  EXPECT_EQ(remove("a", false, sha256::of("one")), "");
}

TEST_F(file_operations_test, move_replaces_only_when_told) {
  put(workspace + "/a", "a");
  put(workspace + "/b", "b");
  EXPECT_EQ(move("a", "b"), "file.exists");
  EXPECT_EQ(move("a", "b", true), "");
  EXPECT_EQ(get(workspace + "/b"), "a");
  EXPECT_EQ(move("none", "x"), "file.not_found");
  directory("d");
  EXPECT_EQ(move("d", "d/inside"), "file.invalid_path");
  EXPECT_EQ(move("b", base + "/skills/b"), "file.read_only");
  EXPECT_EQ(move("b", base + "/tmp/b"), "");
  EXPECT_EQ(get(base + "/tmp/b"), "a");
  link(outside + "/secret", "link");
  EXPECT_EQ(move("link", "moved"), "");
  EXPECT_TRUE(std::filesystem::is_symlink(workspace + "/moved"));
}

TEST_F(file_operations_test, what_the_agent_may_not_do_is_denied_in_plain_words) {
  auto error = failure_of(EACCES, "a\nb").value();
  EXPECT_EQ(error.code, "file.denied");
  EXPECT_EQ(error.message, "permission denied: a?b");
  EXPECT_EQ(failure_of(EROFS, "a").value().code, "file.read_only");
}

} // namespace
} // namespace holt::tests
