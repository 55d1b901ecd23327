#include <csignal>
#include <fstream>

#include "tests/agent/agent_test.hpp"

namespace holt::tests {
namespace {

using clock = std::chrono::steady_clock;

class processes : public agent_test {};
class processes_with_a_clock : public agent_testbed_test {};

// -- names of field reports -----------------------------------------------------------------------------------------------

TEST_F(processes, stream_end_is_never_invented) {
  // The agent dies while a command runs: the stream just ends, and nobody ever says how the command ended.
  {
    auto client = connect();
    auto op = client.start("op", "process.start", command("echo begun; sleep 60"), {"output"});
    client.wait_output(op, 6);
    auto pid = client.accepted(op)->pid;
    crash();
    EXPECT_TRUE(client.wait_closed());
    EXPECT_FALSE(client.stream(op.streams["output"]).last);
    EXPECT_THROW(client.finish(op, milliseconds{1}), std::runtime_error);
    ::kill(static_cast<pid_t>(*pid), SIGKILL);
  }
  auto client = connect(2);
  auto end = client.finish(client.attach("op", 0, {"output"}));
  EXPECT_EQ(end.result.outcome, "unknown");
  EXPECT_EQ(end.error_code, "operation.outcome_unknown");
  EXPECT_FALSE(end.result.result);
}

TEST_F(processes, stream_end_is_never_invented_for_a_killed_leader) {
  auto client = connect();
  auto end = client.shell("op", "kill -9 $$");
  EXPECT_EQ(end.process->state, "killed");
  EXPECT_EQ(end.process->signal, "SIGKILL");
  EXPECT_FALSE(end.process->exit_code);
}

TEST_F(processes, terminal_event_is_flushed) {
  // However long the output and however it ends: every byte, the last frame, then the result.
  auto client = connect();
  for (int i = 0; i < 100; ++i) {
    auto bytes = 1 + (i * 7919) % 300'000;
    auto op = "op" + std::to_string(i);
    auto end = client.shell(op, "head -c " + std::to_string(bytes) + " /dev/zero; exit " + std::to_string(i % 7));
    ASSERT_EQ(end.output.all.size(), static_cast<std::size_t>(bytes));
    ASSERT_TRUE(end.output.last);
    ASSERT_EQ(end.result.finals.at(0).position, static_cast<std::uint64_t>(bytes));
    ASSERT_EQ(end.process->exit_code, i % 7);
  }
}

TEST_F(processes_with_a_clock, handle_outlives_minutes) {
  wire::process_start start = command("echo early; read line; echo late $line");
  start.stdin_mode = "pipe";
  start.background = true;
  {
    auto client = connect();
    auto op = client.start("op", "process.start", start, {"output", "stdin"});
    client.wait_output(op, 6);
  }
  skip(std::chrono::hours{3});
  auto client = connect(2);
  EXPECT_EQ(client.state_of("op"), "running");
  auto op = client.attach("op", 0, {"output", "stdin"});
  client.wait_output(op, 6);
  client.send_data(op.streams["stdin"], 0, "words\n", true);
  auto end = client.finish(op);
  EXPECT_EQ(end.output.all, "early\nlate words\n");
  skip(std::chrono::hours{24});
  auto later = connect(3);
  auto again = later.finish(later.attach("op", 6, {"output"}));
  EXPECT_EQ(again.output.all, "late words\n");
  EXPECT_EQ(again.process->exit_code, 0);
}

TEST_F(processes, timeout_returns_on_time) {
  auto client = connect();
  auto start = command("sleep 30; echo never");
  start.timeout_ms = 400;
  auto before = clock::now();
  auto end = client.run("op", start);
  auto took = clock::now() - before;
  EXPECT_EQ(end.process->state, "timed_out");
  EXPECT_EQ(end.process->signal, "SIGTERM");
  EXPECT_EQ(end.output.all, "");
  EXPECT_GE(took, milliseconds{400});
  EXPECT_LT(took, milliseconds{1500});
  EXPECT_FALSE(alive(static_cast<pid_t>(*end.process->pid)));
}

TEST_F(processes, timeout_returns_on_time_though_term_is_ignored) {
  auto client = connect();
  auto start = command("trap '' TERM; sleep 30 & sleep 30; sleep 30");
  start.timeout_ms = 200;
  start.grace_ms = 300;
  auto before = clock::now();
  auto end = client.run("op", start);
  EXPECT_EQ(end.process->state, "timed_out");
  EXPECT_EQ(end.process->signal, "SIGKILL");
  EXPECT_FALSE(end.process->survivors);
  EXPECT_LT(clock::now() - before, milliseconds{2500});
}

TEST_F(processes, timeout_stands_still_while_frozen) {
  // The agent, and what it runs, stopped for longer than the timeout: what is left of it is left.
  auto client = connect();
  auto start = command("sleep 30");
  start.timeout_ms = 1500;
  auto op = client.start("op", "process.start", start, {"output"});
  client.accepted(op);
  auto before = clock::now();
  agent().kill(SIGSTOP);
  EXPECT_FALSE(client.take_for(milliseconds{3000}));
  agent().kill(SIGCONT);
  auto end = client.finish(op);
  EXPECT_EQ(end.process->state, "timed_out");
  // A second of the freeze may be counted: that is how often the clock is looked at.
  EXPECT_GE(clock::now() - before, milliseconds{3400});
}

TEST_F(processes, stdin_is_closed_by_default) {
  auto client = connect();
  auto end = client.shell("op", "cat; readlink /proc/self/fd/0");
  EXPECT_EQ(end.output.all, "/dev/null\n");
}

TEST_F(processes, unknown_command_is_127) {
  auto client = connect();
  auto end = client.run("argv", argv({"no-such-program", "x"}));
  EXPECT_EQ(end.process->exit_code, 127);
  EXPECT_EQ(end.output.of(true), "holt: no-such-program: command not found\n");
  end = client.shell("shell", "no-such-program");
  EXPECT_EQ(end.process->exit_code, 127);
  EXPECT_NE(end.output.of(true).find("no-such-program: not found"), std::string::npos);
  end = client.run("path", argv({"/no/such/program"}));
  EXPECT_EQ(end.process->exit_code, 127);
  EXPECT_EQ(end.output.of(true), "holt: /no/such/program: No such file or directory\n");
  end = client.run("file", argv({"/etc/passwd"}));
  EXPECT_EQ(end.process->exit_code, 126);
  EXPECT_EQ(end.output.of(true), "holt: /etc/passwd: Permission denied\n");
}

TEST_F(processes, child_holding_pipes_does_not_hang) {
  auto client = connect();
  auto before = clock::now();
  auto end = client.shell("op", "sleep 30 & echo answered; exit 5");
  EXPECT_LT(clock::now() - before, seconds{3});
  EXPECT_EQ(end.output.all, "answered\n");
  EXPECT_EQ(end.process->exit_code, 5);
  EXPECT_TRUE(end.process->output_open);
  // It lives on, until somebody stops it.
  end = client.control("process.stop", "op");
  EXPECT_TRUE(end.result.result);
}

TEST_F(processes, child_holding_pipes_may_write_on_into_the_log) {
  auto client = connect();
  auto go = home() / "go";
  auto end = client.shell("op", "(while [ ! -e " + go.string() + " ]; do sleep 0.05; done; echo later) & echo now");
  EXPECT_EQ(end.output.all, "now\n");
  std::ofstream{go};
  EXPECT_TRUE(eventually([&] { return client.read_log("op", 0, 1000).first == "now\nlater\n"; }));
  // Also after the log was put away with the result.
  EXPECT_TRUE(eventually([&] { return client.control("process.get", "op").process->output_bytes == 10; }));
  EXPECT_EQ(client.finish(client.attach("op", 0, {"output"})).output.all, "now\nlater\n");
}

TEST_F(processes, stopped_means_no_descendant) {
  // Children that left the session, were left by their parent, ignore TERM, or forgot their environment.
  auto client = connect();
  auto pids = home() / "pids";
  auto start = command(R"(
    note() { echo $1 >> )" + pids.string() + R"(; }
    trap '' TERM
    sleep 300 & note $!
    setsid sleep 301 & note $!
    sh -c 'setsid sh -c "sleep 302 & echo \$! >> )" + pids.string() + R"("' 
    (sh -c 'trap "" TERM; while :; do sleep 303; done' & note $!)
    env -i sleep 304 & note $!
    sh -c 'env -i setsid sleep 305 & echo $! >> )" + pids.string() + R"(; wait' & note $!
    echo ready
    while :; do sleep 306; done)");
  start.grace_ms = 200;
  auto op = client.start("op", "process.start", start, {"output"});
  client.wait_output(op, 6);
  ASSERT_TRUE(eventually([&] {
    std::ifstream in{pids};
    return std::distance(std::istream_iterator<int>{in}, {}) == 7;
  }));
  wire::process_ref ref{"op", 200};
  auto stopped = client.finish(client.start("stop", "process.stop", ref, {}));
  EXPECT_EQ(stopped.process->state, "stopped");
  EXPECT_FALSE(stopped.process->survivors);
  std::ifstream in{pids};
  for (int pid; in >> pid;)
    EXPECT_FALSE(alive(pid)) << pid;
  auto end = client.finish(op);
  EXPECT_EQ(end.process->state, "stopped");
  EXPECT_EQ(end.output.all, "ready\n");
}

TEST_F(processes, stopped_means_no_descendant_of_an_ended_leader) {
  auto client = connect();
  auto end = client.shell("op", "setsid sleep 300 >/dev/null 2>&1 </dev/null & echo $!");
  auto pid = std::stoi(end.output.all);
  EXPECT_FALSE(end.process->output_open);
  ASSERT_TRUE(alive(pid));
  EXPECT_EQ(client.control("process.stop", "op").process->exit_code, 0);
  EXPECT_TRUE(eventually([&] { return !alive(pid); }));
}

TEST_F(processes, a_cancel_stops_the_tree) {
  auto client = connect();
  auto op = client.start("op", "process.start", command("sleep 300 & echo $!; sleep 300"), {"output"});
  client.wait_output(op, 2);
  client.send(wire::op_cancel{"op"});
  auto end = client.finish(op);
  EXPECT_EQ(end.process->state, "stopped");
  EXPECT_FALSE(alive(std::stoi(end.output.all)));
}

TEST_F(processes, early_output_is_kept) {
  // Printed before it was moved to the background, before anybody attached again: all of it is in the one log.
  auto client = connect();
  auto start = command("echo early; read x; echo late");
  start.stdin_mode = "pipe";
  start.timeout_ms = 60'000;
  auto op = client.start("op", "process.start", start, {"output", "stdin"});
  client.wait_output(op, 6);
  EXPECT_TRUE(client.control("process.background", "op").process->background);
  client.send(wire::op_detach{"op", {op.streams["output"]}});
  client.send_data(op.streams["stdin"], 0, "\n", true);
  auto end = client.finish(op);
  EXPECT_EQ(end.process->exit_code, 0);
  EXPECT_EQ(client.read_log("op", 0, 1000).first, "early\nlate\n");
  EXPECT_EQ(client.finish(client.attach("op", 0, {"output"})).output.all, "early\nlate\n");
}

TEST_F(processes, long_running_is_not_idle) {
  auto client = connect();
  auto start = command("sleep 900");
  start.background = true;
  auto op = client.start("op", "process.start", start, {});
  client.accepted(op);
  auto list = client.list();
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].op_id, "op");
  EXPECT_EQ(list[0].state, "running");
  EXPECT_TRUE(list[0].background);
  client.control("process.stop", "op");
  EXPECT_EQ(client.list().at(0).state, "stopped");
}

// -- and the rest of spec 37 to 43 ------------------------------------------------------------------------------------------

TEST_F(processes, exit_code_streams_and_positions) {
  auto client = connect();
  auto end = client.shell("op", "echo out; echo err >&2; exit 3");
  EXPECT_EQ(end.result.outcome, "done");
  EXPECT_EQ(end.process->exit_code, 3);
  EXPECT_EQ(end.process->state, "exited");
  EXPECT_EQ(end.output.of(false), "out\n");
  EXPECT_EQ(end.output.of(true), "err\n");
  EXPECT_EQ(end.process->output_bytes, 8u);
  EXPECT_FALSE(end.process->output_open);
}

TEST_F(processes, the_environment_is_the_agents_own_making) {
  ::setenv("HOLT_TEST_SECRET", "x", 1);
  auto client = connect();
  ::unsetenv("HOLT_TEST_SECRET");
  auto start = command("env | sort");
  start.env = std::map<std::string, std::string>{{"A", "1"}, {"HOME", "/nowhere"}, {"HOLT_OP", "other"}};
  auto end = client.run("op", start);
  EXPECT_EQ(end.output.all, "A=1\nHOLT_OP=op\nHOME=/nowhere\nPATH=/usr/local/bin:/usr/bin:/bin\nPWD="
                              + (home() / "workspace").string() + "\nTMPDIR=" + (home() / "tmp").string() + "\n");
}

TEST_F(processes, nothing_of_the_agent_is_inherited) {
  auto client = connect();
  auto end = client.shell("op", "ls -l /proc/self/fd | wc -l; grep SigBlk /proc/self/status; grep SigIgn /proc/self/status; "
                                // The agent raises it right after the spawn.
                                "until grep -qx 1000 /proc/self/oom_score_adj; do :; done; cat /proc/self/oom_score_adj; grep NoNewPrivs /proc/self/status; ulimit -c");
  EXPECT_EQ(end.output.all, "5\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n1000\nNoNewPrivs:\t1\n0\n");
}

TEST_F(processes, a_missing_working_directory_starts_nothing) {
  auto client = connect();
  auto start = command("true");
  start.cwd = "no/such";
  auto end = client.run("op", start);
  EXPECT_EQ(end.result.outcome, "not_started");
  EXPECT_EQ(end.error_code, "process.cwd_not_found");
  // So the id is free.
  std::filesystem::create_directories(home() / "workspace/no/such");
  EXPECT_EQ(client.run("op", start).process->exit_code, 0);
}

TEST_F(processes, wrong_arguments_say_what_is_wrong) {
  auto client = connect();
  EXPECT_EQ(client.run("a", wire::process_start{}).error_code, "request.invalid");
  EXPECT_EQ(client.run("b", argv({})).error_code, "request.invalid");
  EXPECT_EQ(client.run("c", command(std::string{"a\0b", 3})).error_code, "request.invalid");
  auto start = command("true");
  start.stdin_mode = "tty";
  EXPECT_EQ(client.run("d", start).error_code, "request.invalid");
  start = command("true");
  start.env = std::map<std::string, std::string>{{"A=B", "x"}};
  EXPECT_EQ(client.run("e", start).error_code, "request.invalid");
  auto end = client.finish(client.start("f", "process.fly", wire::process_ref{}, {}));
  EXPECT_EQ(end.error_code, "unsupported");
}

TEST_F(processes, a_script_without_an_interpreter_line_is_run_by_the_shell) {
  auto client = connect();
  std::ofstream{home() / "workspace/script"} << "echo script $1\n";
  std::filesystem::permissions(home() / "workspace/script", std::filesystem::perms{0755});
  EXPECT_EQ(client.run("op", argv({"./script", "arg"})).output.all, "script arg\n");
}

TEST_F(processes, input_flows_with_credit) {
  auto client = connect();
  auto start = command("wc -c; echo done");
  start.stdin_mode = "pipe";
  auto op = client.start("op", "process.start", start, {"output", "stdin"});
  auto in = op.streams["stdin"];
  std::string part(10'000, 'x');
  std::uint64_t at = 0;
  while (at < 3'000'000) {
    ASSERT_TRUE(eventually([&] { return client.window(in) >= at + part.size() || client.take_for(milliseconds{5}); }));
    client.send_data(in, at, part, false);
    at += part.size();
  }
  client.send_data(in, at, "", true);
  EXPECT_EQ(client.finish(op).output.all, "3000000\ndone\n");
}

TEST_F(processes, input_to_a_process_that_reads_none_is_held_back) {
  auto client = connect();
  auto start = command("sleep 300");
  start.stdin_mode = "pipe";
  auto op = client.start("op", "process.start", start, {"output", "stdin"});
  client.accepted(op);
  // What the pipe takes, and one credit beyond it; never more.
  std::string part(16 * 1024, 'x');
  std::uint64_t at = 0;
  while (at < 4'000'000) {
    client.take_for(milliseconds{20});
    if (client.window(op.streams["stdin"]) < at + part.size())
      break;
    client.send_data(op.streams["stdin"], at, part, false);
    at += part.size();
  }
  EXPECT_LT(at, 200'000u);
  client.control("process.stop", "op");
}

TEST_F(processes, input_can_be_appended_by_operations) {
  auto client = connect();
  auto start = command("cat");
  start.stdin_mode = "pipe";
  auto op = client.start("op", "process.start", start, {"output"});
  client.accepted(op);
  auto put = client.start("put1", "process.stdin", wire::process_stdin{"op", false}, {"body"});
  client.send_data(put.streams["body"], 0, "one\n", true);
  EXPECT_EQ(client.finish(put).process->state, "running");
  // The same id again writes nothing again.
  EXPECT_EQ(client.finish(client.start("put1", "process.stdin", wire::process_stdin{"op", false}, {"body"})).result.outcome,
            "done");
  put = client.start("put2", "process.stdin", wire::process_stdin{"op", true}, {"body"});
  client.send_data(put.streams["body"], 0, "two\n", true);
  client.finish(put);
  auto end = client.finish(op);
  EXPECT_EQ(end.output.all, "one\ntwo\n");
  EXPECT_EQ(client.finish(client.start("put3", "process.stdin", wire::process_stdin{"op", true}, {})).error_code,
            "process.ended");
}

TEST_F(processes, a_terminal_has_a_size_and_its_program_is_told_of_changes) {
  auto client = connect();
  auto start = command("stty size; trap 'stty size; exit 4' WINCH; echo ready; while :; do sleep 0.05; done");
  start.terminal = wire::terminal_size{100, 30};
  auto op = client.start("op", "process.start", start, {"output"});
  client.wait_output(op, 15);
  auto resized = client.finish(client.start("size", "process.resize", wire::process_resize{"op", {120, 40}}, {}));
  EXPECT_TRUE(resized.process->terminal);
  auto end = client.finish(op);
  EXPECT_EQ(end.output.all, "30 100\r\nready\r\n40 120\r\n");
  EXPECT_EQ(end.process->exit_code, 4);
}

TEST_F(processes, a_terminal_takes_control_keys) {
  auto client = connect();
  auto start = command("trap 'echo interrupted; exit 6' INT; echo ready; while :; do sleep 0.05; done");
  start.terminal = wire::terminal_size{};
  auto op = client.start("op", "process.start", start, {"output", "stdin"});
  client.wait_output(op, 7);
  client.send_data(op.streams["stdin"], 0, "\x03", false);
  auto end = client.finish(op);
  EXPECT_EQ(end.process->exit_code, 6);
  EXPECT_NE(end.output.all.find("interrupted"), std::string::npos);
}

TEST_F(processes, signals_reach_the_group) {
  auto client = connect();
  auto op = client.start("op", "process.start", command("trap 'echo got; exit 9' USR1; echo ready; while :; do sleep 0.05; done"),
                         {"output"});
  client.wait_output(op, 6);
  auto sent = client.finish(client.start("signal", "process.signal", wire::process_signal{"op", "SIGUSR1"}, {}));
  EXPECT_EQ(sent.process->op_id, "op");
  EXPECT_EQ(client.finish(op).process->exit_code, 9);
  EXPECT_EQ(client.finish(client.start("bad", "process.signal", wire::process_signal{"op", "SIGNONE"}, {})).error_code,
            "request.invalid");
  EXPECT_EQ(client.finish(client.start("none", "process.signal", wire::process_signal{"other", "SIGTERM"}, {})).error_code,
            "process.not_found");
}

TEST_F(processes, many_run_side_by_side) {
  auto client = connect();
  std::vector<operation> ops;
  for (int i = 0; i < 40; ++i)
    ops.push_back(client.start("op" + std::to_string(i), "process.start",
                               command("sleep 0.0" + std::to_string(i % 10) + "; echo " + std::to_string(i)), {"output"}));
  for (int i = 0; i < 40; ++i)
    EXPECT_EQ(client.finish(ops[static_cast<std::size_t>(i)]).output.all, std::to_string(i) + "\n");
}

TEST_F(processes, orphans_are_reaped) {
  auto client = connect();
  auto end = client.shell("op", "for i in 1 2 3 4 5; do (sleep 0.01 & ) ; done; setsid sh -c 'sleep 0.02 &' ; echo $$");
  EXPECT_TRUE(eventually([&] {
    std::ifstream children{"/proc/" + std::to_string(agent().pid()) + "/task/" + std::to_string(agent().pid())
                           + "/children"};
    std::string all;
    std::getline(children, all);
    return all.empty();
  }));
}

TEST_F(processes_with_a_clock, too_many_are_refused_and_say_why) {
  options = {"--processes", "8"};
  auto client = connect();
  std::vector<operation> ops;
  for (int i = 0; i < 8; ++i)
    ops.push_back(client.start("op" + std::to_string(i), "process.start", command("sleep 60"), {}));
  auto end = client.shell("more", "true");
  EXPECT_EQ(end.result.outcome, "not_started");
  EXPECT_EQ(end.error_code, "process.limit");
  EXPECT_EQ(end.result.error->retry, "later");
  for (auto& op : ops)
    client.send(wire::op_cancel{op.op_id});
  for (auto& op : ops)
    client.finish(op);
  EXPECT_EQ(client.shell("more", "true").process->exit_code, 0);
}

} // namespace
} // namespace holt::tests
