#include <random>
#include <set>

#include "tests/storage/child_process.hpp"
#include "tests/storage/store_test.hpp"

namespace holt::tests {

using namespace storage;
using crash = store_test;

// Spec 100.
TEST_F(crash, a_kill_at_any_moment_loses_no_acknowledged_write) {
  (**store_).close();
  std::mt19937 random(20240229);
  std::set<std::string> acknowledged;
  for (int round = 0; round < 12; ++round) {
    child_process writer({STORE_WRITER, "create", path(), std::to_string(round)});
    // The moment is a number of acknowledgements, from none at all to several commits' and a checkpoint's worth.
    const auto moment = std::uniform_int_distribution<int>(round == 0 ? 1 : 0, 60)(random) << (round % 4);
    std::string id;
    for (int i = 0; i < moment && writer.read_line(id); ++i) {
      acknowledged.insert(id);
    }
    writer.kill();
    while (writer.read_line(id)) {
      acknowledged.insert(id);
    }
    const int status = writer.wait();
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "it ended by itself";
  }
  ASSERT_GT(acknowledged.size(), 100u);

  open();
  for (const auto& id : acknowledged) {
    auto found = db().get_environment("org_a", id);
    ASSERT_TRUE(found) << id << " was acknowledged and is lost";
    EXPECT_EQ(found->environment.labels.size(), 1u);
  }
  // And nothing is there by half: a row has its labels, which the same transaction wrote.
  std::size_t by_label = 0;
  std::size_t in_all = 0;
  for (int round = -1; round < 12; ++round) {
    auto filter = list_of("org_a");
    if (round >= 0) {
      filter.labels = {{"writer", std::to_string(round)}};
    }
    filter.limit = 1000;
    do {
      auto page = db().list_environments(filter);
      ASSERT_TRUE(page);
      (round < 0 ? in_all : by_label) += page->items.size();
      filter.cursor = page->next_cursor;
    } while (!filter.cursor.empty());
  }
  EXPECT_EQ(by_label, in_all);
  EXPECT_GE(in_all, acknowledged.size());
}

TEST(start, of_processes_that_start_at_once_on_a_new_database_one_migrates_it) {
  for (int round = 0; round < 5; ++round) {
    temporary_directory directory;
    const auto path = directory.file("holt.db");
    std::vector<std::unique_ptr<child_process>> starting;
    for (int i = 0; i < 4; ++i) {
      starting.push_back(std::make_unique<child_process>(std::vector<std::string>{STORE_WRITER, "migrate", path}));
    }
    for (auto& each : starting) {
      std::string line;
      EXPECT_TRUE(each->read_line(line));
      EXPECT_EQ(line, "done");
      EXPECT_EQ(each->wait(), 0);
    }
    auto opened = open_sqlite_store(path);
    ASSERT_TRUE(opened) << opened.error().detail;
    EXPECT_EQ(waiting_store(*opened).list_orgs("", 10u)->items.size(), 0u);
  }
}

} // namespace holt::tests
