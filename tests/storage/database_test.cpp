#include <atomic>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <sys/stat.h>

#include "storage/sqlite/migrate.hpp"
#include "storage/sqlite/sqlite_database.hpp"
#include "tests/storage/store_test.hpp"

namespace holt::tests {

using namespace storage;

namespace {

const std::vector<migration> schema = {
    {1, "first",
     "CREATE TABLE items (id TEXT PRIMARY KEY, body TEXT); CREATE TABLE parts (id TEXT PRIMARY KEY, "
     "item TEXT NOT NULL REFERENCES items (id));",
     1}};

unit insert(const std::string& id, const std::string& body = "") {
  return {{"INSERT INTO items (id, body) VALUES ($1, $2)", values(id, body)}};
}

/// A database of items, and calls that wait.
class sqlite : public ::testing::Test {
protected:
  void open() {
    auto opened = sqlite_database::open(path(), settings_, schema, 1);
    ASSERT_TRUE(opened) << opened.error().detail;
    database_ = std::move(*opened);
  }

  store_result<unit_result> write(unit work) {
    return answer_of<unit_result>([&](auto reply) { database_->write(std::move(work), std::move(reply)); });
  }

  store_result<unit_result> read(unit work) {
    return answer_of<unit_result>([&](auto reply) { database_->read(std::move(work), std::move(reply)); });
  }

  std::int64_t items() {
    return read({{"SELECT COUNT(*) FROM items", {}}}).value()[0].rows[0].number(0);
  }

  std::string path() const {
    return directory_.file("items.db");
  }

  temporary_directory directory_;
  sqlite_settings settings_;
  std::unique_ptr<sqlite_database> database_;
};

/// Holds the writing thread inside a reply, so that what is asked for meanwhile gathers.
class held_writer {
public:
  explicit held_writer(database& of) {
    std::promise<void> held;
    of.write({{"SELECT 1", {}}}, [&, go = go_.get_future().share()](const auto&) {
      held.set_value();
      go.wait();
    });
    held.get_future().wait();
  }
  void release() {
    go_.set_value();
  }

private:
  std::promise<void> go_;
};

/// Answers of many calls, waited for together.
class answers {
public:
  unit_reply next() {
    std::lock_guard lock(mutex_);
    const auto place = results_.size();
    results_.emplace_back();
    return [this, place](store_result<unit_result> result) {
      std::lock_guard inner(mutex_);
      EXPECT_FALSE(results_[place].has_value()) << "answered twice";
      results_[place] = std::move(result);
      ++answered_;
      all_.notify_all();
    };
  }
  std::vector<std::optional<store_result<unit_result>>>& wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(all_.wait_for(lock, std::chrono::seconds(60), [&] { return answered_ == results_.size(); }));
    return results_;
  }

private:
  std::mutex mutex_;
  std::condition_variable all_;
  std::vector<std::optional<store_result<unit_result>>> results_;
  std::size_t answered_ = 0;
};

} // namespace

TEST_F(sqlite, calls_that_gathered_share_one_commit) {
  open();
  held_writer held(*database_);
  const auto before = database_->count();
  answers replies;
  for (int i = 0; i < 200; ++i) {
    database_->write(insert(std::to_string(i)), replies.next());
  }
  held.release();
  for (auto& each : replies.wait()) {
    EXPECT_TRUE(each->has_value());
  }
  EXPECT_EQ(items(), 200);
  EXPECT_EQ(database_->count().calls - before.calls, 200u);
  EXPECT_EQ(database_->count().commits - before.commits, 1u);
}

TEST_F(sqlite, fifty_callers_need_fewer_commits_than_calls) {
  open();
  const auto before = database_->count();
  std::vector<std::thread> callers;
  for (int i = 0; i < 50; ++i) {
    callers.emplace_back([&, i] {
      for (int k = 0; k < 20; ++k) {
        EXPECT_TRUE(write(insert(std::to_string(i) + " " + std::to_string(k))));
      }
    });
  }
  for (auto& each : callers) {
    each.join();
  }
  const auto after = database_->count();
  EXPECT_EQ(after.calls - before.calls, 1000u);
  EXPECT_LT(after.commits - before.commits, 500u);
  EXPECT_EQ(items(), 1000);
}

TEST_F(sqlite, a_call_that_fails_in_a_group_fails_alone) {
  open();
  ASSERT_TRUE(write(insert("taken")));
  held_writer held(*database_);
  answers replies;
  database_->write(insert("first"), replies.next());
  database_->write(insert("taken"), replies.next());
  // Its first step holds, its second doesn't: the first is undone.
  database_->write({insert("half")[0], insert("taken")[0]}, replies.next());
  database_->write({insert("fenced")[0], {"UPDATE items SET body = '' WHERE id = 'none'", {}, store_errc::fenced}},
                   replies.next());
  database_->write({{"INSERT INTO parts (id, item) VALUES ('p', 'none')", {}}}, replies.next());
  database_->write({{"INSERT INTO nowhere VALUES (1)", {}}}, replies.next());
  database_->write({{"SELECT $1", {}}}, replies.next());
  database_->write({insert("second")[0], insert("third")[0]}, replies.next());
  held.release();
  auto& results = replies.wait();
  EXPECT_TRUE(*results[0]);
  EXPECT_EQ(error_of(*results[1]), store_errc::conflict);
  EXPECT_EQ(error_of(*results[2]), store_errc::conflict);
  EXPECT_EQ(error_of(*results[3]), store_errc::fenced);
  EXPECT_EQ(error_of(*results[4]), store_errc::not_found);
  EXPECT_EQ(error_of(*results[5]), store_errc::internal);
  EXPECT_EQ(error_of(*results[6]), store_errc::internal);
  EXPECT_TRUE(*results[7]);
  auto found = read({{"SELECT id FROM items ORDER BY id", {}}}).value();
  std::vector<std::string> ids;
  for (const auto& each : found[0].rows) {
    ids.push_back(each.text(0));
  }
  EXPECT_EQ(ids, (std::vector<std::string>{"first", "second", "taken", "third"}));
}

TEST_F(sqlite, a_group_in_which_all_fail_commits_nothing) {
  open();
  ASSERT_TRUE(write(insert("taken")));
  const auto before = database_->count().commits;
  EXPECT_EQ(error_of(write(insert("taken"))), store_errc::conflict);
  EXPECT_EQ(database_->count().commits, before);
}

TEST_F(sqlite, a_write_is_there_for_every_read_after_its_reply) {
  open();
  for (int i = 1; i <= 200; ++i) {
    ASSERT_TRUE(write(insert(std::to_string(i))));
    ASSERT_EQ(items(), i);
  }
}

TEST_F(sqlite, the_steps_of_a_read_see_one_state) {
  open();
  std::atomic<bool> reading = true;
  std::thread writing([&] {
    for (int i = 0; reading; ++i) {
      EXPECT_TRUE(write(insert(std::to_string(i))));
    }
  });
  for (int i = 0; i < 200; ++i) {
    auto both = read({{"SELECT COUNT(*) FROM items", {}}, {"SELECT COUNT(*) FROM items", {}}}).value();
    ASSERT_EQ(both[0].rows[0].number(0), both[1].rows[0].number(0));
  }
  reading = false;
  writing.join();
}

TEST_F(sqlite, a_read_can_not_write) {
  open();
  EXPECT_FALSE(read(insert("x")));
  EXPECT_EQ(items(), 0);
}

TEST_F(sqlite, parameters_are_taken_by_their_number) {
  open();
  auto found = read({{"SELECT $2, $1, $2, $3", values(std::string("one"), std::string("two"), std::int64_t{3})}});
  ASSERT_TRUE(found) << found.error().detail;
  const auto& got = (*found)[0].rows[0];
  EXPECT_EQ(got.text(0), "two");
  EXPECT_EQ(got.text(1), "one");
  EXPECT_EQ(got.text(2), "two");
  EXPECT_EQ(got.number(3), 3);
}

TEST_F(sqlite, text_is_kept_byte_for_byte) {
  open();
  const std::string text("a\0b'\"\xf0\x9f\x8e\x89\n", 10);
  ASSERT_TRUE(write(insert("x", text)));
  EXPECT_EQ(read({{"SELECT body FROM items", {}}}).value()[0].rows[0].text(0), text);
}

TEST_F(sqlite, a_full_queue_refuses_at_once_and_loses_nothing_that_it_took) {
  settings_.writer.max_queued = 5;
  open();
  held_writer held(*database_);
  answers replies;
  for (int i = 0; i < 8; ++i) {
    database_->write(insert(std::to_string(i)), replies.next());
  }
  held.release();
  auto& results = replies.wait();
  for (std::size_t i = 0; i < 8; ++i) {
    if (i < 5) {
      EXPECT_TRUE(*results[i]);
    } else {
      EXPECT_EQ(error_of(*results[i]), store_errc::unavailable);
    }
  }
  EXPECT_EQ(items(), 5);
}

TEST_F(sqlite, closing_finishes_what_is_queued) {
  open();
  held_writer held(*database_);
  answers replies;
  for (int i = 0; i < 50; ++i) {
    database_->write(insert(std::to_string(i)), replies.next());
  }
  database_->write_lazily("key", 1, insert("lazy"));
  std::thread closing([&] { database_->close(); });
  held.release();
  closing.join();
  for (auto& each : replies.wait()) {
    EXPECT_TRUE(each->has_value());
  }
  open();
  EXPECT_EQ(items(), 51);
}

TEST_F(sqlite, of_lazy_writes_under_one_key_the_highest_is_carried_out) {
  settings_.writer.lazy_delay = std::chrono::hours(1);
  open();
  database_->write_lazily("key", 2, insert("two"));
  database_->write_lazily("key", 3, insert("three"));
  database_->write_lazily("key", 1, insert("one"));
  database_->write_lazily("other", 1, insert("other"));
  EXPECT_EQ(items(), 0);
  database_->close();
  open();
  auto found = read({{"SELECT id FROM items ORDER BY id", {}}}).value();
  ASSERT_EQ(found[0].rows.size(), 2u);
  EXPECT_EQ(found[0].rows[0].text(0), "other");
  EXPECT_EQ(found[0].rows[1].text(0), "three");
}

TEST_F(sqlite, lazy_writes_come_by_themselves_and_before_they_grow_too_many) {
  settings_.writer.lazy_delay = std::chrono::milliseconds(1);
  open();
  database_->write_lazily("key", 1, insert("by time"));
  while (items() < 1) {
    std::this_thread::yield();
  }
  database_->close();
  settings_.writer.lazy_delay = std::chrono::hours(1);
  settings_.writer.max_lazy = 10;
  open();
  for (int i = 0; i < 10; ++i) {
    database_->write_lazily(std::to_string(i), 1, insert(std::to_string(i)));
  }
  while (items() < 11) {
    std::this_thread::yield();
  }
}

TEST_F(sqlite, a_full_database_is_unavailable_and_goes_on_afterwards) {
  settings_.max_pages = 60;
  open();
  const std::string body(3000, 'x');
  int written = 0;
  for (;; ++written) {
    auto result = write(insert(std::to_string(written), body));
    if (!result) {
      EXPECT_EQ(error_of(result), store_errc::unavailable) << result.error().detail;
      break;
    }
    ASSERT_LT(written, 1000);
  }
  EXPECT_EQ(items(), written) << "everything acknowledged is there, and readable";
  // In a group with calls that still fit, the one that doesn't fails alone.
  held_writer held(*database_);
  answers replies;
  database_->write({{"UPDATE items SET body = $1 WHERE id = '0'", values(std::string(2999, 'y'))}}, replies.next());
  database_->write(insert("too much", std::string(30'000, 'x')), replies.next());
  database_->write({{"DELETE FROM items WHERE id = '1'", {}}}, replies.next());
  held.release();
  auto& results = replies.wait();
  EXPECT_TRUE(*results[0]);
  EXPECT_EQ(error_of(*results[1]), store_errc::unavailable);
  EXPECT_TRUE(*results[2]);
  // What was freed is used again.
  EXPECT_TRUE(write(insert("fits", body)));
  EXPECT_EQ(items(), written);
}

TEST_F(sqlite, a_file_that_can_not_grow_is_unavailable_until_it_can) {
  open();
  ASSERT_TRUE(write(insert("before")));
  struct stat log {};
  ASSERT_EQ(::stat((path() + "-wal").c_str(), &log), 0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit tight{static_cast<rlim_t>(log.st_size) + 20'000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  std::vector<store_result<unit_result>> results;
  int good = 0;
  for (int i = 0; i < 20; ++i) {
    results.push_back(write(insert(std::to_string(i), std::string(3000, 'x'))));
    good += results.back().has_value() ? 1 : 0;
  }
  const auto readable = items();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_LT(good, 20);
  EXPECT_EQ(readable, 1 + good);
  for (const auto& each : results) {
    if (!each) {
      EXPECT_EQ(each.error().code, store_errc::unavailable) << each.error().detail;
    }
  }
  EXPECT_TRUE(write(insert("after", std::string(30'000, 'x'))));
  database_->close();
  open();
  EXPECT_EQ(items(), 2 + good);
}

TEST_F(sqlite, another_process_s_lock_is_waited_for_and_then_unavailable) {
  settings_.each_connection.busy_timeout = std::chrono::milliseconds(50);
  open();
  auto other = connection::open(path(), {});
  ASSERT_TRUE(other);
  ASSERT_TRUE(other->execute("BEGIN IMMEDIATE"));
  EXPECT_EQ(error_of(write(insert("x"))), store_errc::unavailable);
  EXPECT_EQ(items(), 0) << "reading goes on";
  ASSERT_TRUE(other->execute("ROLLBACK"));
  EXPECT_TRUE(write(insert("x")));
}

TEST_F(sqlite, only_its_owner_may_read_the_files) {
  open();
  ASSERT_TRUE(write(insert("x")));
  for (const char* suffix : {"", "-wal", "-shm"}) {
    struct stat file {};
    ASSERT_EQ(::stat((path() + suffix).c_str(), &file), 0);
    EXPECT_EQ(file.st_mode & 0777, 0600u) << suffix;
  }
}

TEST_F(sqlite, a_file_that_is_no_database_is_refused_by_name_and_left_as_it_was) {
  const std::string text(5000, 'n');
  std::ofstream(path()) << text;
  auto opened = sqlite_database::open(path(), settings_, schema, 1);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, store_errc::internal);
  EXPECT_NE(opened.error().detail.find(path()), std::string::npos) << opened.error().detail;
  EXPECT_NE(opened.error().detail.find("not a database"), std::string::npos) << opened.error().detail;
  std::ifstream file(path());
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), text);
}

TEST_F(sqlite, a_damaged_database_is_refused_by_name) {
  open();
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(write(insert(std::to_string(i), std::string(500, 'x'))));
  }
  database_->close();
  {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    for (int page = 3; page < 20; ++page) {
      file.seekp(page * 4096 + 4);
      file << std::string(64, '\xee');
    }
  }
  auto opened = sqlite_database::open(path(), settings_, schema, 1);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, store_errc::internal);
  EXPECT_NE(opened.error().detail.find(path()), std::string::npos);
  EXPECT_NE(opened.error().detail.find("damaged"), std::string::npos) << opened.error().detail;
}

TEST_F(sqlite, a_directory_that_is_missing_is_named) {
  auto opened = sqlite_database::open(directory_.file("none/items.db"), settings_, schema, 1);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, store_errc::unavailable);
  EXPECT_NE(opened.error().detail.find("none/items.db"), std::string::npos);
}

} // namespace holt::tests
