#include <csignal>
#include <fstream>

#include <sys/stat.h>
#include <unistd.h>

#include "tests/agent/agent_test.hpp"

namespace holt::tests {
namespace {

/// As PID 1 of a process namespace of its own, which bubblewrap makes for anybody.
class as_init : public agent_test {
protected:
  std::vector<std::string> program() const override {
    return {"/usr/bin/bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--as-pid-1", "--die-with-parent",
            HOLT_AGENT, "serve"};
  }
};

TEST_F(as_init, the_agent_survives_signals_to_everybody) {
  auto client = connect();
  auto end = client.shell("op", "echo $PPID; kill -9 -1 2>/dev/null");
  EXPECT_EQ(end.output.all, "1\n");
  client.shell("op2", "kill -TERM 1; kill -KILL 1; kill -STOP 1; kill -INT 1");
  EXPECT_EQ(client.shell("op3", "echo alive").output.all, "alive\n");
}

TEST_F(as_init, a_command_that_kills_everybody_ends_the_others_and_is_told_truly) {
  auto client = connect();
  auto other = client.start("other", "process.start", command("echo begun; sleep 300"), {"output"});
  client.wait_output(other, 6);
  client.shell("op", "kill -9 -1; exit 3");
  auto end = client.finish(other);
  EXPECT_EQ(end.process->state, "killed");
  EXPECT_EQ(end.process->signal, "SIGKILL");
  EXPECT_EQ(end.output.all, "begun\n");
}

TEST_F(as_init, orphans_of_any_kind_are_reaped) {
  auto client = connect();
  client.shell("op", "for i in 1 2 3 4 5 6; do (setsid sh -c 'sleep 0.0'$i'; exit 1' &) ; done");
  EXPECT_TRUE(eventually([&] {
    static int again = 0;
    auto end = client.shell("look" + std::to_string(again++), "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l");
    return end.output.all == "0\n";
  }));
}

/// The same by an ordinary user, since root may read everything.
class as_init_of_a_user : public as_init {
protected:
  std::vector<std::string> program() const override {
    auto out = as_init::program();
    if (::getuid() == 0)
      out.insert(out.begin(), {"/usr/bin/setpriv", "--reuid", "61738", "--regid", "61738", "--clear-groups"});
    return out;
  }
  void SetUp() override {
    give_home_to(61738);
  }
};

TEST_F(as_init_of_a_user, the_agent_cannot_be_read_or_traced) {
  auto client = connect();
  EXPECT_NE(client.shell("mem", "head -c 1 /proc/1/mem").process->exit_code, 0);
  EXPECT_NE(client.shell("environ", "cat /proc/1/environ").process->exit_code, 0);
  EXPECT_NE(client.shell("fd", "ls /proc/1/fd").process->exit_code, 0);
}

/// Where few processes may run: a limit on its user, who has no others.
class with_few_processes : public agent_test {
protected:
  std::vector<std::string> program() const override {
    if (::getuid() != 0) {
      // Of an ordinary user, all processes count.
      std::size_t mine = 0;
      for (auto& entry : std::filesystem::directory_iterator{"/proc"}) {
        struct stat status {};
        if (::stat(entry.path().c_str(), &status) == 0 && status.st_uid == ::getuid())
          ++mine;
      }
      return {"/usr/bin/prlimit", "--nproc=" + std::to_string(mine + 60), HOLT_AGENT, "serve"};
    }
    return {"/usr/bin/setpriv", "--reuid", "61739", "--regid", "61739", "--clear-groups", "/usr/bin/prlimit", "--nproc=60",
            HOLT_AGENT, "serve"};
  }
  void SetUp() override {
    give_home_to(61739);
  }
};

TEST_F(with_few_processes, fork_storm_leaves_agent_alive) {
  auto client = connect();
  // Every process of it forks whenever it can, and ignores what it can.
  auto storm = client.start("storm", "process.start",
                            argv({"/usr/bin/perl", "-e",
                                  "$SIG{TERM} = $SIG{HUP} = $SIG{INT} = 'IGNORE'; $| = 1; print qq(begun\\n); "
                                  "while (1) { fork // select(undef, undef, undef, 0.01) }"}),
                            {"output"});
  client.wait_output(storm, 6);
  // The limit is reached: a new command can't start, says so, and says why; soon, not in minutes.
  int attempt = 0;
  EXPECT_TRUE(eventually([&] {
    auto end = client.run("try" + std::to_string(attempt++), argv({"/bin/true"}), seconds{10});
    return end.result.outcome == "not_started" && end.error_code == "process.limit"
           && end.result.error->details->at("reason") == "process_limit";
  }));
  EXPECT_EQ(client.list().at(0).state, "running");
  // The agent ends the storm, all of it.
  auto stopped = client.finish(client.start("stop", "process.stop", wire::process_ref{"storm", 100}, {}));
  EXPECT_EQ(stopped.process->state, "stopped");
  EXPECT_FALSE(stopped.process->survivors);
  client.finish(storm);
  EXPECT_EQ(client.run("after", argv({"/bin/echo", "alive"})).output.all, "alive\n");
}

} // namespace
} // namespace holt::tests
