#include "agent/process_tree.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace holt::agent {
namespace {

using ::testing::UnorderedElementsAre;

process_entry entry(pid_t pid, pid_t parent, pid_t group, pid_t session, bool zombie = false) {
  return {pid, parent, group, session, zombie, 0};
}

const auto no_cookie = [](pid_t) { return false; };

TEST(process_tree, a_stat_line_is_read_whatever_the_name) {
  auto read = parse_stat("123 (a) S 9 (x)) R 1 120 119 0 -1 4194560 1");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->pid, 123);
  EXPECT_EQ(read->parent, 1);
  EXPECT_EQ(read->group, 120);
  EXPECT_EQ(read->session, 119);
  EXPECT_FALSE(read->zombie);
  EXPECT_EQ(read->started, ~0ull);
  EXPECT_EQ(parse_stat("7 (sh) S 1 7 7 0 -1 4194304 100 0 0 0 1 2 3 4 20 0 1 0 987654 2 3")->started, 987654u);
  EXPECT_TRUE(parse_stat("5 (x) Z 1 5 5 0")->zombie);
  EXPECT_FALSE(parse_stat(""));
  EXPECT_FALSE(parse_stat("5 (x"));
  EXPECT_FALSE(parse_stat("5 (x) R"));
}

TEST(process_tree, descendants_sessions_and_groups_belong) {
  std::vector<process_entry> all{
    entry(1, 0, 1, 1),                              // the agent
    entry(10, 1, 10, 10),                           // the leader
    entry(11, 10, 10, 10),                          // its child
    entry(12, 1, 10, 10),                           // left by its parent, still in the session
    entry(13, 11, 13, 13),                          // a child that made a session
    entry(14, 1, 13, 13),                           // left in that session
    entry(20, 1, 20, 20),                           // another leader
    entry(21, 20, 20, 20),
  };
  tree_signs signs{"HOLT_OP=x", 10, {}, 10, 0};
  EXPECT_THAT(members(all, signs, 1, no_cookie), UnorderedElementsAre(10, 11, 12, 13, 14));
}

TEST(process_tree, a_cookie_finds_what_left_everything_and_its_descendants) {
  std::vector<process_entry> all{entry(1, 0, 1, 1), entry(30, 1, 30, 30), entry(31, 30, 31, 31), entry(40, 1, 40, 40)};
  tree_signs signs{"HOLT_OP=x", 0, {}, 0, 0};
  auto cookie = [](pid_t pid) { return pid == 30; };
  EXPECT_THAT(members(all, signs, 1, cookie), UnorderedElementsAre(30, 31));
}

TEST(process_tree, what_started_before_its_leader_is_not_asked_for_a_cookie) {
  std::vector<process_entry> all{entry(30, 1, 30, 30), entry(40, 1, 40, 40)};
  all[0].started = 99;
  all[1].started = 100;
  EXPECT_THAT(members(all, {"HOLT_OP=x", 0, {}, 0, 100}, 1, [](pid_t) { return true; }), UnorderedElementsAre(40));
}

TEST(process_tree, the_dead_are_no_members_but_lead_to_the_living) {
  std::vector<process_entry> all{entry(10, 1, 10, 10, true), entry(11, 10, 10, 10)};
  EXPECT_THAT(members(all, {"HOLT_OP=x", 10, {}, 10, 0}, 1, no_cookie), UnorderedElementsAre(11));
}

TEST(process_tree, a_number_that_is_anothers_by_now_is_no_sign) {
  std::vector<process_entry> all{entry(10, 1, 10, 10), entry(11, 10, 10, 10)};
  EXPECT_TRUE(members(all, {"HOLT_OP=x", 0, {}, 0, 0}, 1, no_cookie).empty());
}

TEST(process_tree, the_agent_itself_is_never_a_member) {
  std::vector<process_entry> all{entry(5, 1, 10, 10), entry(10, 5, 10, 10)};
  EXPECT_THAT(members(all, {"HOLT_OP=x", 10, {}, 10, 0}, 5, [](pid_t) { return true; }), UnorderedElementsAre(10));
}

} // namespace
} // namespace holt::agent
