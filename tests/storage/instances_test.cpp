#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/storage/store_test.hpp"

namespace holt::tests {

using namespace storage;

class instances : public store_test {
protected:
  instances() {
    options_.now = [this] { return now_.load(); };
    options_.database.writer.lazy_delay = std::chrono::hours(1); // touches wait for the close
  }

  void SetUp() override {
    store_test::SetUp();
    ASSERT_TRUE(db().create_environment(environment("env_1")));
  }

  std::atomic<std::int64_t> now_ = 1'000'000;
};

TEST_F(instances, what_is_written_is_read_back_field_by_field) {
  auto row = instance("env_1", "creating");
  row.fs_status = "lost";
  row.epoch = 3;
  row.roots_json = R"({"workspace":"/w"})";
  row.sweep_failed_at = 77;
  auto written = db().write_instance(row, 0u);
  ASSERT_TRUE(written) << written.error().detail;
  auto read = db().get_environment("org_a", "env_1");
  ASSERT_TRUE(read && read->instance);
  for (const auto& got : {*written, *read->instance}) {
    EXPECT_EQ(got.environment_id, row.environment_id);
    EXPECT_EQ(got.provider, row.provider);
    EXPECT_EQ(got.handle, row.handle);
    EXPECT_EQ(got.file_system_id, row.file_system_id);
    EXPECT_EQ(got.fs_status, row.fs_status);
    EXPECT_EQ(got.status, row.status);
    EXPECT_EQ(got.host_id, row.host_id);
    EXPECT_EQ(got.boot_id, row.boot_id);
    EXPECT_EQ(got.instance_created_at, row.instance_created_at);
    EXPECT_EQ(got.last_used_at, row.last_used_at);
    EXPECT_EQ(got.generation, 1u);
    EXPECT_EQ(got.epoch, row.epoch);
    EXPECT_EQ(got.roots_json, row.roots_json);
    EXPECT_EQ(got.sweep_failed_at, row.sweep_failed_at);
  }
}

// Spec 11.
TEST_F(instances, a_write_needs_the_generation_that_was_read_and_moves_it_on) {
  EXPECT_EQ(error_of(db().write_instance(instance("env_1"), 1u)), store_errc::fenced);
  EXPECT_EQ(db().write_instance(instance("env_1", "creating"), 0u)->generation, 1u);
  EXPECT_EQ(error_of(db().write_instance(instance("env_1"), 0u)), store_errc::fenced);
  EXPECT_EQ(db().write_instance(instance("env_1", "running"), 1u)->generation, 2u);
  EXPECT_EQ(error_of(db().write_instance(instance("env_1", "destroyed"), 1u)), store_errc::fenced);
  EXPECT_EQ(error_of(db().write_instance(instance("env_1", "destroyed"), 3u)), store_errc::fenced);
  auto read = db().load_environment("env_1");
  EXPECT_EQ(read->instance->status, "running");
  EXPECT_EQ(read->instance->generation, 2u);
}

TEST_F(instances, of_a_hundred_writers_with_one_generation_exactly_one_wins) {
  std::uint64_t generation = 0;
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> won = 0;
    std::atomic<int> fenced = 0;
    std::vector<std::thread> writers;
    for (int i = 0; i < 100; ++i) {
      writers.emplace_back([&, i] {
        auto result = db().write_instance(instance("env_1", "writer " + std::to_string(i)), generation);
        if (result) {
          ++won;
        } else if (result.error().code == store_errc::fenced) {
          ++fenced;
        }
      });
    }
    for (auto& each : writers) {
      each.join();
    }
    EXPECT_EQ(won, 1);
    EXPECT_EQ(fenced, 99);
    ++generation;
    EXPECT_EQ(db().load_environment("env_1")->instance->generation, generation);
  }
}

TEST_F(instances, the_first_row_needs_an_environment_that_is_there) {
  EXPECT_EQ(error_of(db().write_instance(instance("env_none"), 0u)), store_errc::not_found);
  ASSERT_TRUE(db().delete_environment("org_a", "env_1", deletion("op_1")));
  EXPECT_EQ(error_of(db().write_instance(instance("env_1"), 0u)), store_errc::not_found);
}

TEST_F(instances, a_deleted_environment_is_still_carried_to_its_end) {
  ASSERT_TRUE(db().write_instance(instance("env_1"), 0u));
  ASSERT_TRUE(db().delete_environment("org_a", "env_1", deletion("op_1")));
  EXPECT_TRUE(db().write_instance(instance("env_1", "destroying"), 1u));
  ASSERT_TRUE(db().swap_seen("env_1", "conv_1", "5:fs_1", 2'000'000));
  EXPECT_EQ(error_of(db().purge_environment("env_1", 1u)), store_errc::fenced);
  EXPECT_EQ(error_of(db().purge_environment("env_1", 0u)), store_errc::fenced);
  ASSERT_TRUE(db().load_environment("env_1")->instance) << "a fenced purge removes nothing";
  EXPECT_EQ(db().purge_environment("env_1", 2u), true);
  EXPECT_EQ(error_of(db().load_environment("env_1")), store_errc::not_found);
  EXPECT_EQ(error_of(db().purge_environment("env_1", 2u)), store_errc::not_found);
  EXPECT_EQ(db().get_operation("org_a", "op_1")->status, "done") << "the operation outlives its environment, and ends with it";
}

TEST_F(instances, an_environment_is_purged_only_once_it_is_deleted) {
  EXPECT_EQ(error_of(db().purge_environment("env_1", 0u)), store_errc::not_found);
  ASSERT_TRUE(db().delete_environment("org_a", "env_1", deletion("op_1")));
  EXPECT_EQ(db().purge_environment("env_1", 0u), true);
}

TEST_F(instances, a_touch_never_goes_backwards_and_never_moves_the_fence) {
  ASSERT_TRUE(db().write_instance(instance("env_1"), 0u)); // last used at 10
  (*db()).touch_instance("env_1", 300);
  (*db()).touch_instance("env_1", 200);
  (*db()).touch_instance("env_none", 200);
  reopen();
  auto read = db().load_environment("env_1");
  EXPECT_EQ(read->instance->last_used_at, 300);
  EXPECT_EQ(read->instance->generation, 1u);
  (*db()).touch_instance("env_1", 299);
  reopen();
  EXPECT_EQ(db().load_environment("env_1")->instance->last_used_at, 300);
  EXPECT_EQ(db().write_instance(instance("env_1"), 1u)->last_used_at, 300) << "nor does a state write";
}

// Spec 52.
TEST_F(instances, epochs_only_grow) {
  EXPECT_EQ(error_of(db().next_epoch("env_1")), store_errc::not_found);
  ASSERT_TRUE(db().write_instance(instance("env_1"), 0u));
  EXPECT_EQ(db().next_epoch("env_1"), 1u);
  EXPECT_EQ(db().next_epoch("env_1"), 2u);
  EXPECT_EQ(db().write_instance(instance("env_1"), 1u)->epoch, 2u) << "a state write with an older epoch keeps it";
  EXPECT_EQ(db().next_epoch("env_1"), 3u);
}

TEST_F(instances, a_hundred_sessions_at_once_get_a_hundred_epochs) {
  ASSERT_TRUE(db().write_instance(instance("env_1"), 0u));
  std::vector<std::uint64_t> epochs(100);
  std::vector<std::thread> sessions;
  for (auto& each : epochs) {
    sessions.emplace_back([&] { each = db().next_epoch("env_1").value_or(0); });
  }
  for (auto& each : sessions) {
    each.join();
  }
  std::sort(epochs.begin(), epochs.end());
  for (std::size_t i = 0; i < epochs.size(); ++i) {
    EXPECT_EQ(epochs[i], i + 1);
  }
}

// Spec 18.
TEST_F(instances, the_identity_last_seen_is_replaced_and_answered_in_one_step) {
  EXPECT_EQ(db().swap_seen("env_1", "conv_1", "5:fs_1", 2'000'000), "");
  EXPECT_EQ(db().swap_seen("env_1", "conv_2", "5:fs_1", 2'000'000), "");
  EXPECT_EQ(db().swap_seen("env_1", "conv_1", "5:fs_1", 2'000'000), "5:fs_1");
  EXPECT_EQ(db().swap_seen("env_1", "conv_1", "6:fs_1", 2'000'000), "5:fs_1");
  EXPECT_EQ(db().swap_seen("env_1", "conv_1", "6:fs_1", 2'000'000), "6:fs_1");
  EXPECT_EQ(error_of(db().swap_seen("env_none", "conv_1", "6:fs_1", 2'000'000)), store_errc::not_found);
}

TEST_F(instances, an_identity_seen_too_long_ago_counts_as_never_seen) {
  ASSERT_EQ(db().swap_seen("env_1", "conv_1", "5:fs_1", 2'000'000), "");
  now_ = 1'999'999;
  EXPECT_EQ(db().swap_seen("env_1", "conv_1", "5:fs_1", 3'000'000), "5:fs_1");
  now_ = 3'000'000;
  EXPECT_EQ(db().swap_seen("env_1", "conv_1", "5:fs_1", 4'000'000), "");
}

TEST_F(instances, a_sweep_finds_by_status_and_finds_the_deleted) {
  const char* statuses[] = {"creating", "running", "suspended"};
  for (int i = 0; i < 30; ++i) {
    auto id = "env_" + std::to_string(100 + i);
    ASSERT_TRUE(db().create_environment(environment(id, i % 2 == 0 ? "org_a" : "org_b")));
    ASSERT_TRUE(db().write_instance(instance(id, statuses[i % 3]), 0u));
  }
  ASSERT_TRUE(db().delete_environment("org_a", "env_1", deletion("op_1")));   // never had an instance
  ASSERT_TRUE(db().delete_environment("org_a", "env_100", deletion("op_2"))); // creating
  auto all = [&](std::vector<std::string> wanted, bool deleted_only) {
    std::vector<std::string> ids;
    std::string cursor;
    do {
      auto page = db().list_instances(wanted, deleted_only, cursor, 4u);
      EXPECT_TRUE(page);
      for (const auto& each : page->items) {
        ids.push_back(each.environment.id);
      }
      cursor = page->next_cursor;
    } while (!cursor.empty());
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
    EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
    return ids;
  };
  EXPECT_EQ(all({"running"}, false).size(), 10u);
  EXPECT_EQ(all({"creating", "suspended"}, false).size(), 20u);
  EXPECT_EQ(all({}, false).size(), 30u);
  EXPECT_EQ(all({}, true), (std::vector<std::string>{"env_1", "env_100"}));
  EXPECT_EQ(all({"creating"}, true), (std::vector<std::string>{"env_100"}));
  EXPECT_EQ(error_of(db().list_instances(std::vector<std::string>(9, "x"), false, "", 4u)), store_errc::invalid);
}

} // namespace holt::tests
