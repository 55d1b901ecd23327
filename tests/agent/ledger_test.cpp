#include "agent/ledger.hpp"

#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "tests/agent/state_directory.hpp"

namespace holt::agent {
namespace {

using state = ledger::state;

constexpr std::int64_t day = 24ll * 3600 * 1'000'000;

class ledgers : public ::testing::Test {
protected:
  tests::state_directory dir;
  std::int64_t now = 1'000 * day;

  ledger open(ledger_limits limits = {}) {
    return ledger{dir.fd(), limits, now};
  }

  static ledger::entry result(std::string text) {
    ledger::entry out;
    out.digest = "d";
    out.operation = "process.start";
    out.result = std::move(text);
    return out;
  }

  std::filesystem::path file() const {
    return dir.path() / "ledger";
  }
};

TEST_F(ledgers, an_id_goes_from_never_to_running_to_done) {
  auto ledger = open();
  EXPECT_EQ(ledger.find("op").state, state::never);
  EXPECT_TRUE(ledger.start("op", "digest", "process.start", now, true));
  EXPECT_EQ(ledger.find("op").state, state::running);
  EXPECT_EQ(ledger.find("op").digest, "digest");
  EXPECT_TRUE(ledger.finish("op", result("R{}"), now));
  EXPECT_EQ(ledger.find("op").state, state::done);
  EXPECT_EQ(ledger.find("op").result, "R{}");
}

TEST_F(ledgers, what_was_begun_by_an_earlier_run_is_unknown) {
  open().start("op", "d", "process.start", now, false);
  EXPECT_EQ(open().find("op").state, state::unknown);
  // And stays so.
  EXPECT_EQ(open().find("op").state, state::unknown);
}

TEST_F(ledgers, a_result_outlives_the_run) {
  {
    auto ledger = open();
    ledger.start("op", "d", "process.start", now, false);
    auto kept = result("Rtext");
    kept.log = std::string("log\0bytes", 9);
    kept.log_id = ledger.new_log_id();
    ledger.finish("op", kept, now);
  }
  auto ledger = open();
  auto found = ledger.find("op");
  EXPECT_EQ(found.state, state::done);
  EXPECT_EQ(found.result, "Rtext");
  EXPECT_EQ(found.log, std::string("log\0bytes", 9));
  EXPECT_GT(ledger.new_log_id(), found.log_id);
}

TEST_F(ledgers, what_never_began_may_begin_again) {
  auto ledger = open();
  ledger.start("op", "d", "process.start", now, false);
  ledger.release("op", now);
  EXPECT_EQ(ledger.find("op").state, state::never);
  EXPECT_EQ(open().find("op").state, state::never);
}

TEST_F(ledgers, a_forgotten_result_leaves_its_id) {
  {
    auto ledger = open();
    ledger.start("op", "d", "process.start", now, false);
    ledger.finish("op", result("R"), now);
    ledger.forget("op", now);
    EXPECT_EQ(ledger.find("op").state, state::expired);
    EXPECT_EQ(ledger.find("op").result, "");
    EXPECT_EQ(ledger.find("op").digest, "d");
    ledger.start("running", "d", "process.start", now, false);
    ledger.forget("running", now);
    EXPECT_EQ(ledger.find("running").state, state::running);
  }
  EXPECT_EQ(open().find("op").state, state::expired);
}

TEST_F(ledgers, an_id_is_known_for_thirty_days) {
  {
    auto ledger = open();
    ledger.start("op", "d", "process.start", now, false);
    ledger.finish("op", result("R"), now);
    ledger.forget("op", now);
    ledger.start("begun", "d", "process.start", now, false);
  }
  now += 29 * day;
  EXPECT_EQ(open().find("op").state, state::expired);
  EXPECT_EQ(open().find("begun").state, state::unknown);
  now += 2 * day;
  EXPECT_EQ(open().find("op").state, state::never);
  EXPECT_EQ(open().find("begun").state, state::never);
}

TEST_F(ledgers, old_results_go_when_there_are_too_many) {
  auto ledger = open({.results = 3});
  for (auto id : {"a", "b", "c", "d", "e"}) {
    ledger.start(id, "d", "process.start", now, false);
    ledger.finish(id, result(id), now);
  }
  EXPECT_EQ(ledger.find("a").state, state::expired);
  EXPECT_EQ(ledger.find("b").state, state::expired);
  EXPECT_EQ(ledger.find("c").result, "c");
  auto recent = ledger.recent("process.start", 10);
  ASSERT_EQ(recent.size(), 3u);
  EXPECT_EQ(recent[0].first, "e");
}

TEST_F(ledgers, old_results_go_when_they_take_too_much_room_and_their_logs_with_them) {
  auto ledger = open({.bytes = 10'000});
  for (std::uint64_t i = 1; i <= 5; ++i) {
    auto id = "op" + std::to_string(i);
    ledger.start(id, "d", "process.start", now, false);
    auto kept = result("R");
    kept.log_id = ledger.new_log_id();
    kept.stored = 4000;
    std::ofstream{dir.path() / (ledger::log_name(kept.log_id) + ".log")} << "x";
    ledger.finish(id, kept, now);
  }
  EXPECT_EQ(ledger.find("op3").state, state::expired);
  EXPECT_EQ(ledger.find("op4").state, state::done);
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "o3.log"));
  EXPECT_TRUE(std::filesystem::exists(dir.path() / "o4.log"));
}

TEST_F(ledgers, a_result_that_grew_counts_once) {
  auto ledger = open({.results = 2});
  ledger.start("a", "d", "process.start", now, false);
  ledger.finish("a", result("one"), now);
  ledger.finish("a", result("two"), now);
  ledger.start("b", "d", "process.start", now, false);
  ledger.finish("b", result("b"), now);
  EXPECT_EQ(ledger.find("a").result, "two");
  EXPECT_EQ(ledger.find("b").result, "b");
}

TEST_F(ledgers, logs_that_nothing_names_are_removed) {
  std::ofstream{dir.path() / "o7.log"} << "x";
  std::ofstream{dir.path() / "o7.kinds"} << "x";
  std::ofstream{dir.path() / "other"} << "x";
  auto ledger = open();
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "o7.log"));
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "o7.kinds"));
  EXPECT_TRUE(std::filesystem::exists(dir.path() / "other"));
}

TEST_F(ledgers, the_file_does_not_grow_for_ever) {
  auto ledger = open({.results = 10, .least_compaction = 4096});
  for (int i = 0; i < 2000; ++i) {
    auto id = "op" + std::to_string(i);
    ledger.start(id, "d", "process.start", now, false);
    ledger.finish(id, result(std::string(200, 'x')), now);
    now += day / 50;
  }
  // 40 days of them: 30 are known.
  EXPECT_LT(ledger.file_bytes(), 2 * 1600 * 120u);
  EXPECT_EQ(ledger.find("op1999").state, state::done);
  EXPECT_EQ(ledger.find("op1900").state, state::expired);
  EXPECT_EQ(ledger.find("op100").state, state::never);
}

TEST_F(ledgers, what_runs_keeps_running_through_a_compaction) {
  auto ledger = open({.results = 5, .least_compaction = 4096});
  ledger.start("runs", "d", "process.start", now, false);
  for (int i = 0; i < 300; ++i) {
    auto id = "op" + std::to_string(i);
    ledger.start(id, "d", "process.start", now, false);
    ledger.finish(id, result(std::string(100, 'x')), now);
  }
  EXPECT_EQ(ledger.find("runs").state, state::running);
  EXPECT_EQ(open().find("runs").state, state::unknown);
}

TEST_F(ledgers, epochs_are_kept_by_incarnation) {
  {
    auto ledger = open();
    EXPECT_EQ(ledger.epoch("one"), 0u);
    ledger.set_epoch("one", 5, now);
    ledger.set_epoch("two", 1, now);
    ledger.set_epoch("one", 6, now);
  }
  auto ledger = open();
  EXPECT_EQ(ledger.epoch("one"), 6u);
  EXPECT_EQ(ledger.epoch("two"), 1u);
  EXPECT_EQ(open().epoch("one"), 6u);
}

TEST_F(ledgers, a_torn_tail_loses_only_what_was_torn) {
  // Cut at every byte: each state is one that was true at some moment, and what was whole stays.
  std::vector<std::uint64_t> ends;
  {
    auto ledger = open();
    for (int i = 0; i < 2; ++i) {
      auto id = "op" + std::to_string(i);
      ledger.start(id, "d", "process.start", now, false);
      ends.push_back(ledger.file_bytes());
      ledger.finish(id, result("R" + id), now);
      ends.push_back(ledger.file_bytes());
    }
  }
  std::string whole;
  {
    std::ifstream in{file(), std::ios::binary};
    whole.assign(std::istreambuf_iterator<char>{in}, {});
  }
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    for (bool garbage : {false, true}) {
      std::ofstream{file(), std::ios::binary | std::ios::trunc}
        << whole.substr(0, size) + (garbage ? std::string(50, '\x5a') : "");
      auto ledger = open();
      ASSERT_TRUE(ledger.ok());
      for (std::size_t i = 0; i < 2; ++i) {
        auto found = ledger.find("op" + std::to_string(i));
        // The last 7 bytes of a record may be padding.
        if (size >= ends[2 * i + 1]) {
          ASSERT_EQ(found.state, state::done) << size;
        } else if (size + 7 < ends[2 * i]) {
          ASSERT_EQ(found.state, state::never) << size;
        } else if (size >= ends[2 * i] && size + 7 < ends[2 * i + 1]) {
          ASSERT_EQ(found.state, state::unknown) << size;
        }
      }
      ASSERT_TRUE(ledger.start("new", "d", "process.start", now, false));
      ASSERT_EQ(ledger.find("new").state, state::running);
    }
  }
}

TEST_F(ledgers, a_file_that_is_something_else_is_begun_anew) {
  std::ofstream{file()} << std::string(5000, 'x');
  auto ledger = open();
  EXPECT_TRUE(ledger.ok());
  EXPECT_TRUE(ledger.start("op", "d", "process.start", now, false));
  EXPECT_EQ(open().find("op").state, state::unknown);
}

TEST_F(ledgers, agree_with_a_simple_map_whatever_happens) {
  std::mt19937 random{7};
  std::map<std::string, std::pair<state, std::string>> expected;
  ledger_limits limits{.results = 100'000, .least_compaction = 20'000};
  auto current = std::make_unique<ledger>(dir.fd(), limits, now);
  for (int i = 0; i < 20'000; ++i) {
    auto id = "op" + std::to_string(random() % 500);
    auto& known = expected[id];
    if (known.second.empty())
      known = {state::never, "-"};
    switch (random() % 5) {
      case 0:
        if (known.first == state::never && current->start(id, "d", "process.start", now, false))
          known.first = state::running;
        break;
      case 1:
        if (known.first == state::running) {
          known = {state::done, "R" + std::to_string(i)};
          current->finish(id, result(known.second), now);
        }
        break;
      case 2:
        if (random() % 4 == 0 && known.first == state::done) {
          known = {state::expired, "-"};
          current->forget(id, now);
        }
        break;
      case 3:
        if (known.first == state::running && random() % 4 == 0) {
          known.first = state::never;
          current->release(id, now);
        }
        break;
      case 4:
        if (random() % 400 == 0) {
          current.reset();
          current = std::make_unique<ledger>(dir.fd(), limits, now);
          for (auto& [other, entry] : expected)
            if (entry.first == state::running)
              entry.first = state::unknown;
        }
        break;
    }
    auto found = current->find(id);
    ASSERT_EQ(found.state, known.first) << id << " at " << i;
    if (known.first == state::done) {
      ASSERT_EQ(found.result, known.second);
    }
  }
}

} // namespace
} // namespace holt::agent
