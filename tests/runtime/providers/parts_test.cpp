#include <gtest/gtest.h>

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/providers/cgroups.hpp"
#include "runtime/providers/fd.hpp"
#include "runtime/providers/instance_record.hpp"
#include "runtime/providers/process_identity.hpp"
#include "runtime/providers/sandbox_profile.hpp"
#include "runtime/providers/seccomp_filter.hpp"
#include "runtime/providers/system_etc.hpp"
#include "runtime/providers/uid_ledger.hpp"

/// The parts of the provider that need no sandbox.
namespace holt::providers {
namespace {

namespace fs = std::filesystem;

class parts : public testing::Test {
protected:
  fs::path directory;
  unique_fd fd;
  void SetUp() override {
    std::string name = "/tmp/holt-parts-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory = name;
    fd.reset(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  void TearDown() override {
    fs::remove_all(directory);
  }
};

TEST(cgroup_text, mounts_of_both_versions_are_found) {
  const auto mounts =
      parse_cgroup_mounts("29 22 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
                          "30 29 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:5 - cgroup2 cgroup2 rw\n"
                          "31 29 0:28 /part /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
                          "32 29 0:29 / /a\\040b rw - cgroup cgroup rw,memory\n"
                          "broken line\n");
  ASSERT_EQ(mounts.size(), 3U);
  EXPECT_TRUE(mounts[0].unified);
  EXPECT_EQ(mounts[0].point, "/sys/fs/cgroup/unified");
  EXPECT_EQ(mounts[1].root, "/part");
  EXPECT_EQ(mounts[1].controllers, (std::vector<std::string>{"rw", "cpu", "cpuacct"}));
  EXPECT_EQ(mounts[2].point, "/a b");
}

TEST(cgroup_text, the_own_group_is_found_by_controller) {
  const std::string text = "9:name=systemd:/s\n4:cpu,cpuacct:/c:olon\n3:memory:/m\n0::/u\n";
  EXPECT_EQ(parse_own_cgroup(text, "memory"), "/m");
  EXPECT_EQ(parse_own_cgroup(text, "cpu"), "/c:olon");
  EXPECT_EQ(parse_own_cgroup(text, ""), "/u");
  EXPECT_EQ(parse_own_cgroup(text, "pids"), std::nullopt);
}

TEST(process_text, a_name_may_hold_anything) {
  const auto stat = parse_process_stat("42 (a) b) S 7 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0");
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->parent, 7);
  EXPECT_EQ(stat->start_time, 12345U);
  EXPECT_FALSE(parse_process_stat(""));
  EXPECT_FALSE(parse_process_stat("1 (x) S"));
}

TEST(process_text, this_process_is_alive_and_another_of_its_pid_is_not) {
  const auto self = identify(::getpid());
  ASSERT_TRUE(self);
  EXPECT_TRUE(is_alive(*self));
  EXPECT_FALSE(is_alive({self->pid, self->start_time + 1}));
  EXPECT_FALSE(is_alive({}));
}

TEST(record_text, a_record_reads_back_as_it_was) {
  instance_record record;
  record.generation = 12;
  record.created_at = 1'700'000'000'000'000;
  record.boot = "b";
  record.started = true;
  record.file_system = "fs_1";
  record.agent = {4, 5};
  record.launcher = {3, 4};
  record.cgroups = {{"v1:memory", "/sys/fs/cgroup/memory/x"}};
  const auto again = read_record(write_record(record));
  ASSERT_TRUE(again);
  EXPECT_EQ(write_record(*again), write_record(record));
  EXPECT_EQ(again->agent, record.agent);
  EXPECT_EQ(again->cgroups, record.cgroups);
  for (const auto* broken :
       {"", "{", "[]", "{}", "{\"generation\":-1,\"created_at\":1}", "{\"generation\":\"1\",\"created_at\":1}"})
    EXPECT_FALSE(read_record(broken)) << broken;
}

TEST(profile, what_is_shown_is_read_only_but_for_the_roots) {
  sandbox_profile profile;
  profile.bwrap = "/usr/bin/bwrap";
  profile.workspace = "/data/w";
  const auto arguments = bwrap_arguments(profile);
  EXPECT_EQ(std::count(arguments.begin(), arguments.end(), "--bind"), 1);
  EXPECT_NE(std::find(arguments.begin(), arguments.end(), "--unshare-net"), arguments.end());
  EXPECT_EQ(std::find(arguments.begin(), arguments.end(), "--die-with-parent"), arguments.end());
  profile.host_network = true;
  const auto open = bwrap_arguments(profile);
  EXPECT_EQ(std::find(open.begin(), open.end(), "--unshare-net"), open.end());
}

TEST_F(parts, a_uid_stays_with_its_environment_across_restarts) {
  {
    auto ledger = uid_ledger::open(fd.get(), {100, 3});
    ASSERT_TRUE(ledger) << ledger.error();
    EXPECT_EQ((*ledger)->claim("env_a"), 100U);
    EXPECT_EQ((*ledger)->claim("env_b"), 101U);
    EXPECT_EQ((*ledger)->claim("env_a"), 100U);
    EXPECT_TRUE((*ledger)->release("env_a"));
    EXPECT_TRUE((*ledger)->sync());
    EXPECT_FALSE(uid_ledger::open(fd.get(), {100, 3})) << "one process at a time";
  }
  // A line that a crash cut was never acknowledged.
  std::ofstream(directory / "uids", std::ios::app) << "+ 102 env_cu";
  auto ledger = uid_ledger::open(fd.get(), {100, 3});
  ASSERT_TRUE(ledger) << ledger.error();
  EXPECT_EQ((*ledger)->find("env_b"), 101U);
  EXPECT_EQ((*ledger)->find("env_a"), std::nullopt);
  EXPECT_TRUE((*ledger)->claim("env_c"));
  EXPECT_TRUE((*ledger)->claim("env_d"));
  EXPECT_FALSE((*ledger)->claim("env_e")) << "the range is used up";
  EXPECT_TRUE((*ledger)->release("env_b"));
  EXPECT_EQ((*ledger)->claim("env_e"), 101U);
}

TEST_F(parts, a_uid_that_was_just_freed_is_the_last_to_be_given_again) {
  auto ledger = uid_ledger::open(fd.get(), {100, 5});
  ASSERT_TRUE(ledger);
  EXPECT_EQ((*ledger)->claim("env_a"), 100U);
  EXPECT_TRUE((*ledger)->release("env_a"));
  EXPECT_EQ((*ledger)->claim("env_b"), 101U);
}

TEST_F(parts, a_uid_that_changed_hands_is_its_new_environments_after_a_restart) {
  {
    auto ledger = uid_ledger::open(fd.get(), {100, 5});
    EXPECT_EQ((*ledger)->claim("spare"), 100U);
    EXPECT_TRUE((*ledger)->rename("spare", "env_a"));
    EXPECT_FALSE((*ledger)->rename("spare", "env_b"));
    EXPECT_EQ((*ledger)->find("spare"), std::nullopt);
  }
  auto ledger = uid_ledger::open(fd.get(), {100, 5});
  EXPECT_EQ((*ledger)->find("env_a"), 100U);
  EXPECT_EQ((*ledger)->find("spare"), std::nullopt);
}

TEST_F(parts, a_malformed_uid_record_refuses_the_start) {
  std::ofstream(directory / "uids") << "garbage\n+ 1 env_a\n";
  EXPECT_FALSE(uid_ledger::open(fd.get(), {100, 3}));
}

TEST_F(parts, a_tree_is_removed_whatever_is_in_it) {
  fs::create_directories(directory / "outside");
  std::ofstream(directory / "outside/kept") << "x";
  fs::create_directories(directory / "tree/closed/inner");
  fs::create_directory_symlink(directory / "outside", directory / "tree/link");
  ::chmod((directory / "tree/closed").c_str(), 0);
  // Deeper than any path that one call could name.
  unique_fd at(::openat(fd.get(), "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int depth = 0; depth < 600; ++depth) {
    ASSERT_EQ(::mkdirat(at.get(), "d", 0755), 0);
    at.reset(::openat(at.get(), "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  at.reset();
  EXPECT_TRUE(remove_tree(fd.get(), "tree"));
  EXPECT_FALSE(fs::exists(directory / "tree"));
  EXPECT_TRUE(fs::exists(directory / "outside/kept"));
  EXPECT_TRUE(remove_tree(fd.get(), "tree"));
}

TEST_F(parts, directories_are_opened_beneath_and_never_through_links) {
  fs::create_directories(directory / "real/inner");
  fs::create_directory_symlink("/", directory / "link");
  EXPECT_TRUE(open_directory(fd.get(), "real/inner"));
  EXPECT_FALSE(open_directory(fd.get(), "link"));
  EXPECT_FALSE(open_directory(fd.get(), "link/usr"));
  EXPECT_FALSE(open_directory(fd.get(), ".."));
  EXPECT_FALSE(open_directory(fd.get(), "/usr"));
}

TEST_F(parts, the_etc_of_sandboxes_holds_no_secret) {
  const auto etc = build_etc(directory, false);
  ASSERT_TRUE(etc) << etc.error();
  EXPECT_TRUE(fs::exists(*etc / "passwd"));
  for (const auto* absent : {"shadow", "gshadow", "resolv.conf", "ssh", "ssl/private", "sudoers"})
    EXPECT_FALSE(fs::exists(*etc / absent)) << absent;
  EXPECT_EQ(*build_etc(directory, false), *etc);
  EXPECT_NE(*build_etc(directory, true), *etc);
}

TEST(seccomp, the_filter_is_built_once_and_read_from_its_start_each_time) {
  const auto filter = build_seccomp_filter();
  ASSERT_TRUE(filter) << filter.error();
  const auto first = reopen(filter->get());
  const auto second = reopen(filter->get());
  char one[8];
  char two[8];
  ASSERT_EQ(::read(first.get(), one, sizeof one), 8);
  ASSERT_EQ(::read(second.get(), two, sizeof two), 8);
  EXPECT_EQ(std::string(one, 8), std::string(two, 8));
}

} // namespace
} // namespace holt::providers
