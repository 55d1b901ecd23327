#include "tests/agent/agent_test.hpp"

namespace holt::tests {
namespace {

class sessions : public agent_test {};
class sessions_with_a_clock : public agent_testbed_test {};

TEST_F(sessions, hello_says_what_the_agent_is) {
  auto client = connect();
  auto& hello = client.hello();
  EXPECT_EQ(hello.versions.max, 1u);
  EXPECT_EQ(hello.os, "linux");
  EXPECT_EQ(hello.roots.workspace, home() / "workspace");
  EXPECT_EQ(hello.process_id.size(), 32u);
  EXPECT_FALSE(hello.operations);
}

TEST_F(sessions, hello_names_what_runs) {
  {
    auto client = connect();
    client.accepted(client.start("op", "process.start", command("sleep 60"), {}));
  }
  auto client = connect(2);
  ASSERT_TRUE(client.hello().operations);
  EXPECT_EQ(client.hello().operations->at(0).op_id, "op");
  client.control("process.stop", "op");
}

TEST_F(sessions, a_higher_or_equal_epoch_takes_over) {
  auto first = connect(5);
  first.shell("op", "true");
  auto second = connect(5);
  EXPECT_TRUE(first.wait_closed());
  EXPECT_EQ(first.errors().at(0).code, "protocol.superseded");
  EXPECT_EQ(second.shell("op2", "echo here").output.all, "here\n");
  auto third = connect(6);
  EXPECT_TRUE(second.wait_closed());
}

TEST_F(sessions, a_lower_epoch_is_refused_and_the_present_session_stays) {
  auto first = connect(5);
  first.shell("op", "true");
  auto stale = connect(4);
  EXPECT_TRUE(stale.wait_closed());
  EXPECT_EQ(stale.errors().at(0).code, "protocol.stale_epoch");
  EXPECT_EQ(first.shell("op2", "echo here").output.all, "here\n");
  // Another incarnation of the database begins anew.
  auto restored = connect(1, "two");
  EXPECT_EQ(restored.shell("op3", "echo here").output.all, "here\n");
}

TEST_F(sessions, the_epoch_outlives_the_agents_run) {
  connect(7).shell("op", "true");
  crash();
  auto stale = connect(6);
  EXPECT_TRUE(stale.wait_closed());
  EXPECT_EQ(stale.errors().at(0).code, "protocol.stale_epoch");
  EXPECT_EQ(connect(7).shell("op2", "echo here").output.all, "here\n");
}

TEST_F(sessions, an_unknown_version_is_refused) {
  auto client = agent_client::raw(agent().socket());
  wire::challenge challenge;
  challenge.versions = {2, 3};
  client.send(challenge);
  EXPECT_TRUE(client.wait_closed());
  EXPECT_EQ(client.errors().at(0).code, "protocol.version");
}

TEST_F(sessions_with_a_clock, a_handshake_has_ten_seconds) {
  auto client = agent_client::raw(agent().socket());
  client.take_for(milliseconds{20});
  skip(seconds{11});
  EXPECT_TRUE(client.wait_closed());
  EXPECT_EQ(client.errors().at(0).code, "protocol.timeout");
}

TEST_F(sessions_with_a_clock, a_silent_peer_is_asked_and_then_given_up) {
  auto client = agent_client::raw(agent().socket());
  wire::challenge challenge;
  client.send(challenge);
  client.take_for(milliseconds{100});
  wire::welcome welcome;
  welcome.incarnation = "one";
  welcome.epoch = 1;
  client.send(welcome);
  client.take_for(milliseconds{100});
  // It is asked after 15 seconds, and answers by itself.
  skip(seconds{30});
  EXPECT_FALSE(client.take_for(milliseconds{200}));
  skip(seconds{20});
  EXPECT_FALSE(client.take_for(milliseconds{200}));
  // And is given up when it doesn't answer.
  skip(seconds{41});
  EXPECT_TRUE(client.wait_closed());
}

TEST_F(sessions, disconnecting_stops_no_process) {
  {
    auto client = connect();
    client.accepted(client.start("op", "process.start", command("sleep 0.3; echo still"), {"output"}));
  }
  auto client = connect(2);
  auto end = client.finish(client.attach("op", 0, {"output"}));
  EXPECT_EQ(end.output.all, "still\n");
  EXPECT_EQ(end.process->exit_code, 0);
}

TEST_F(sessions, the_same_id_again_runs_nothing_again) {
  auto client = connect();
  auto once = client.shell("op", "echo run >> count; cat count");
  EXPECT_EQ(once.output.all, "run\n");
  EXPECT_FALSE(once.accepted->attached);
  auto again = client.shell("op", "echo run >> count; cat count");
  EXPECT_EQ(again.output.all, "run\n");
  EXPECT_TRUE(again.accepted->attached);
  EXPECT_EQ(again.process->started_at, once.process->started_at);
  auto other = client.finish(client.start("op", "process.start", command("true"), {"output"}, false, "other digest"));
  EXPECT_EQ(other.result.outcome, "not_started");
  EXPECT_EQ(other.error_code, "operation.conflict");
}

TEST_F(sessions, the_same_id_attaches_while_it_runs) {
  auto client = connect();
  auto start = command("echo one; read x; echo two");
  start.stdin_mode = "pipe";
  auto op = client.start("op", "process.start", start, {"output", "stdin"});
  client.wait_output(op, 4);
  auto again = client.start("op", "process.start", start, {"output"});
  client.wait_output(again, 4);
  client.send_data(op.streams["stdin"], 0, "\n", true);
  EXPECT_EQ(client.finish(op).output.all, "one\ntwo\n");
  EXPECT_EQ(client.finish(again).output.all, "one\ntwo\n");
}

TEST_F(sessions, a_forgotten_result_is_expired_and_its_id_known) {
  auto client = connect();
  client.shell("op", "head -c 100000 /dev/zero");
  EXPECT_EQ(client.state_of("op"), "done");
  client.send(wire::op_forget{"op"});
  EXPECT_EQ(client.state_of("op"), "expired");
  auto end = client.shell("op", "head -c 100000 /dev/zero");
  EXPECT_EQ(end.error_code, "operation.expired");
  EXPECT_EQ(client.finish(client.attach("op", 0, {"output"})).error_code, "operation.expired");
  EXPECT_EQ(client.state_of("other"), "never");
  auto files = std::distance(std::filesystem::directory_iterator{home() / "state"}, {});
  EXPECT_EQ(files, 1) << "only the ledger is left";
}

TEST_F(sessions, more_streams_than_a_connection_has_are_refused) {
  auto client = connect();
  std::vector<operation> ops;
  for (int i = 0; i < 64; ++i)
    ops.push_back(client.start("op" + std::to_string(i), "process.start", command("sleep 60"), {"output"}));
  auto end = client.shell("more", "true");
  EXPECT_EQ(end.result.outcome, "not_started");
  EXPECT_EQ(end.error_code, "environment.busy");
  EXPECT_EQ(end.result.error->retry, "later");
  for (auto& op : ops)
    client.send(wire::op_cancel{op.op_id});
  for (auto& op : ops)
    client.finish(op);
  EXPECT_EQ(client.shell("more", "true").process->exit_code, 0);
}

TEST_F(sessions, an_unknown_kind_is_answered_and_the_session_goes_on) {
  auto client = connect();
  client.send_bytes(protocols::control_frame(R"({"kind":"op.dance"})"));
  EXPECT_EQ(client.shell("op", "echo on").output.all, "on\n");
  EXPECT_EQ(client.errors().at(0).code, "unsupported");
}

} // namespace
} // namespace holt::tests
