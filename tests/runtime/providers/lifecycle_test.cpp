#include <csignal>
#include <fstream>
#include <thread>

#include "tests/runtime/providers/sandbox.hpp"

/// A sandbox from create to the removal of its files, and what is left after each kind of crash (spec 5, 16, 22, 32,
/// 33).
namespace holt::tests {
namespace {

using actors::instance_status;
using actors::provider_errc;

class lifecycle : public sandbox_test {
protected:
  void SetUp() override {
    sandbox_test::SetUp();
    start();
  }
};

TEST_F(lifecycle, create_of_the_same_generation_finds_the_running_instance) {
  const auto first = make("env_a");
  run(first.handle, "echo here > /tmp/mark");
  const auto second = make("env_a");
  EXPECT_EQ(first.handle, second.handle);
  EXPECT_EQ(first.created_at, second.created_at);
  EXPECT_EQ(output(second.handle, "cat /tmp/mark"), "here");
}

TEST_F(lifecycle, a_later_generation_replaces_the_instance_on_the_kept_files) {
  const auto first = make("env_a");
  const auto pid = record("env_a").agent;
  run(first.handle, "echo kept > /workspace/a; echo lost > /tmp/a");
  auto again = spec("env_a", 2);
  again.new_files = false;
  const auto second = make(again);
  EXPECT_NE(first.handle, second.handle);
  EXPECT_LT(first.created_at, second.created_at);
  EXPECT_FALSE(providers::is_alive(pid));
  EXPECT_EQ(output(second.handle, "cat /workspace/a; ls /tmp"), "kept");
  EXPECT_EQ(status(first.handle), instance_status::gone);
  EXPECT_EQ(status(second.handle), instance_status::running);
}

TEST_F(lifecycle, an_older_generation_ends_nothing_of_its_successor) {
  const auto made = make("env_a", 5);
  const auto created = provider->create(spec("env_a", 4));
  ASSERT_FALSE(created);
  EXPECT_EQ(created.error().code, provider_errc::younger_generation);
  const auto suspended = provider->suspend(made.handle, 4);
  ASSERT_FALSE(suspended);
  EXPECT_EQ(suspended.error().code, provider_errc::younger_generation);
  const auto destroyed = provider->destroy("env_a", made.handle, 4);
  ASSERT_FALSE(destroyed);
  EXPECT_EQ(destroyed.error().code, provider_errc::younger_generation);
  EXPECT_EQ(status(made.handle), instance_status::running);
}

TEST_F(lifecycle, files_that_are_gone_are_never_made_again_silently) {
  auto wanted = spec("env_a");
  wanted.new_files = false;
  const auto refused = provider->create(wanted);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, provider_errc::files_gone);
}

TEST_F(lifecycle, suspend_freezes_and_resume_goes_on) {
  const auto made = make("env_a");
  run(made.handle, "(while :; do echo x >> /workspace/ticks; sleep 0.01; done) > /dev/null 2>&1 &");
  const auto ticks = options.data_dir / "envs/env_a/files/fs_env_a/workspace/ticks";
  const auto grows = [&](int patience) {
    std::error_code error;
    const auto before = fs::file_size(ticks, error);
    for (int at = 0; at < patience; ++at) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (fs::file_size(ticks, error) != before)
        return true;
    }
    return false;
  };
  ASSERT_TRUE(grows(500));
  ASSERT_TRUE(provider->suspend(made.handle, 1));
  EXPECT_EQ(status(made.handle), instance_status::suspended);
  EXPECT_FALSE(grows(20));
  EXPECT_FALSE(provider->open(made.handle));
  ASSERT_TRUE(provider->suspend(made.handle, 1)) << "twice is the same";
  ASSERT_TRUE(provider->resume(made.handle));
  EXPECT_EQ(status(made.handle), instance_status::running);
  EXPECT_TRUE(grows(500));
  ASSERT_TRUE(provider->resume(made.handle));
}

TEST_F(lifecycle, a_suspended_instance_can_be_destroyed) {
  const auto made = make("env_a");
  const auto pid = record("env_a").agent;
  ASSERT_TRUE(provider->suspend(made.handle, 1));
  const auto destroyed = provider->destroy("env_a", made.handle, 1);
  ASSERT_TRUE(destroyed) << destroyed.error().detail;
  EXPECT_FALSE(providers::is_alive(pid));
}

TEST_F(lifecycle, destroy_leaves_no_process_no_cgroup_and_no_socket) {
  const auto made = make("env_a");
  run(made.handle, "(sleep 1000 & sleep 1000 &) > /dev/null 2>&1");
  const auto before = record("env_a");
  const auto inside = providers::descendants(before.agent.pid);
  EXPECT_GE(inside.size(), 2U);
  ASSERT_TRUE(provider->destroy("env_a", made.handle, 1));
  for (const auto pid : inside)
    EXPECT_NE(::kill(pid, 0), 0);
  EXPECT_FALSE(providers::is_alive(before.agent));
  EXPECT_FALSE(providers::is_alive(before.launcher));
  EXPECT_NE(::kill(before.launcher.pid, 0), 0) << "a zombie is left";
  for (const auto& place : before.cgroups)
    EXPECT_FALSE(fs::exists(place.path)) << place.path;
  EXPECT_TRUE(fs::is_empty(run_directory("env_a")));
  EXPECT_EQ(status(made.handle), instance_status::gone);
  EXPECT_TRUE(provider->destroy("env_a", made.handle, 1)) << "gone already is success";
  EXPECT_TRUE(provider->destroy("env_never", "", 1));
}

TEST_F(lifecycle, an_agent_that_died_is_gone_and_is_made_again) {
  const auto made = make("env_a");
  ASSERT_EQ(::kill(record("env_a").agent.pid, SIGKILL), 0);
  ASSERT_TRUE(providers::wait_gone(record("env_a").agent, std::chrono::steady_clock::now() + std::chrono::seconds(5)));
  EXPECT_EQ(status(made.handle), instance_status::gone);
  const auto opened = provider->open(made.handle);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, provider_errc::gone);
  const auto again = make("env_a", 2);
  EXPECT_EQ(output(again.handle, "echo alive"), "alive");
}

TEST_F(lifecycle, a_restart_of_the_machine_means_gone) {
  const auto made = make("env_a");
  auto other = record("env_a");
  const auto real = providers::write_record(other);
  other.boot = "another-boot";
  const auto rewrite = [&](const std::string& text) {
    std::ofstream(run_directory("env_a") / "instance.json") << text;
  };
  rewrite(providers::write_record(other));
  EXPECT_EQ(status(made.handle), instance_status::gone);
  rewrite(real);
  EXPECT_EQ(status(made.handle), instance_status::running);
}

TEST_F(lifecycle, a_pid_that_was_used_again_is_not_the_agent) {
  const auto made = make("env_a");
  const auto real = record("env_a");
  auto other = real;
  other.agent.start_time += 1;
  const auto rewrite = [&](const std::string& text) {
    std::ofstream(run_directory("env_a") / "instance.json") << text;
  };
  rewrite(providers::write_record(other));
  EXPECT_EQ(status(made.handle), instance_status::gone);
  rewrite(providers::write_record(real));
}

TEST_F(lifecycle, a_program_that_is_no_agent_fails_with_bubblewraps_words) {
  options.agent = data / "bin/nothing";
  std::ofstream(options.agent) << "#!/no/such/interpreter\n";
  fs::permissions(options.agent, fs::perms(0755));
  provider.reset();
  start();
  const auto made = provider->create(spec("env_a"));
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().detail.find("bwrap: "), std::string::npos) << made.error().detail;
  EXPECT_TRUE(fs::is_empty(run_directory("env_a")));
}

TEST_F(lifecycle, an_agent_that_never_listens_is_given_up_at_the_deadline) {
  options.start_deadline = std::chrono::milliseconds(300);
  std::ofstream(data / "bin/hang") << "#!/bin/sh\nexec sleep 1000\n";
  fs::permissions(data / "bin/hang", fs::perms(0755));
  options.agent = data / "bin/hang";
  provider.reset();
  start();
  const auto made = provider->create(spec("env_a"));
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().detail.find("in time"), std::string::npos) << made.error().detail;
  EXPECT_TRUE(fs::is_empty(run_directory("env_a")));
}

TEST_F(lifecycle, files_are_removed_by_their_id_alone_however_they_were_left) {
  const auto made = make("env_a");
  run(made.handle,
      "d=/workspace; for i in $(seq 1 200); do d=$d/dddddddddd; mkdir -p $d || break; done; ln -s / /workspace/root; "
      "mkdir /workspace/closed && touch /workspace/closed/a && chmod 0 /workspace/closed; mkfifo /workspace/fifo");
  const auto in_use = provider->destroy_files("env_a", "fs_env_a");
  ASSERT_FALSE(in_use);
  EXPECT_EQ(in_use.error().code, provider_errc::refused);
  ASSERT_TRUE(provider->destroy("env_a", made.handle, 1));
  EXPECT_TRUE(provider->destroy_files("env_a", "fs_other")) << "nothing to do";
  const auto removed = provider->destroy_files("env_a", "fs_env_a");
  ASSERT_TRUE(removed) << removed.error().detail;
  EXPECT_FALSE(fs::exists(options.data_dir / "envs/env_a/files/fs_env_a"));
  EXPECT_TRUE(fs::is_empty(options.data_dir / "trash"));
  EXPECT_TRUE(fs::exists("/usr/bin/env"));
  EXPECT_TRUE(fs::exists(options.data_dir / "envs/env_a/state")) << "a reset keeps the ledger";
  EXPECT_TRUE(provider->destroy_files("env_a", "fs_env_a"));
}

TEST_F(lifecycle, a_uid_is_used_again_only_when_no_file_is_left) {
  if (!is_root()) {
    EXPECT_FALSE(has("own_uid"));
    return;
  }
  options.uid_count = 2;
  provider.reset();
  start();
  const auto uid_of = [&](const std::string& id) {
    struct stat status {};
    EXPECT_EQ(::stat((options.data_dir / "envs" / id / "state").c_str(), &status), 0);
    return status.st_uid;
  };
  make("env_a");
  make("env_b");
  const auto uid = uid_of("env_a");
  EXPECT_NE(uid, uid_of("env_b"));
  ASSERT_TRUE(provider->destroy("env_a", "", 1));
  provider.reset();
  start();
  const auto refused = provider->create(spec("env_c"));
  ASSERT_FALSE(refused) << "its files exist";
  EXPECT_EQ(refused.error().code, provider_errc::refused);
  EXPECT_FALSE(provider->forget("env_a")) << "its files exist";
  ASSERT_TRUE(provider->destroy_files("env_a", "fs_env_a"));
  ASSERT_TRUE(provider->forget("env_a"));
  EXPECT_FALSE(fs::exists(options.data_dir / "envs/env_a"));
  make("env_c");
  EXPECT_EQ(uid_of("env_c"), uid);
}

TEST_F(lifecycle, ids_that_are_no_names_are_refused) {
  for (const auto* id : {"", "..", "a/b", "-x", ".hidden"}) {
    actors::instance_spec wanted;
    wanted.environment_id = id;
    wanted.file_system_id = "fs";
    EXPECT_FALSE(provider->create(wanted)) << id;
    EXPECT_FALSE(provider->destroy_files("env_a", id)) << id;
  }
  EXPECT_FALSE(provider->inspect("{\"environment\":\"../x\",\"generation\":1}"));
  EXPECT_FALSE(provider->inspect("nonsense"));
  EXPECT_EQ(status("{\"generation\":1,\"environment\":\"env_unknown\"}"), instance_status::gone);
}

TEST_F(lifecycle, handles_compare_by_value) {
  const auto made = make("env_a", 7);
  EXPECT_EQ(made.handle, "{\"environment\":\"env_a\",\"generation\":7}");
  EXPECT_EQ(status("{ \"generation\": 7, \"environment\": \"env_a\" }"), instance_status::running);
}

TEST_F(lifecycle, a_data_directory_has_one_server) {
  const auto second = providers::make_bubblewrap(options);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().find("in use"), std::string::npos);
}

TEST_F(lifecycle, paths_longer_than_a_socket_address_work) {
  provider.reset();
  for (int at = 0; at < 4; ++at)
    options.data_dir /= std::string(60, 'd');
  start();
  EXPECT_EQ(output(make("env_a").handle, "echo alive"), "alive");
}

// -- spares
// ------------------------------------------------------------------------------------------------------------

class spares : public sandbox_test {
protected:
  std::vector<std::string> waiting() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(options.data_dir / "envs")) {
      const auto text = providers::read_file((entry.path() / "run/instance.json").string());
      const auto parsed = text ? providers::read_record(*text) : std::nullopt;
      if (parsed && parsed->started && entry.path().filename().string().rfind("spare-", 0) == 0)
        found.push_back(entry.path().filename().string());
    }
    return found;
  }
  void await_spares(std::size_t count) {
    for (int patience = 0; waiting().size() < count && patience < 1000; ++patience)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_EQ(waiting().size(), count);
  }
  void SetUp() override {
    sandbox_test::SetUp();
    options.prepared = 2;
    start();
    await_spares(2);
  }
};

TEST_F(spares, a_new_environment_takes_a_started_sandbox) {
  const auto before =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  const auto made = make("env_a", 3);
  EXPECT_EQ(made.handle, "{\"environment\":\"env_a\",\"generation\":3}");
  EXPECT_GE(made.created_at, before);
  EXPECT_EQ(output(made.handle, "echo kept > a; id -u; pwd"), "1000\n/workspace");
  EXPECT_TRUE(fs::exists(options.data_dir / "envs/env_a/files/fs_env_a/workspace/a"));
  EXPECT_EQ(status(made.handle), instance_status::running);
  EXPECT_EQ(make("env_a", 3).created_at, made.created_at) << "found again";
  const auto other = make("env_b");
  EXPECT_EQ(output(other.handle, "ls"), "");
  await_spares(2);
  // On the same files, without the pool.
  auto again = spec("env_a", 4);
  again.new_files = false;
  EXPECT_EQ(output(make(again).handle, "cat a"), "kept");
}

TEST_F(spares, an_environment_with_settings_of_its_own_is_made_for_it) {
  auto wanted = spec("env_a");
  wanted.limits.open_files = 77;
  EXPECT_EQ(output(make(wanted).handle, "ulimit -n"), "77");
  EXPECT_EQ(waiting().size(), 2U);
}

TEST_F(spares, a_dead_spare_is_not_given_out) {
  for (const auto& id : waiting()) {
    const auto agent = record(id).agent;
    ASSERT_EQ(::kill(agent.pid, SIGKILL), 0);
    ASSERT_TRUE(providers::wait_gone(agent, std::chrono::steady_clock::now() + std::chrono::seconds(10)));
  }
  EXPECT_EQ(output(make("env_a").handle, "echo alive"), "alive");
}

TEST_F(spares, none_is_left_when_the_server_stops) {
  std::vector<providers::process_identity> agents;
  for (const auto& id : waiting())
    agents.push_back(record(id).agent);
  const auto made = make("env_a");
  await_spares(2);
  provider.reset();
  EXPECT_TRUE(waiting().empty());
  options.prepared = 0;
  start();
  EXPECT_EQ(output(made.handle, "echo alive"), "alive") << "what was claimed stays";
}

// -- the server is killed
// ----------------------------------------------------------------------------------------------

class crash : public sandbox_test {
protected:
  void SetUp() override {
    sandbox_test::SetUp();
    // A range of its own: other tests and servers may run beside this one, and their processes don't count.
    options.uid_first = 2'000'000 + static_cast<std::uint32_t>(::getpid()) * 100;
    options.uid_count = 90;
  }
};

TEST_F(crash, a_sandbox_outlives_the_server_and_is_adopted) {
  const auto handle = drive("env_a", 1);
  start();
  EXPECT_EQ(status(handle), instance_status::running);
  EXPECT_EQ(output(handle, "echo alive"), "alive");
  EXPECT_EQ(make("env_a").handle, handle) << "found, not made again";
  ASSERT_TRUE(provider->destroy("env_a", handle, 1));
  EXPECT_EQ(status(handle), instance_status::gone);
}

constexpr const char* steps[] = {"directories", "uid",      "files",     "intent",  "cgroups",
                                 "socket",      "launched", "listening", "recorded"};

/// Processes that were started for environments of this data directory, in or around a sandbox. As root each has a uid
/// of the range; as an ordinary user bubblewrap's arguments name the directory. One line each.
std::vector<std::string> processes_of(const fs::path& data, std::uint32_t first_uid) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const auto pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || pid == ::getpid())
      continue;
    const auto process = "/proc/" + std::to_string(pid);
    const auto status = providers::read_file(process + "/status").value_or("");
    auto line = providers::read_file(process + "/cmdline").value_or("");
    const auto at = status.find("\nUid:\t");
    const auto uid = at == std::string::npos ? 0 : std::strtoul(status.c_str() + at + 6, nullptr, 10);
    const bool dead = line.empty();
    if (!dead
        && (::geteuid() == 0 ? uid >= first_uid && uid < first_uid + 90
                             : line.find(data.string()) != std::string::npos)) {
      std::replace(line.begin(), line.end(), '\0', ' ');
      found.push_back(std::to_string(pid) + " " + std::to_string(uid) + " " + line);
    }
  }
  return found;
}

void expect_one_instance(const fs::path& data, const providers::instance_record& record, std::uint32_t first_uid) {
  // As root bubblewrap outside and the agent; as an ordinary user bubblewrap is seen.
  EXPECT_EQ(processes_of(data, first_uid).size(), ::geteuid() == 0 ? 2U : 1U)
      << testing::PrintToString(processes_of(data, first_uid));
  EXPECT_TRUE(providers::is_alive(record.agent));
}

TEST_F(crash, a_create_that_was_cut_is_finished_or_undone_by_the_next) {
  std::uint64_t generation = 1;
  for (const auto* step : steps) {
    SCOPED_TRACE(step);
    drive("env_a", generation, step);
    // With the same generation, as by whoever found the row in `creating`, or the next one.
    generation += std::string(step).size() % 2;
    start();
    const auto made = make("env_a", generation);
    EXPECT_EQ(output(made.handle, "echo alive"), "alive");
    expect_one_instance(options.data_dir, record("env_a"), options.uid_first);
    ++generation;
    provider.reset();
  }
}

TEST_F(crash, a_create_that_was_cut_can_be_destroyed) {
  for (const auto* step : steps) {
    SCOPED_TRACE(step);
    drive("env_a", 1, step);
    start();
    const auto destroyed = provider->destroy("env_a", "", 1);
    EXPECT_TRUE(destroyed) << destroyed.error().detail;
    EXPECT_TRUE(fs::is_empty(run_directory("env_a")));
    ASSERT_TRUE(provider->destroy_files("env_a", "fs_env_a"));
    ASSERT_TRUE(provider->forget("env_a"));
    EXPECT_TRUE(fs::is_empty(options.data_dir / "envs"));
    EXPECT_EQ(processes_of(options.data_dir, options.uid_first), std::vector<std::string>{});
    provider.reset();
  }
}

TEST_F(crash, the_same_without_cgroups) {
  options.use_cgroups = false;
  for (const auto* step : steps) {
    SCOPED_TRACE(step);
    drive("env_a", 1, step);
    start();
    const auto made = make("env_a", 2);
    EXPECT_EQ(output(made.handle, "echo alive"), "alive");
    expect_one_instance(options.data_dir, record("env_a"), options.uid_first);
    EXPECT_TRUE(provider->destroy("env_a", made.handle, 2));
    provider.reset();
  }
}

TEST_F(crash, without_a_freezer_signals_stop_everything) {
  options.use_cgroups = false;
  start();
  const auto made = make("env_a");
  run(made.handle, "(sleep 1000 & sleep 1000 &) > /dev/null 2>&1");
  ASSERT_TRUE(provider->suspend(made.handle, 1));
  EXPECT_EQ(status(made.handle), instance_status::suspended);
  for (const auto pid : providers::descendants(record("env_a").agent.pid)) {
    const auto stat =
        providers::parse_process_stat(providers::read_file("/proc/" + std::to_string(pid) + "/stat").value_or(""));
    ASSERT_TRUE(stat);
    EXPECT_TRUE(stat->state == 'T' || stat->state == 'Z') << stat->state;
  }
  provider.reset();
  start();
  EXPECT_EQ(status(made.handle), instance_status::suspended) << "a restarted server knows";
  ASSERT_TRUE(provider->resume(made.handle));
  EXPECT_EQ(output(made.handle, "echo alive"), "alive");
}

} // namespace
} // namespace holt::tests
