#include <gtest/gtest.h>

#include "tests/actors/house.hpp"

/// The process dies after any message; the next one finds the rows as they are (spec 6, 15, 44).
namespace holt::actors {
namespace {

using namespace std::chrono_literals;
using logic::purpose;
using tests::house;

struct flow {
  const char* name;
  std::function<void(house&)> prepare; // runs to its end
  std::function<void(house&)> begin;   // is cut
  bool removes = false;
};

void warm(house& h) {
  h.use("op_warm");
  h.run();
}

const flow flows[] = {
    {"create", [](house&) {}, [](house& h) { h.use("op_cut"); }},
    {"resume",
     [](house& h) {
       warm(h);
       h.change(purpose::suspend);
       h.run();
     },
     [](house& h) { h.use("op_cut"); }},
    {"rebuild",
     [](house& h) {
       warm(h);
       h.world->vanish("env_1");
       h.run();
     },
     [](house& h) { h.use("op_cut"); }},
    {"warm use", warm, [](house& h) { h.use("op_cut"); }},
    {"suspend", warm, [](house& h) { h.change(purpose::suspend); }},
    {"destroy", warm, [](house& h) { h.change(purpose::destroy); }},
    {"reset", warm, [](house& h) { h.change(purpose::reset); }},
    {"remove",
     [](house& h) {
       warm(h);
       h.store->rows.at("env_1").environment.deleted_at = 1;
     },
     [](house& h) { h.change(purpose::remove); }, true},
    {"use behind a suspend", warm,
     [](house& h) {
       h.change(purpose::suspend);
       h.use("op_cut");
     }},
};

/// Cuts the flow after each of its messages in turn, and hands the next life to `check`.
void cut_everywhere(const flow& flow, const std::function<void(house& after)>& check) {
  std::size_t cuts = 0;
  for (bool more = true; more; ++cuts) {
    SCOPED_TRACE(std::string{flow.name} + " cut after message " + std::to_string(cuts));
    house before;
    flow.prepare(before);
    flow.begin(before);
    more = before.run_some(cuts);
    house after{before};
    check(after);
    if (testing::Test::HasFailure())
      return;
  }
  EXPECT_GT(cuts, 3u) << flow.name;
}

TEST(recovery, the_next_use_finishes_or_undoes_what_was_cut_and_goes_on) {
  for (auto& flow : flows) {
    if (flow.removes)
      continue;
    cut_everywhere(flow, [](house& after) {
      auto use = after.use("op_again");
      after.advance(1s);
      EXPECT_EQ(use->code(), "");
      EXPECT_EQ(after.world->begun["op_again"], 1);
      EXPECT_EQ(after.world->instances.size(), 1u);
      EXPECT_EQ(after.world->files["env_1"].size(), 1u);
      EXPECT_EQ(after.store->instance("env_1").status, "running");
      EXPECT_LT(after.world->instances.at("env_1").generation, after.store->instance("env_1").generation);
    });
  }
}

TEST(recovery, a_client_that_asks_again_by_its_id_never_runs_it_twice) {
  for (auto& flow : flows) {
    if (flow.removes)
      continue;
    cut_everywhere(flow, [](house& after) {
      auto use = after.use("op_cut");
      after.advance(1s);
      EXPECT_EQ(use->code(), "");
      EXPECT_EQ(after.world->begun["op_cut"], 1);
    });
  }
}

TEST(recovery, the_background_settles_what_nobody_asks_for) {
  for (auto& flow : flows)
    cut_everywhere(flow, [&](house& after) {
      after.sweep("settle");
      after.sweep("remove");
      after.advance(1s);
      if (flow.removes) {
        EXPECT_TRUE(after.store->rows.empty());
        EXPECT_TRUE(after.world->instances.empty());
        EXPECT_TRUE(after.world->files["env_1"].empty());
        return;
      }
      auto& row = after.store->rows.at("env_1").instance;
      if (!row)
        return;
      EXPECT_TRUE(row->status == "running" || row->status == "suspended" || row->status == "destroyed") << row->status;
      // One that vanished meanwhile is found gone by the next use.
      EXPECT_LE(after.world->instances.size(), row->status == "destroyed" ? 0u : 1u) << row->status;
    });
}

TEST(recovery, a_restarted_machine_loses_the_instance_and_keeps_the_files) {
  for (auto& flow : flows) {
    if (flow.removes)
      continue;
    cut_everywhere(flow, [](house& after) {
      after.shared->settings.boot_id = "boot_2";
      after.world->instances.clear();
      for (auto& [id, entry] : after.world->ledger)
        if (entry.state == "running")
          entry.state = "unknown";
      auto use = after.use("op_again");
      after.advance(1s);
      EXPECT_EQ(use->code(), "");
      EXPECT_EQ(after.store->instance("env_1").boot_id, "boot_2");
    });
  }
}

// The actor dies alone: its uses are answered, and the next one finds the rows.
TEST(recovery, an_environment_actor_that_dies_owes_nothing) {
  for (std::size_t cut = 0; cut < 30; ++cut) {
    house h;
    auto use = h.use("op_1");
    bool more = h.run_some(cut);
    h.kill_environment();
    h.advance(1s);
    EXPECT_EQ(use->answers, 1) << cut;
    auto again = h.use("op_2");
    h.advance(1s);
    EXPECT_EQ(again->code(), "") << cut;
    EXPECT_LE(h.world->begun["op_1"], 1) << cut;
    EXPECT_EQ(h.world->instances.size(), 1u) << cut;
    if (!more)
      break;
  }
}

} // namespace
} // namespace holt::actors
