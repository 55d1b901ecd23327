#include <csignal>
#include <fstream>
#include <random>

#include "tests/agent/agent_test.hpp"

namespace holt::tests {
namespace {

class a_crash : public agent_test {};

std::size_t lines_of(const std::filesystem::path& file) {
  std::ifstream in{file};
  std::string line;
  std::size_t count = 0;
  while (std::getline(in, line))
    ++count;
  return count;
}

TEST_F(a_crash, never_makes_anything_run_twice) {
  // Commands that count themselves, an agent that is killed at any point, and a client that asks for the same ids until
  // each has an answer. Fixed seed; the moments of the kills are what differs from run to run.
  std::mt19937 random{1};
  std::uint64_t epoch = 1;
  constexpr int operations = 60;
  std::map<std::string, std::string> answers;
  int unknown = 0;
  while (answers.size() < operations) {
    auto client = connect(epoch++);
    std::vector<operation> begun;
    for (int i = 0; i < operations; ++i) {
      auto id = "op" + std::to_string(i);
      if (!answers.contains(id) && begun.size() < 12)
        begun.push_back(client.start(id, "process.start", command("echo x >> ran-" + id + "; echo " + id), {"output"},
                                     i % 2 == 0));
    }
    auto until = std::chrono::steady_clock::now() + std::chrono::microseconds{random() % 40'000};
    try {
      for (auto& op : begun) {
        auto left = std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now());
        auto end = client.finish(op, std::max(left, milliseconds{1}));
        if (end.result.outcome == "unknown") {
          answers[op.op_id] = "unknown";
          ++unknown;
        } else {
          ASSERT_EQ(end.result.outcome, "done") << end.error_code;
          ASSERT_EQ(end.output.all, op.op_id + "\n");
          answers[op.op_id] = "done";
        }
      }
    } catch (const std::runtime_error&) {
      // Time to kill.
    }
    crash();
  }
  for (auto& [id, answer] : answers) {
    auto ran = lines_of(home() / "workspace" / ("ran-" + id));
    if (answer == "done") {
      EXPECT_EQ(ran, 1u) << id;
    } else {
      EXPECT_LE(ran, 1u) << id;
    }
  }
  // And what was answered stays answered.
  auto client = connect(epoch);
  for (auto& [id, answer] : answers)
    EXPECT_EQ(client.state_of(id), answer) << id;
  RecordProperty("unknown", unknown);
}

TEST_F(a_crash, keeps_results_and_their_output) {
  std::string whole;
  {
    auto client = connect();
    client.shell("small", "echo small; echo err >&2");
    whole = client.shell("large", "seq 1 100000; seq 1 100 >&2").output.all;
  }
  crash();
  auto client = connect(2);
  auto small = client.finish(client.attach("small", 0, {"output"}));
  EXPECT_EQ(small.output.of(false), "small\n");
  EXPECT_EQ(small.output.of(true), "err\n");
  auto large = client.finish(client.attach("large", 0, {"output"}));
  EXPECT_TRUE(large.output.all == whole);
  EXPECT_EQ(large.process->exit_code, 0);
  EXPECT_EQ(client.list().size(), 2u);
}

TEST_F(a_crash, leaves_what_ran_unknown) {
  pid_t pid;
  {
    auto client = connect();
    pid = static_cast<pid_t>(*client.accepted(client.start("op", "process.start", command("sleep 60"), {}))->pid);
  }
  crash();
  ::kill(pid, SIGKILL);
  auto client = connect(2);
  EXPECT_EQ(client.state_of("op"), "unknown");
  EXPECT_EQ(client.control("process.get", "op").process->state, "unknown");
  auto again = client.finish(client.start("op", "process.start", command("sleep 60"), {}));
  EXPECT_EQ(again.result.outcome, "unknown");
  EXPECT_EQ(again.error_code, "operation.outcome_unknown");
}

} // namespace
} // namespace holt::tests
