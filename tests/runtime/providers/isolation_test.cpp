#include <linux/kcmp.h>
#include <netinet/in.h>

#include <fstream>
#include <regex>
#include <set>

#include "tests/runtime/providers/sandbox.hpp"

/// What a sandbox may not do, tried from inside (spec 33, 46).
namespace holt::tests {
namespace {

class isolation : public sandbox_test {
protected:
  std::string handle;
  void SetUp() override {
    sandbox_test::SetUp();
    ::setenv("HOLT_TEST_SECRET", "of-the-server", 1);
    start();
    handle = make("env_a").handle;
  }
};

TEST_F(isolation, a_command_runs_in_its_workspace) {
  const auto result = run(handle, "pwd; id -u; echo hello > a.txt && cat a.txt");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "/workspace\n1000\nhello");
  EXPECT_EQ(output(handle, "echo x > /tmp/x && cat /tmp/x"), "x");
}

TEST_F(isolation, the_machines_files_are_not_there) {
  EXPECT_EQ(run(handle, "ls " + data.string()).exit_code, 2);
  for (const auto* path :
       {"/root", "/home", "/srv", "/mnt", "/media", "/sys", "/boot", "/etc/shadow", "/etc/ssl/private", "/var/lib"})
    EXPECT_NE(run(handle, "ls " + std::string(path)).exit_code, 0) << path;
  EXPECT_EQ(output(handle, "grep -c . /etc/passwd"), "3");
  EXPECT_EQ(output(handle, "ls / | grep -v -x -e lib32 -e libx32"),
            "bin\ndev\netc\nlib\nlib64\nproc\nrun\nsbin\nskills\ntmp\nusr\nvar\nworkspace");
}

TEST_F(isolation, the_machines_processes_are_not_there) {
  const auto seen = output(handle, "ls /proc | grep -E '^[0-9]+$' | wc -l");
  EXPECT_LE(std::stoi(seen), 8) << seen;
  EXPECT_NE(run(handle, "kill -0 " + std::to_string(::getpid())).exit_code, 0);
}

TEST_F(isolation, the_network_is_not_there) {
  EXPECT_EQ(output(handle, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"), "lo");
  const providers::unique_fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  socklen_t size = sizeof address;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const auto port = std::to_string(ntohs(address.sin_port));
  EXPECT_NE(run(handle, "bash -c 'exec 3<>/dev/tcp/127.0.0.1/" + port + "'").exit_code, 0);
}

TEST_F(isolation, the_hosts_network_is_there_only_when_asked_for) {
  auto wanted = spec("env_net");
  wanted.network = "host";
  const auto open = make(wanted).handle;
  const providers::unique_fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  socklen_t size = sizeof address;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const auto port = std::to_string(ntohs(address.sin_port));
  EXPECT_EQ(run(open, "bash -c 'exec 3<>/dev/tcp/127.0.0.1/" + port + "'").exit_code, 0);
  wanted.environment_id = "env_egress";
  wanted.network = "egress";
  const auto refused = provider->create(wanted);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, actors::provider_errc::refused);
}

TEST_F(isolation, nothing_outside_the_roots_can_be_written) {
  for (const auto* path :
       {"/x", "/usr/x", "/etc/x", "/dev/x", "/skills/x", "/run/x", "/run/holt/x", "/var/x", "/proc/x", "/bin/x"})
    EXPECT_NE(run(handle, "echo x > " + std::string(path)).exit_code, 0) << path;
  EXPECT_NE(run(handle, "echo x > /run/holt/agent").exit_code, 0);
  EXPECT_NE(run(handle, "chmod u+w / /dev && mkdir /y").exit_code, 0);
  for (const auto* path : {"/workspace/x", "/tmp/x", "/dev/shm/x", "/var/tmp/y"})
    EXPECT_EQ(run(handle, "echo x > " + std::string(path)).exit_code, 0) << path;
}

TEST_F(isolation, too_much_memory_ends_the_command_and_nothing_else) {
  const auto result = run(handle, "/run/holt/agent try memory 400");
  EXPECT_EQ(result.output.find("allowed"), std::string::npos) << result.output;
  EXPECT_EQ(output(handle, "/run/holt/agent try memory 32"), "allowed");
  EXPECT_EQ(status(handle), actors::instance_status::running);
}

TEST_F(isolation, temporary_files_are_limited) {
  EXPECT_NE(run(handle, "head -c 20000000 /dev/zero > /tmp/large").exit_code, 0);
  EXPECT_EQ(run(handle, "rm /tmp/large").exit_code, 0);
}

TEST_F(isolation, too_many_processes_are_refused) {
  const auto made = std::stoi(output(handle, "/run/holt/agent try processes 200"));
  if (has("process_limit") || has("own_uid")) {
    EXPECT_LT(made, 70);
  } else {
    EXPECT_EQ(made, 200) << "and the report says so";
  }
  EXPECT_EQ(output(handle, "echo alive"), "alive");
}

TEST_F(isolation, too_large_a_file_is_refused) {
  EXPECT_EQ(attempt(handle, "file 65"), "EFBIG");
  EXPECT_EQ(attempt(handle, "file 63"), "allowed");
}

TEST_F(isolation, no_core_is_written) {
  EXPECT_EQ(output(handle, "ulimit -c; ulimit -Hc"), "0\n0");
}

TEST_F(isolation, no_new_namespaces) {
  EXPECT_EQ(attempt(handle, "unshare-user"), "EPERM");
  EXPECT_EQ(attempt(handle, "unshare-time"), "EPERM");
  EXPECT_EQ(attempt(handle, "clone-user"), "EPERM");
  EXPECT_EQ(attempt(handle, "clone3-user"), "ENOSYS");
  EXPECT_EQ(attempt(handle, "setns"), "EPERM");
  EXPECT_NE(run(handle, "unshare -U true").exit_code, 0);
}

TEST_F(isolation, no_mounts) {
  EXPECT_EQ(attempt(handle, "mount"), "EPERM");
  EXPECT_EQ(attempt(handle, "umount"), "EPERM");
  EXPECT_EQ(attempt(handle, "open-tree"), "EPERM");
}

TEST_F(isolation, the_kernel_is_out_of_reach) {
  for (const auto* what : {"module", "bpf", "perf", "keyctl", "userfaultfd", "handle"})
    EXPECT_EQ(attempt(handle, what), "EPERM") << what;
  EXPECT_EQ(attempt(handle, "io-uring"), "ENOSYS");
  EXPECT_EQ(attempt(handle, "foreign-call"), "ENOSYS");
}

TEST_F(isolation, only_the_usual_socket_families) {
  for (const int family : {AF_UNIX, AF_INET, AF_INET6})
    EXPECT_EQ(attempt(handle, "socket " + std::to_string(family)), "allowed");
  for (const int family : {AF_VSOCK, AF_ALG, AF_PACKET, AF_BLUETOOTH, AF_KEY}) {
    EXPECT_EQ(attempt(handle, "socket " + std::to_string(family)), "EAFNOSUPPORT");
    EXPECT_EQ(attempt(handle, "socket-high " + std::to_string(family)), "EAFNOSUPPORT");
  }
}

TEST_F(isolation, nothing_can_be_typed_into_a_terminal) {
  EXPECT_EQ(attempt(handle, "tiocsti"), "EPERM");
  EXPECT_EQ(attempt(handle, "tiocsti-high"), "EPERM");
}

TEST_F(isolation, commands_may_trace_each_other_but_never_the_agent) {
  EXPECT_EQ(attempt(handle, "trace-own-child"), "allowed");
  EXPECT_EQ(attempt(handle, "trace 1"), "EPERM");
  EXPECT_EQ(attempt(handle, "read-memory 1"), "EPERM");
  EXPECT_EQ(attempt(handle, "open-memory 1"), "EACCES");
  EXPECT_EQ(attempt(handle, "steal-descriptor 1"), "EPERM");
  EXPECT_NE(run(handle, "cat /proc/1/environ").exit_code, 0);
  EXPECT_NE(run(handle, "ls /proc/1/fd").exit_code, 0);
}

TEST_F(isolation, signals_from_inside_leave_the_agent_alive) {
  EXPECT_NE(run(handle, "kill -9 -1; kill -9 1; kill -STOP 1; kill -TERM 1; false").exit_code, 0);
  EXPECT_EQ(output(handle, "echo alive"), "alive");
}

TEST_F(isolation, no_privileges_are_gained) {
  EXPECT_EQ(attempt(handle, "privileges"), "1000 1000 1");
  EXPECT_EQ(attempt(handle, "become-root"), "EINVAL");
  EXPECT_EQ(output(handle, "grep -E '^Cap(Prm|Eff|Bnd|Amb)' /proc/self/status | cut -f2 | sort -u"),
            "0000000000000000");
  EXPECT_EQ(output(handle, "grep -E '^Seccomp:' /proc/self/status | cut -f2"), "2");
  EXPECT_NE(run(handle, "su -c true root < /dev/null").exit_code, 0);
  EXPECT_EQ(output(handle, "grep -E ' /(workspace|skills|usr|etc) ' /proc/self/mounts | grep -vc nosuid"), "0");
}

TEST_F(isolation, the_servers_environment_is_not_visible) {
  EXPECT_EQ(output(handle, "env").find("of-the-server"), std::string::npos);
  EXPECT_EQ(output(handle, "env | cut -d= -f1 | grep -v -x -e OLDPWD -e PWD -e _ -e SHLVL | sort | tr '\\n' ' '"),
            "HOME LANG LOGNAME PATH SHELL TMPDIR USER ");
  std::ifstream environment("/proc/" + std::to_string(record("env_a").agent.pid) + "/environ");
  const std::string text((std::istreambuf_iterator<char>(environment)), {});
  EXPECT_EQ(text.find("of-the-server"), std::string::npos);
}

TEST_F(isolation, no_descriptor_of_the_server_is_inside) {
  // As a library does that forgets to close on exec.
  const providers::unique_fd leaked(::open("/etc/passwd", O_RDONLY));
  const providers::unique_fd high(::fcntl(leaked.get(), F_DUPFD, 300));
  const auto other = make("env_b").handle;
  EXPECT_EQ(output(other, "ls /proc/self/fd | tr '\\n' ' '"), "0 1 2 3 ") << "3 is the listing itself";
  if (!is_root())
    return; // the agent can't be looked into by its own user, and that is tested above
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(record("env_b").agent.pid) + "/fd"))
    found.insert(entry.path().filename().string());
  EXPECT_EQ(found, (std::set<std::string>{"0", "1", "2", "3", "4"}))
      << "null, null, errors, the socket, the state directory";
}

TEST_F(isolation, two_environments_dont_see_each_other) {
  const auto other = make("env_b").handle;
  run(handle, "echo mine > /workspace/a; echo mine > /tmp/a; echo mine > /dev/shm/a; sleep 60 > /dev/null 2>&1 &");
  EXPECT_EQ(output(other, "ls /workspace /tmp /dev/shm | grep -c '^a$'"), "0");
  EXPECT_EQ(output(other, "grep -l sleep /proc/*/comm"), "");
  if (is_root()) {
    struct stat one {};
    struct stat two {};
    ASSERT_EQ(::stat((options.data_dir / "envs/env_a/files/fs_env_a/workspace").c_str(), &one), 0);
    ASSERT_EQ(::stat((options.data_dir / "envs/env_b/files/fs_env_b/workspace").c_str(), &two), 0);
    EXPECT_NE(one.st_uid, two.st_uid);
    EXPECT_GE(one.st_uid, options.uid_first);
    EXPECT_EQ(one.st_mode & 0777, 0700U);
  }
}

TEST_F(isolation, the_agents_state_is_no_way_out) {
  if (!is_root()) {
    // Looked at from a sandbox whose agent is a program that shows its own descriptors.
    EXPECT_NE(run(handle, "ls /proc/1/fd/4/..").exit_code, 0);
    return;
  }
  // As whoever took the agent over would: from the agent's own descriptor upwards.
  const auto state = "/proc/" + std::to_string(record("env_a").agent.pid) + "/fd/4";
  struct stat inside {};
  struct stat above {};
  const providers::unique_fd directory(::open(state.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_TRUE(directory);
  ASSERT_EQ(::fstat(directory.get(), &inside), 0);
  ASSERT_EQ(::fstatat(directory.get(), "../../..", &above, 0), 0);
  EXPECT_EQ(inside.st_ino, above.st_ino);
  EXPECT_EQ(inside.st_uid, above.st_uid);
}

TEST_F(isolation, the_servers_socket_can_only_be_reached_by_the_server) {
  struct stat status {};
  ASSERT_EQ(::stat(run_directory("env_a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700U);
  EXPECT_EQ(status.st_uid, ::geteuid());
}

// The same where any user may walk to the data directory, and where the machine has no cgroups.
class isolation_variants : public sandbox_test {};

TEST_F(isolation_variants, a_data_directory_that_others_may_walk_to_is_as_closed) {
  fs::permissions(data, fs::perms(0755));
  fs::create_directories(options.data_dir);
  fs::permissions(options.data_dir, fs::perms(0755));
  start();
  const auto handle = make("env_a").handle;
  EXPECT_EQ(output(handle, "id -u; pwd"), "1000\n/workspace");
  EXPECT_NE(run(handle, "ls " + data.string()).exit_code, 0);
}

TEST_F(isolation_variants, without_cgroups_rlimits_take_their_place_and_the_report_says_so) {
  options.use_cgroups = false;
  start();
  EXPECT_FALSE(has("memory_limit"));
  EXPECT_GE(provider->report().missing.size(), 4U);
  const auto handle = make("env_a").handle;
  EXPECT_EQ(run(handle, "/run/holt/agent try memory 400").output, "ENOMEM");
  if (is_root()) {
    EXPECT_LT(std::stoi(output(handle, "/run/holt/agent try processes 200")), 70);
  }
  EXPECT_EQ(output(handle, "echo alive"), "alive");
}

TEST_F(isolation_variants, what_the_configuration_requires_and_the_machine_lacks_refuses_the_start) {
  options.use_cgroups = false;
  options.require = {"memory_limit"};
  const auto refused = providers::make_bubblewrap(options);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().find("requires memory_limit"), std::string::npos) << refused.error();
  options.require.clear();
}

TEST_F(isolation_variants, a_machine_that_cant_isolate_says_why) {
  options.bwrap = "/usr/bin/false";
  auto made = providers::make_bubblewrap(options);
  ASSERT_TRUE(made);
  EXPECT_FALSE((*made)->report().available);
  EXPECT_NE((*made)->report().missing.front().find("no sandbox can be started"), std::string::npos);
  EXPECT_FALSE((*made)->create(spec("env_a")));
  options.bwrap = "/usr/bin/bwrap";
}

} // namespace
} // namespace holt::tests
