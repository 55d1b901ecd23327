#include "tests/agent/files/temporary_tree.hpp"

#include <atomic>
#include <thread>

#include <linux/fs.h>
#include <sys/stat.h>

#include "agent/search/glob.hpp"

namespace holt::tests {
namespace {

namespace wire = protocols::agent;

class glob_test : public temporary_tree {
protected:
  std::vector<std::string> glob(const std::string& pattern, std::function<void(wire::search_glob&)> change = {}) {
    wire::search_glob arguments;
    arguments.pattern = pattern;
    if (change)
      change(arguments);
    std::vector<std::string> out;
    auto done = agent::search::glob(*roots, arguments, [&](wire::file_entry&& entry) {
      auto& name = entry.name.bytes;
      EXPECT_TRUE(name.starts_with(base));
      out.push_back(name.starts_with(workspace + "/") ? name.substr(workspace.size() + 1) : name.substr(base.size()));
      return true;
    });
    code = done ? "" : done.error().code;
    if (done) {
      EXPECT_EQ(done->count, out.size());
      truncated = done->truncated;
    }
    return out;
  }
  void file(const std::string& name, const std::string& content = "x") {
    auto slash = name.rfind('/');
    if (slash != name.npos)
      directory(name.substr(0, slash));
    put(workspace + "/" + name, content);
  }
  using names_t = std::vector<std::string>;
  std::string code;
  bool truncated = false;
};

TEST_F(glob_test, results_come_by_path_and_directories_only_when_asked) {
  for (auto name : {"b.h", "a/x.h", "a/y.c", "a/d/z.h", ".hidden/q.h"})
    file(name);
  EXPECT_EQ(glob("*.h"), (names_t{"b.h"}));
  EXPECT_EQ(glob("**/*.h"), (names_t{".hidden/q.h", "a/d/z.h", "a/x.h", "b.h"}));
  EXPECT_EQ(glob("**/*.h", [](auto& a) { a.hidden = false; }), (names_t{"a/d/z.h", "a/x.h", "b.h"}));
  EXPECT_EQ(glob("a/*"), (names_t{"a/x.h", "a/y.c"}));
  EXPECT_EQ(glob("**/"), (names_t{".hidden", "a", "a/d"}));
  EXPECT_EQ(glob("*.h", [](auto& a) { a.path = wire::raw_name{"a"}; }), (names_t{"a/x.h"}));
  EXPECT_EQ(glob(workspace + "/a/*.c"), (names_t{"a/y.c"}));
  EXPECT_EQ(glob("/a/*.c"), (names_t{"a/y.c"}));
  put(base + "/tmp/t.h", "");
  EXPECT_EQ(glob(base + "/tmp/*.h"), (names_t{"/tmp/t.h"}));
}

TEST_F(glob_test, the_first_by_path_are_kept_when_there_are_more_than_the_limit) {
  for (int i = 10; i < 60; ++i)
    file("d" + std::to_string(i % 7) + "/f" + std::to_string(i));
  auto all = glob("**/f*");
  ASSERT_EQ(all.size(), 50u);
  EXPECT_FALSE(truncated);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  auto some = glob("**/f*", [](auto& a) { a.limit = 5; });
  EXPECT_EQ(some, names_t(all.begin(), all.begin() + 5));
  EXPECT_TRUE(truncated);
  glob("**/f*", [](auto& a) { a.limit = 50; });
  EXPECT_FALSE(truncated);
}

TEST_F(glob_test, the_newest_come_first_when_asked) {
  for (int i = 0; i < 4; ++i) {
    auto name = std::string(1, static_cast<char>('a' + i));
    file(name);
    timespec times[2] = {{1'000'000 + (i * 7) % 4, 0}, {1'000'000 + (i * 7) % 4, 0}};
    ::utimensat(AT_FDCWD, (workspace + "/" + name).c_str(), times, 0);
  }
  EXPECT_EQ(glob("*", [](auto& a) { a.order = "modified"; }), (names_t{"b", "c", "d", "a"}));
}

TEST_F(glob_test, ignore_files_hold_when_asked) {
  file(".gitignore", "*.o\n/build/\nsub/skip\n");
  for (auto name : {"a.o", "a.c", "build/x.c", "sub/build/y.c", "sub/skip/z.c", "sub/keep.o", "sub/drop.c", ".git/config", "i.c"})
    file(name);
  file("sub/.gitignore", "!keep.o\ndrop.c\n");
  file(".ignore", "i.c\n");
  auto respects = [](auto& a) { a.ignore = true; };
  EXPECT_EQ(glob("**/*.[co]", respects), (names_t{"a.c", "sub/build/y.c", "sub/keep.o"}));
  EXPECT_EQ(glob("**/config", respects), names_t{});
  EXPECT_EQ(glob("**/*.[co]").size(), 8u);
  // Those above the directory that is searched hold too.
  EXPECT_EQ(glob("**/*", [](auto& a) {
              a.ignore = true;
              a.path = wire::raw_name{"sub"};
            }),
            (names_t{"sub/.gitignore", "sub/build/y.c", "sub/keep.o"}));
}

TEST_F(glob_test, links_are_found_and_not_entered) {
  file("d/x");
  link("d", "l");
  link(outside, "out");
  link(".", "d/loop");
  EXPECT_EQ(glob("**"), (names_t{"d/loop", "d/x", "l", "out"}));
}

TEST_F(glob_test, a_wrong_pattern_or_place_is_told) {
  glob("[a");
  EXPECT_EQ(code, "search.invalid_glob");
  glob("*", [](auto& a) { a.path = wire::raw_name{"/etc"}; });
  EXPECT_EQ(code, "file.outside_roots");
  glob("*", [](auto& a) { a.path = wire::raw_name{"none"}; });
  EXPECT_EQ(code, "file.not_found");
  glob("*", [](auto& a) { a.order = "size"; });
  EXPECT_EQ(code, "search.invalid_glob");
}

TEST_F(glob_test, a_tree_that_is_changed_meanwhile_never_leads_outside) {
  file("swap/deep/inside");
  put(outside + "/secret2", "");
  std::filesystem::create_directory(outside + "/deep");
  put(outside + "/deep/outside", "");
  link(outside, "evil");
  std::atomic<bool> over{false};
  std::thread attacker([&] {
    auto a = workspace + "/swap";
    auto b = workspace + "/evil";
    while (!over)
      ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
  });
  for (int i = 0; i < 1000; ++i)
    for (const auto& name : glob("**")) {
      EXPECT_FALSE(name.ends_with("outside") || name.ends_with("secret") || name.ends_with("secret2")) << name;
    }
  over = true;
  attacker.join();
}

} // namespace
} // namespace holt::tests
