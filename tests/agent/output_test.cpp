#include <random>

#include "tests/agent/agent_test.hpp"

namespace holt::tests {
namespace {

class output : public agent_test {};
class output_with_a_clock : public agent_testbed_test {};

TEST_F(output, binary_bytes_arrive_unchanged) {
  auto client = connect();
  std::string all;
  for (int i = 0; i < 256; ++i)
    all += static_cast<char>(i);
  auto end = client.shell("op", R"sh(i=0; while [ $i -lt 256 ]; do printf "\\$(printf %o $i)"; i=$((i+1)); done)sh");
  EXPECT_EQ(end.output.all, all);
}

TEST_F(output, a_large_output_arrives_whole_though_the_log_keeps_only_its_ends) {
  auto client = connect();
  auto start = command("seq 1 3000000");
  start.log_head_bytes = 1000;
  start.log_tail_bytes = 2000;
  auto end = client.run("op", start);
  std::string expected;
  for (int i = 1; i <= 3'000'000; ++i)
    expected += std::to_string(i) + "\n";
  EXPECT_TRUE(end.output.all == expected);
  EXPECT_TRUE(end.output.gaps.empty());
  ASSERT_TRUE(end.process->omitted);
  EXPECT_EQ(end.process->omitted->from, 1000u);
  EXPECT_EQ(end.process->omitted->to, expected.size() - 2000);
  EXPECT_EQ(client.read_log("op", 0, 100'000'000).first, expected.substr(0, 1000));
  auto [tail, read] = client.read_log("op", 1000, 100'000'000);
  EXPECT_EQ(tail, expected.substr(expected.size() - 2000));
  EXPECT_EQ(read.from, expected.size() - 2000);
  EXPECT_EQ(read.next, expected.size());
}

TEST_F(output, a_late_reader_is_told_of_the_gap) {
  auto client = connect();
  auto start = command("seq 1 1000000");
  start.log_head_bytes = 1000;
  start.log_tail_bytes = 2000;
  auto whole = client.run("op", start).output.all;
  crash();
  auto second = connect(2);
  auto end = second.finish(second.attach("op", 0, {"output"}));
  // The ring may hold more than was asked for: what comes is right, and begins and ends as promised.
  ASSERT_EQ(end.output.gaps.size(), 1u);
  auto gap = end.output.gaps[0];
  EXPECT_GE(gap.from, 1000u);
  EXPECT_LE(gap.to, whole.size() - 2000);
  EXPECT_TRUE(end.output.all == whole.substr(0, gap.from) + whole.substr(gap.to));
  EXPECT_EQ(end.result.finals.at(0).position, whole.size());
}

TEST_F(output, both_kinds_interleaved_keep_their_bytes_and_order) {
  auto client = connect();
  auto end = client.shell("op", "i=0; while [ $i -lt 3000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done");
  std::string out, err;
  for (int i = 0; i < 3000; ++i) {
    out += "out " + std::to_string(i) + "\n";
    err += "err " + std::to_string(i) + "\n";
  }
  EXPECT_EQ(end.output.of(false), out);
  EXPECT_EQ(end.output.of(true), err);
  // Kept as it was told: the same bytes at the same positions, of the same kind.
  auto again = client.finish(client.attach("op", 0, {"output"}));
  EXPECT_EQ(again.output.all, end.output.all);
  EXPECT_EQ(again.output.of(true), err);
  wire::process_read read;
  read.process = "op";
  read.only = "stderr";
  read.max = 1'000'000;
  EXPECT_EQ(client.finish(client.start("read", "process.read", read, {"body"})).output.all, err);
}

TEST_F(output, a_reader_without_credit_holds_its_process_back_and_nobody_else) {
  auto client = connect();
  client.credit = 0;
  auto slow = client.start("slow", "process.start", command("head -c 10000000 /dev/zero; echo end"), {"output"});
  client.wait_output(slow, 64 * 1024);
  auto quick = client.start("quick", "process.start", command("echo quick"), {"output"});
  EXPECT_EQ(client.finish(quick).output.all, "quick\n");
  EXPECT_FALSE(client.take_for(milliseconds{200}));
  EXPECT_EQ(client.stream(slow.streams["output"]).all.size(), 64u * 1024);
  // Held back: what it wrote is what the pipe holds, and no more.
  auto state = client.control("process.get", "slow");
  EXPECT_EQ(state.process->state, "running");
  EXPECT_LE(state.process->output_bytes, 64u * 1024);
  client.credit = 1024 * 1024;
  client.grant(slow.streams["output"], 1024 * 1024, 64 * 1024);
  EXPECT_EQ(client.finish(slow).output.all.size(), 10'000'004u);
}

TEST_F(output, a_detached_process_never_waits) {
  auto client = connect();
  client.credit = 0;
  auto op = client.start("op", "process.start", command("head -c 30000000 /dev/zero; echo end"), {"output"});
  client.wait_output(op, 64 * 1024);
  client.send(wire::op_detach{"op", {op.streams["output"]}});
  auto end = client.finish(op);
  EXPECT_EQ(end.process->output_bytes, 30'000'004u);
  EXPECT_EQ(end.process->exit_code, 0);
  ASSERT_TRUE(end.process->omitted);
  client.credit = 1024 * 1024;
  auto [tail, read] = client.read_log("op", 30'000'000, 100);
  EXPECT_EQ(tail, "end\n");
}

TEST_F(output_with_a_clock, a_reader_that_takes_nothing_for_a_minute_is_detached) {
  auto client = connect();
  client.credit = 0;
  auto op = client.start("op", "process.start", command("head -c 3000000 /dev/zero; echo end"), {"output"});
  client.wait_output(op, 64 * 1024);
  client.take_for(milliseconds{50});
  skip(seconds{59});
  EXPECT_EQ(client.control("process.get", "op").process->state, "running");
  skip(seconds{2});
  auto notice = protocols::read_control<wire::op_detach>(client.wait_kind(wire::op_detach::kind)).value();
  EXPECT_EQ(notice.op_id, "op");
  auto end = client.finish(op);
  EXPECT_EQ(end.process->output_bytes, 3'000'004u);
  ASSERT_EQ(end.output.gaps.size(), 1u);
  EXPECT_EQ(end.output.gaps[0].from, 64u * 1024);
  EXPECT_EQ(end.output.gaps[0].to, 3'000'004u);
}

TEST_F(output, two_readers_get_the_same) {
  auto client = connect();
  auto start = command("read x; seq 1 200000; seq 1 1000 >&2");
  start.stdin_mode = "pipe";
  auto first = client.start("op", "process.start", start, {"output", "stdin"});
  client.accepted(first);
  auto second = client.attach("op", 0, {"output"});
  client.send_data(first.streams["stdin"], 0, "\n", true);
  auto end = client.finish(first);
  auto other = client.finish(second);
  EXPECT_EQ(end.output.all.size(), end.process->output_bytes);
  EXPECT_TRUE(end.output.all == other.output.all);
  EXPECT_EQ(end.output.of(true), other.output.of(true));
}

TEST_F(output, attaching_without_following_ends_at_once) {
  auto client = connect();
  auto op = client.start("op", "process.start", command("echo begun; sleep 60"), {});
  client.accepted(op);
  ASSERT_TRUE(eventually([&] { return client.read_log("op", 0, 100).first == "begun\n"; }));
  auto end = client.finish(client.attach("op", 2, {"output"}, false));
  EXPECT_EQ(end.output.all, "gun\n");
  EXPECT_EQ(end.process->state, "running");
  EXPECT_FALSE(end.process->exit_code);
  client.send(wire::op_cancel{"op"});
  EXPECT_EQ(client.finish(op).process->state, "stopped");
}

TEST_F(output, a_stream_goes_on_at_its_exact_position_after_the_session_dropped) {
  std::string got;
  {
    auto client = connect();
    auto op = client.start("op", "process.start", command("for i in $(seq 1 2000); do echo line $i; done; sleep 0.3; seq 1 9999"),
                           {"output"});
    client.wait_output(op, 5000);
    got = client.stream(op.streams["output"]).all;
  }
  auto client = connect(2);
  auto end = client.finish(client.attach("op", got.size(), {"output"}));
  got += end.output.all;
  std::string expected;
  for (int i = 1; i <= 2000; ++i)
    expected += "line " + std::to_string(i) + "\n";
  for (int i = 1; i <= 9999; ++i)
    expected += std::to_string(i) + "\n";
  EXPECT_TRUE(got == expected);
}

TEST_F(output, a_flood_from_one_delays_no_other) {
  auto client = connect();
  auto flood = client.start("flood", "process.start", command("head -c 300000000 /dev/zero"), {"output"});
  client.wait_output(flood, 1'000'000);
  for (int i = 0; i < 10; ++i) {
    auto before = std::chrono::steady_clock::now();
    EXPECT_EQ(client.shell("op" + std::to_string(i), "echo hi").output.all, "hi\n");
    EXPECT_LT(std::chrono::steady_clock::now() - before, seconds{2});
  }
  client.send(wire::op_cancel{"flood"});
  client.finish(flood);
}

} // namespace
} // namespace holt::tests
