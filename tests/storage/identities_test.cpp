#include "tests/storage/store_test.hpp"

namespace holt::tests {

using namespace storage;
using identities = store_test;

namespace {

key_row key(const std::string& id, const std::string& org, const std::string& principal) {
  return {id, org, principal, "name", "hash of " + id, {"use", "manage"}, 5, {}, {}};
}

} // namespace

TEST_F(identities, orgs_are_created_listed_and_deleted) {
  EXPECT_EQ(db().get_org("org_a")->name, "A");
  EXPECT_EQ(error_of(db().get_org("org_none")), store_errc::not_found);
  EXPECT_EQ(error_of(db().create_org(org_row{"org_a", "again", 1})), store_errc::conflict);
  auto first = db().list_orgs("", 1u);
  ASSERT_TRUE(first);
  ASSERT_EQ(first->items.size(), 1u);
  EXPECT_EQ(first->items[0].id, "org_a");
  auto second = db().list_orgs(first->next_cursor, 1u);
  ASSERT_EQ(second->items.size(), 1u);
  EXPECT_EQ(second->items[0].id, "org_b");
  EXPECT_EQ(second->next_cursor, "");
  ASSERT_TRUE(db().delete_org("org_a", 9));
  EXPECT_EQ(error_of(db().delete_org("org_a", 9)), store_errc::not_found);
  EXPECT_EQ(error_of(db().get_org("org_a")), store_errc::not_found);
  EXPECT_EQ(db().list_orgs("", 10u)->items.size(), 1u);
}

TEST_F(identities, a_deleted_org_takes_its_environments_users_and_keys_along) {
  ASSERT_TRUE(db().create_environment(environment("env_1", "org_a")));
  ASSERT_TRUE(db().create_environment(environment("env_2", "org_b")));
  ASSERT_TRUE(db().create_user(user_row{"user_1", "org_a", "u", 1}));
  ASSERT_TRUE(db().create_key(key("key_1", "org_a", "user_1")));
  ASSERT_TRUE(db().create_key(key("key_2", "org_b", "user_9")));
  ASSERT_TRUE(db().delete_org("org_a", 9));
  EXPECT_EQ(error_of(db().get_environment("org_a", "env_1")), store_errc::not_found);
  EXPECT_EQ(db().load_environment("env_1")->environment.deleted_at, 9);
  EXPECT_EQ(error_of(db().find_key("hash of key_1")), store_errc::not_found);
  EXPECT_EQ(db().list_users("org_a", "", 10u)->items.size(), 0u);
  EXPECT_TRUE(db().find_key("hash of key_2"));
  EXPECT_TRUE(db().get_environment("org_b", "env_2"));
  EXPECT_EQ(error_of(db().create_user(user_row{"user_2", "org_a", "u", 1})), store_errc::not_found);
  EXPECT_EQ(error_of(db().create_key(key("key_3", "org_a", "user_1"))), store_errc::not_found);
}

TEST_F(identities, users_belong_to_their_org) {
  ASSERT_TRUE(db().create_user(user_row{"user_1", "org_a", "one", 1}));
  ASSERT_TRUE(db().create_user(user_row{"user_2", "org_a", "two", 1}));
  ASSERT_TRUE(db().create_user(user_row{"user_3", "org_b", "three", 1}));
  EXPECT_EQ(error_of(db().create_user(user_row{"user_1", "org_b", "x", 1})), store_errc::conflict);
  EXPECT_EQ(error_of(db().create_user(user_row{"user_4", "org_none", "x", 1})), store_errc::not_found);
  auto first = db().list_users("org_a", "", 1u);
  ASSERT_EQ(first->items.size(), 1u);
  EXPECT_EQ(first->items[0].name, "one");
  auto second = db().list_users("org_a", first->next_cursor, 1u);
  EXPECT_EQ(second->items[0].name, "two");
  EXPECT_EQ(second->next_cursor, "");
  EXPECT_EQ(error_of(db().delete_user("org_b", "user_1")), store_errc::not_found);
  EXPECT_EQ(db().list_users("org_a", "", 10u)->items.size(), 2u);
}

TEST_F(identities, a_deleted_user_takes_its_keys_along) {
  ASSERT_TRUE(db().create_user(user_row{"user_1", "org_a", "one", 1}));
  ASSERT_TRUE(db().create_key(key("key_1", "org_a", "user_1")));
  ASSERT_TRUE(db().create_key(key("key_2", "org_a", "key_2")));
  EXPECT_EQ(db().delete_user("org_a", "user_1"), true);
  EXPECT_EQ(error_of(db().find_key("hash of key_1")), store_errc::not_found);
  EXPECT_TRUE(db().find_key("hash of key_2"));
  EXPECT_EQ(db().count_keys(), 1u);
}

TEST_F(identities, a_key_is_found_by_its_hash_and_read_back_field_by_field) {
  auto row = key("key_1", "org_a", "user_1");
  row.expires_at = 100;
  row.last_used_at = 50;
  ASSERT_TRUE(db().create_key(row));
  auto found = db().find_key(row.hash);
  ASSERT_TRUE(found) << found.error().detail;
  EXPECT_EQ(found->id, row.id);
  EXPECT_EQ(found->org_id, row.org_id);
  EXPECT_EQ(found->principal, row.principal);
  EXPECT_EQ(found->name, row.name);
  EXPECT_EQ(found->hash, row.hash);
  EXPECT_EQ(found->scopes, row.scopes);
  EXPECT_EQ(found->created_at, row.created_at);
  EXPECT_EQ(found->expires_at, row.expires_at);
  EXPECT_EQ(found->last_used_at, row.last_used_at);
  EXPECT_EQ(error_of(db().find_key("another")), store_errc::not_found);
  auto twin = key("key_2", "org_b", "user_1");
  twin.hash = row.hash;
  EXPECT_EQ(error_of(db().create_key(twin)), store_errc::conflict);
}

TEST_F(identities, keys_are_listed_and_deleted_within_their_org) {
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(db().create_key(key("key_" + std::to_string(i), i < 3 ? "org_a" : "org_b", "user_1")));
  }
  EXPECT_EQ(db().count_keys(), 5u);
  std::vector<std::string> ids;
  std::string cursor;
  do {
    auto page = db().list_keys("org_a", cursor, 2u);
    for (const auto& each : page->items) {
      ids.push_back(each.id);
    }
    cursor = page->next_cursor;
  } while (!cursor.empty());
  EXPECT_EQ(ids, (std::vector<std::string>{"key_0", "key_1", "key_2"}));
  EXPECT_EQ(error_of(db().delete_key("org_a", "key_4")), store_errc::not_found);
  EXPECT_EQ(db().delete_key("org_b", "key_4"), true);
  EXPECT_EQ(db().count_keys(), 4u);
}

TEST_F(identities, the_incarnation_stays_with_the_database) {
  auto first = db().incarnation();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->size(), 32u);
  reopen();
  EXPECT_EQ(db().incarnation(), *first);
  EXPECT_EQ(db().ping(), true);
  temporary_directory elsewhere;
  auto other = open_sqlite_store(elsewhere.file("other.db"));
  ASSERT_TRUE(other);
  EXPECT_NE(waiting_store(*other).incarnation(), *first);
}

TEST_F(identities, a_closed_store_answers_that_it_is_unavailable) {
  (*db()).close();
  (*db()).close();
  EXPECT_EQ(error_of(db().ping()), store_errc::unavailable);
  EXPECT_EQ(error_of(db().create_org(org_row{"org_c", "C", 1})), store_errc::unavailable);
}

} // namespace holt::tests
