#include <atomic>
#include <set>
#include <thread>

#include "tests/storage/store_test.hpp"

namespace holt::tests {

using namespace storage;
using environments = store_test;

TEST_F(environments, what_is_created_is_read_back_field_by_field) {
  auto row = environment("env_1");
  row.kind = "device";
  row.provider = "@device";
  row.image = "debian:12";
  row.limits_json = R"({"memory_bytes":1})";
  row.network = "host";
  row.suspend_after_ms = 7;
  row.destroy_after_ms = 8;
  row.labels = {{"team", "a \"quoted\" \xc3\xa9 name"}, {"stage", ""}};
  row.updated_at = 1001;
  ASSERT_TRUE(db().create_environment(row));

  auto read = db().get_environment("org_a", "env_1");
  ASSERT_TRUE(read);
  const auto& got = read->environment;
  EXPECT_EQ(got.id, row.id);
  EXPECT_EQ(got.org_id, row.org_id);
  EXPECT_EQ(got.name, row.name);
  EXPECT_EQ(got.kind, row.kind);
  EXPECT_EQ(got.provider, row.provider);
  EXPECT_EQ(got.image, row.image);
  EXPECT_EQ(got.limits_json, row.limits_json);
  EXPECT_EQ(got.network, row.network);
  EXPECT_EQ(got.suspend_after_ms, row.suspend_after_ms);
  EXPECT_EQ(got.destroy_after_ms, row.destroy_after_ms);
  EXPECT_EQ(got.labels, row.labels);
  EXPECT_EQ(got.created_by, row.created_by);
  EXPECT_EQ(got.created_at, row.created_at);
  EXPECT_EQ(got.updated_at, row.updated_at);
  EXPECT_FALSE(got.deleted_at);
  EXPECT_FALSE(read->instance);
}

TEST_F(environments, an_id_is_taken_once) {
  ASSERT_TRUE(db().create_environment(environment("env_1")));
  EXPECT_EQ(error_of(db().create_environment(environment("env_1"))), store_errc::conflict);
  EXPECT_EQ(error_of(db().create_environment(environment("env_1", "org_b"))), store_errc::conflict);
}

TEST_F(environments, none_is_created_in_an_org_that_is_missing_or_deleted) {
  EXPECT_EQ(error_of(db().create_environment(environment("env_1", "org_none"))), store_errc::not_found);
  ASSERT_TRUE(db().delete_org("org_b", 5));
  EXPECT_EQ(error_of(db().create_environment(environment("env_1", "org_b"))), store_errc::not_found);
}

// Spec 4: ids can't be probed.
TEST_F(environments, anothers_environment_answers_exactly_like_a_missing_one) {
  ASSERT_TRUE(db().create_environment(environment("env_1", "org_b")));
  auto same = [](const auto& one, const auto& other) {
    EXPECT_EQ(error_of(one), store_errc::not_found);
    EXPECT_EQ(error_of(other), store_errc::not_found);
    EXPECT_EQ(one.error().detail, other.error().detail);
  };
  same(db().get_environment("org_a", "env_1"), db().get_environment("org_a", "env_none"));
  same(db().update_environment(environment("env_1", "org_a")),
       db().update_environment(environment("env_none", "org_a")));
  auto operation = deletion("op_1");
  same(db().delete_environment("org_a", "env_1", operation), db().delete_environment("org_a", "env_none", operation));
  same(db().get_operation("org_a", "op_1"), db().get_operation("org_a", "op_none"));

  auto untouched = db().get_environment("org_b", "env_1");
  ASSERT_TRUE(untouched);
  EXPECT_EQ(untouched->environment.updated_at, 1000);
  auto listed = db().list_environments(list_of("org_a"));
  ASSERT_TRUE(listed);
  EXPECT_TRUE(listed->items.empty());
}

TEST_F(environments, an_update_changes_the_settings_and_nothing_else) {
  auto row = environment("env_1");
  row.image = "kept";
  row.labels = {{"old", "1"}};
  ASSERT_TRUE(db().create_environment(row));
  auto changed = row;
  changed.name = "new";
  changed.limits_json = R"({"processes":5})";
  changed.network = "host";
  changed.suspend_after_ms = 1;
  changed.destroy_after_ms = 2;
  changed.labels = {{"new", "2"}};
  changed.updated_at = 2000;
  changed.image = "other";
  changed.kind = "device";
  changed.created_at = 1;
  changed.created_by = "user_2";
  auto answered = db().update_environment(changed);
  ASSERT_TRUE(answered);
  auto read = db().get_environment("org_a", "env_1");
  ASSERT_TRUE(read);
  for (const auto& got : {*answered, read->environment}) {
    EXPECT_EQ(got.name, "new");
    EXPECT_EQ(got.limits_json, R"({"processes":5})");
    EXPECT_EQ(got.network, "host");
    EXPECT_EQ(got.suspend_after_ms, 1);
    EXPECT_EQ(got.destroy_after_ms, 2);
    EXPECT_EQ(got.labels, changed.labels);
    EXPECT_EQ(got.updated_at, 2000);
    EXPECT_EQ(got.image, "kept");
    EXPECT_EQ(got.kind, "cloud");
    EXPECT_EQ(got.created_at, 1000);
    EXPECT_EQ(got.created_by, "user_1");
  }
  auto by_new = db().list_environments(list_of("org_a", {{"new", "2"}}));
  auto by_old = db().list_environments(list_of("org_a", {{"old", "1"}}));
  EXPECT_EQ(by_new->items.size(), 1u);
  EXPECT_EQ(by_old->items.size(), 0u);
}

TEST_F(environments, a_deleted_one_is_gone_at_once_and_its_operation_is_there_to_poll) {
  auto row = environment("env_1");
  row.labels = {{"team", "a"}};
  ASSERT_TRUE(db().create_environment(row));
  auto operation = db().delete_environment("org_a", "env_1", deletion("op_1", 7));
  ASSERT_TRUE(operation);
  EXPECT_EQ(operation->org_id, "org_a");
  EXPECT_EQ(operation->environment_id, "env_1");

  EXPECT_EQ(error_of(db().get_environment("org_a", "env_1")), store_errc::not_found);
  EXPECT_EQ(error_of(db().update_environment(row)), store_errc::not_found);
  EXPECT_EQ(error_of(db().delete_environment("org_a", "env_1", deletion("op_2"))), store_errc::not_found);
  EXPECT_EQ(error_of(db().get_operation("org_a", "op_2")), store_errc::not_found);
  EXPECT_TRUE(db().list_environments(list_of("org_a"))->items.empty());
  EXPECT_TRUE(db().list_environments(list_of("org_a", row.labels))->items.empty());

  auto loaded = db().load_environment("env_1");
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->environment.deleted_at, 7);

  EXPECT_EQ(db().get_operation("org_a", "op_1")->status, "running");
  EXPECT_EQ(db().finish_operation("op_1", "failed", "no provider", 9), true);
  EXPECT_EQ(db().finish_operation("op_1", "done", "", 10), false);
  EXPECT_EQ(db().finish_operation("op_none", "done", "", 10), false);
  auto finished = db().get_operation("org_a", "op_1");
  EXPECT_EQ(finished->status, "failed");
  EXPECT_EQ(finished->error, "no provider");
  EXPECT_EQ(finished->updated_at, 9);
}

TEST_F(environments, a_delete_whose_operation_id_is_taken_deletes_nothing) {
  ASSERT_TRUE(db().create_environment(environment("env_1")));
  ASSERT_TRUE(db().create_environment(environment("env_2")));
  ASSERT_TRUE(db().delete_environment("org_a", "env_1", deletion("op_1")));
  EXPECT_EQ(error_of(db().delete_environment("org_a", "env_2", deletion("op_1"))), store_errc::conflict);
  EXPECT_TRUE(db().get_environment("org_a", "env_2"));
}

TEST_F(environments, a_list_is_filtered_by_kind_and_by_every_label) {
  for (int i = 0; i < 60; ++i) {
    auto row = environment("env_" + std::to_string(100 + i), "org_a", 1000 + i % 7);
    row.kind = i % 2 == 0 ? "cloud" : "device";
    row.labels = {{"three", std::to_string(i % 3)}, {"five", std::to_string(i % 5)}};
    ASSERT_TRUE(db().create_environment(row));
  }
  auto count = [&](std::optional<std::string> kind, const std::map<std::string, std::string>& labels) {
    auto filter = list_of("org_a", labels);
    filter.kind = std::move(kind);
    filter.limit = 4;
    std::set<std::string> ids;
    std::pair<std::int64_t, std::string> before;
    do {
      auto page = db().list_environments(filter);
      EXPECT_TRUE(page);
      for (const auto& each : page->items) {
        EXPECT_TRUE(ids.insert(each.environment.id).second);
        std::pair key(each.environment.created_at, each.environment.id);
        EXPECT_LT(before, key);
        before = key;
      }
      filter.cursor = page->next_cursor;
    } while (!filter.cursor.empty());
    return ids.size();
  };
  EXPECT_EQ(count(std::nullopt, {}), 60u);
  EXPECT_EQ(count("device", {}), 30u);
  EXPECT_EQ(count(std::nullopt, {{"three", "1"}}), 20u);
  EXPECT_EQ(count(std::nullopt, {{"three", "1"}, {"five", "2"}}), 4u);
  EXPECT_EQ(count("cloud", {{"three", "1"}, {"five", "2"}}), 2u);
  EXPECT_EQ(count(std::nullopt, {{"three", "1"}, {"none", ""}}), 0u);
}

TEST_F(environments, a_full_last_page_is_followed_by_none) {
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(db().create_environment(environment("env_" + std::to_string(i))));
  }
  auto filter = list_of("org_a");
  filter.limit = 2;
  filter.cursor = db().list_environments(filter)->next_cursor;
  EXPECT_FALSE(filter.cursor.empty());
  auto last = db().list_environments(filter);
  EXPECT_EQ(last->items.size(), 2u);
  EXPECT_EQ(last->next_cursor, "");
}

TEST_F(environments, a_cursor_that_no_list_gave_is_refused) {
  ASSERT_TRUE(db().create_user(user_row{"user_1", "org_a", "u", 1}));
  ASSERT_TRUE(db().create_user(user_row{"user_2", "org_a", "u", 1}));
  auto of_users = db().list_users("org_a", "", 1u)->next_cursor;
  ASSERT_FALSE(of_users.empty());
  for (const std::string& cursor : {std::string("x"), std::string("!!!"), of_users, std::string(5000, 'A'),
                                    std::string("ZW52aXJvbm1lbnRz"), std::string("\0", 1)}) {
    auto filter = list_of("org_a");
    filter.cursor = cursor;
    EXPECT_EQ(error_of(db().list_environments(filter)), store_errc::invalid) << cursor;
  }
  EXPECT_EQ(error_of(db().list_users("org_a", "x", 1u)), store_errc::invalid);
  EXPECT_EQ(error_of(db().list_keys("org_a", of_users, 1u)), store_errc::invalid);
  EXPECT_EQ(error_of(db().list_orgs("x", 1u)), store_errc::invalid);
  auto many = list_of("org_a");
  for (int i = 0; i < 17; ++i) {
    many.labels["l" + std::to_string(i)] = "";
  }
  EXPECT_EQ(error_of(db().list_environments(many)), store_errc::invalid);
}

TEST_F(environments, ten_thousand_are_listed_without_holes_or_repeats_while_others_are_inserted) {
  constexpr int there = 10'000;
  std::promise<void> all_made;
  std::atomic<int> left = there;
  // Pairs share a time, so that the id decides too.
  for (int i = 0; i < there; ++i) {
    auto made = [&](store_result<environment_row> result) {
      EXPECT_TRUE(result) << result.error().detail;
      if (--left == 0) {
        all_made.set_value();
      }
    };
    while (left > 4000 + there - i) { // never more waiting than the queue takes
      std::this_thread::yield();
    }
    (*db()).create_environment(environment("env_" + std::to_string(i), "org_a", 1000 + i / 2 * 2), made);
  }
  all_made.get_future().wait();

  std::atomic<bool> listing = true;
  std::thread inserting([&] {
    for (int i = 0; listing; ++i) {
      db().create_environment(environment("env_x" + std::to_string(i), "org_a", 1000 + i * 7919 % there));
    }
  });
  std::set<std::string> ids;
  auto filter = list_of("org_a");
  filter.limit = 97;
  std::size_t of_before = 0;
  do {
    auto page = db().list_environments(filter);
    ASSERT_TRUE(page);
    for (const auto& each : page->items) {
      EXPECT_TRUE(ids.insert(each.environment.id).second) << "listed twice: " << each.environment.id;
      of_before += each.environment.id.starts_with("env_x") ? 0 : 1;
    }
    filter.cursor = page->next_cursor;
  } while (!filter.cursor.empty());
  listing = false;
  inserting.join();
  EXPECT_EQ(of_before, static_cast<std::size_t>(there));
}

} // namespace holt::tests
