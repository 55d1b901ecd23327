#include "tests/agent/files/temporary_tree.hpp"

#include <poll.h>

#include "agent/files/watcher.hpp"

namespace holt::tests {
namespace {

using namespace agent::files;
namespace wire = protocols::agent;

class watcher_test : public temporary_tree {
protected:
  result<watcher> begin(bool recursive = true, watcher::limits bounds = {}) {
    wire::file_watch arguments;
    arguments.path.bytes = ".";
    arguments.recursive = recursive;
    return watcher::begin(*roots, arguments, bounds);
  }
  /// What is there to read now, repeated events once. inotify queues an event before the call that made it returns.
  std::vector<std::string> events(watcher& from) {
    std::vector<std::string> out;
    auto done = from.read_events([&](wire::watch_event&& event) {
      auto text = event.event + " " + event.path.bytes + (event.to ? " " + event.to->bytes : "");
      if (out.empty() || out.back() != text)
        out.push_back(text);
      return true;
    });
    error = done ? "" : done.error().code;
    return out;
  }
  std::string error;
};

TEST_F(watcher_test, changes_are_told_also_in_new_directories) {
  directory("old");
  auto watch = begin();
  ASSERT_TRUE(watch) << watch.error().message;
  EXPECT_TRUE(events(*watch).empty());
  put(workspace + "/old/a", "1");
  EXPECT_EQ(events(*watch), (std::vector<std::string>{"created old/a", "modified old/a"}));
  directory("new/deep");
  put(workspace + "/new/b", "");
  auto seen = events(*watch);
  for (auto expected : {"created new", "created new/deep", "created new/b"})
    EXPECT_NE(std::find(seen.begin(), seen.end(), expected), seen.end()) << expected;
  put(workspace + "/new/deep/c", "");
  seen = events(*watch);
  EXPECT_NE(std::find(seen.begin(), seen.end(), "created new/deep/c"), seen.end());
  std::filesystem::remove(workspace + "/old/a");
  EXPECT_EQ(events(*watch), (std::vector<std::string>{"removed old/a"}));
}

TEST_F(watcher_test, a_rename_is_one_event_and_paths_below_follow_it) {
  directory("a/inner");
  put(workspace + "/x", "");
  auto watch = begin();
  ASSERT_TRUE(watch);
  std::filesystem::rename(workspace + "/x", workspace + "/y");
  std::filesystem::rename(workspace + "/a", workspace + "/b");
  EXPECT_EQ(events(*watch), (std::vector<std::string>{"moved x y", "moved a b"}));
  put(workspace + "/b/inner/z", "");
  auto seen = events(*watch);
  EXPECT_EQ(seen.front(), "created b/inner/z");
}

TEST_F(watcher_test, what_moves_out_is_removed_and_what_moves_in_is_created) {
  directory("a/inner");
  auto watch = begin();
  ASSERT_TRUE(watch);
  std::filesystem::rename(workspace + "/a", base + "/tmp/a");
  EXPECT_EQ(events(*watch), (std::vector<std::string>{"removed a"}));
  put(base + "/tmp/a/inner/x", "");
  EXPECT_TRUE(events(*watch).empty());
  std::filesystem::rename(base + "/tmp/a", workspace + "/back");
  EXPECT_EQ(events(*watch), (std::vector<std::string>{"created back", "created back/inner", "created back/inner/x"}));
}

TEST_F(watcher_test, links_are_not_followed) {
  link(outside, "out");
  auto watch = begin();
  ASSERT_TRUE(watch);
  put(outside + "/x", "");
  EXPECT_TRUE(events(*watch).empty());
}

TEST_F(watcher_test, not_recursive_means_one_directory) {
  directory("a");
  auto watch = begin(false);
  ASSERT_TRUE(watch);
  put(workspace + "/a/x", "");
  EXPECT_TRUE(events(*watch).empty());
  std::filesystem::remove(workspace + "/a/x");
  directory("b");
  EXPECT_EQ(events(*watch), (std::vector<std::string>{"created b"}));
}

TEST_F(watcher_test, too_many_directories_are_an_error) {
  for (int i = 0; i < 10; ++i)
    directory("d" + std::to_string(i));
  auto refused = begin(true, {5});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, "watch.limit");
  auto watch = begin(true, {12});
  ASSERT_TRUE(watch);
  directory("one");
  directory("two");
  (void)events(*watch);
  EXPECT_EQ(error, "watch.limit");
}

TEST_F(watcher_test, more_events_than_the_kernel_keeps_are_one_overflow) {
  std::ifstream setting("/proc/sys/fs/inotify/max_queued_events");
  int most = 16384;
  setting >> most;
  auto watch = begin();
  ASSERT_TRUE(watch);
  auto a = workspace + "/a";
  auto b = workspace + "/b";
  put(a, "");
  for (int i = 0; i < most; ++i) {
    ::rename(a.c_str(), b.c_str());
    std::swap(a, b);
  }
  auto seen = events(*watch);
  EXPECT_EQ(std::count(seen.begin(), seen.end(), "overflow "), 1);
}

TEST_F(watcher_test, the_end_of_the_watched_directory_ends_the_watch) {
  directory("w");
  wire::file_watch arguments;
  arguments.path.bytes = "w";
  auto watch = watcher::begin(*roots, arguments);
  ASSERT_TRUE(watch);
  std::filesystem::remove(workspace + "/w");
  (void)events(*watch);
  EXPECT_EQ(error, "file.not_found");
}

} // namespace
} // namespace holt::tests
