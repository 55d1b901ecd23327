#include <algorithm>

#include "storage/sqlite/migrate.hpp"
#include "storage/sqlite/sqlite_database.hpp"
#include "tests/storage/store_test.hpp"

namespace holt::tests {

using namespace storage;

namespace {

/// Three versions of a small schema; the second changes rows that the first made.
const std::vector<migration> three = {
    {1, "items", "CREATE TABLE items (id BIGINT PRIMARY KEY, body TEXT NOT NULL);", 1},
    {2, "sizes",
     "ALTER TABLE items ADD COLUMN size BIGINT NOT NULL DEFAULT 0; UPDATE items SET size = LENGTH(body);"
     "CREATE INDEX items_by_size ON items (size);",
     2},
    {3, "notes", "CREATE TABLE notes (item BIGINT NOT NULL REFERENCES items (id), text TEXT NOT NULL);", 2}};

std::vector<migration> first(std::size_t count) {
  return {three.begin(), three.begin() + static_cast<std::ptrdiff_t>(count)};
}

class migrations : public ::testing::Test {
protected:
  /// Opens the file raw, as no version of anything.
  connection raw() {
    if (!std::filesystem::exists(path())) {
      EXPECT_TRUE(sqlite_database::open(path(), {}, {}, 1));
    }
    auto opened = connection::open(path(), {});
    EXPECT_TRUE(opened);
    return std::move(*opened);
  }

  store_result<void> migrate_to(const std::vector<migration>& known) {
    auto on = raw();
    return migrate(on, known, 1);
  }

  std::int64_t number(const char* sql) {
    auto on = raw();
    auto found = on.run(step{sql, {}});
    return found && !found->rows.empty() ? found->rows[0].number(0) : -1;
  }

  std::string path() const {
    return directory_.file("holt.db");
  }

  temporary_directory directory_;
};

} // namespace

TEST_F(migrations, a_new_database_gets_all_in_order_once) {
  ASSERT_TRUE(migrate_to(three));
  EXPECT_EQ(number("SELECT COUNT(*) FROM schema_migrations"), 3);
  ASSERT_TRUE(migrate_to(three));
  EXPECT_EQ(number("SELECT COUNT(*) FROM schema_migrations"), 3);
}

TEST_F(migrations, each_older_version_with_rows_is_brought_up) {
  for (std::size_t from = 1; from <= three.size(); ++from) {
    std::filesystem::remove(path());
    ASSERT_TRUE(migrate_to(first(from)));
    {
      auto on = raw();
      ASSERT_TRUE(on.execute(from == 1 ? "INSERT INTO items (id, body) VALUES (1, 'four')"
                                       : "INSERT INTO items (id, body, size) VALUES (1, 'four', 4)"));
    }
    auto done = migrate_to(three);
    ASSERT_TRUE(done) << done.error().detail;
    EXPECT_EQ(number("SELECT size FROM items WHERE id = 1"), 4);
    EXPECT_EQ(number("SELECT COUNT(*) FROM notes"), 0);
  }
}

TEST_F(migrations, one_that_fails_on_the_rows_there_changes_nothing_and_keeps_those_before) {
  ASSERT_TRUE(migrate_to(first(1)));
  {
    auto on = raw();
    ASSERT_TRUE(on.execute("INSERT INTO items (id, body) VALUES (1, 'same'), (2, 'same')"));
  }
  auto broken = three;
  broken[2].text = "CREATE TABLE half (id BIGINT); DELETE FROM items; CREATE UNIQUE INDEX bad ON items (nowhere);";
  auto done = migrate_to(broken);
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().detail.find("migration 3"), std::string::npos) << done.error().detail;
  EXPECT_EQ(number("SELECT COUNT(*) FROM items"), 2);
  EXPECT_EQ(number("SELECT COUNT(*) FROM sqlite_master WHERE name = 'half'"), 0);
  EXPECT_EQ(number("SELECT COUNT(*) FROM schema_migrations"), 2);
  EXPECT_TRUE(migrate_to(three));
}

TEST_F(migrations, a_newer_schema_is_refused_with_both_versions_named) {
  ASSERT_TRUE(migrate_to(first(2)));
  auto done = migrate_to(first(1));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, store_errc::internal);
  EXPECT_NE(done.error().detail.find("schema version 2"), std::string::npos) << done.error().detail;
  EXPECT_NE(done.error().detail.find("up to 1"), std::string::npos) << done.error().detail;
  EXPECT_NE(done.error().detail.find("newer holt"), std::string::npos) << done.error().detail;
}

// Spec 97: replicas of version N and N-1 run on one schema.
TEST_F(migrations, a_newer_schema_that_says_so_is_run_on_by_the_older_binary) {
  ASSERT_TRUE(migrate_to(three));
  EXPECT_TRUE(migrate_to(first(2)));
  EXPECT_FALSE(migrate_to(first(1)));
  EXPECT_EQ(number("SELECT COUNT(*) FROM schema_migrations"), 3);
}

TEST_F(migrations, a_text_that_was_changed_after_it_was_applied_is_refused) {
  ASSERT_TRUE(migrate_to(first(2)));
  auto changed = three;
  changed[1].text = "SELECT 1;";
  auto done = migrate_to(changed);
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().detail.find("migration 2"), std::string::npos) << done.error().detail;
  EXPECT_EQ(number("SELECT COUNT(*) FROM schema_migrations"), 2);
}

TEST_F(migrations, one_that_turns_up_below_an_applied_one_is_refused) {
  auto gap = three;
  gap.erase(gap.begin() + 1);
  ASSERT_TRUE(migrate_to(gap));
  auto done = migrate_to(three);
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().detail.find("migration 2"), std::string::npos) << done.error().detail;
}

TEST_F(migrations, of_threads_that_start_at_once_one_applies_each) {
  raw();
  std::vector<std::thread> starting;
  for (int i = 0; i < 8; ++i) {
    starting.emplace_back([&] {
      auto done = migrate_to(three);
      EXPECT_TRUE(done) << done.error().detail;
    });
  }
  for (auto& each : starting) {
    each.join();
  }
  EXPECT_EQ(number("SELECT COUNT(*) FROM schema_migrations"), 3);
}

TEST(known_migrations, are_ascending_and_hashed) {
  const auto& known = known_migrations();
  ASSERT_FALSE(known.empty());
  EXPECT_TRUE(std::is_sorted(known.begin(), known.end(),
                             [](const auto& one, const auto& other) { return one.version < other.version; }));
  EXPECT_EQ(known[0].version, 1);
  EXPECT_EQ(migration_hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(start, a_database_of_a_newer_holt_is_left_alone) {
  temporary_directory directory;
  const auto path = directory.file("holt.db");
  auto newer = known_migrations();
  newer.push_back({newer.back().version + 1, "later", "CREATE TABLE later (id BIGINT);", newer.back().version + 1});
  ASSERT_TRUE(sqlite_database::open(path, {}, newer, 1));
  auto opened = open_sqlite_store(path);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().detail.find(path), std::string::npos);
  EXPECT_NE(opened.error().detail.find("newer holt"), std::string::npos) << opened.error().detail;
}

} // namespace holt::tests
