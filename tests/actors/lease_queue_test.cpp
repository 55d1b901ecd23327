#include "actors/logic/lease_queue.hpp"

#include <unistd.h>

#include <random>

#include <gtest/gtest.h>

namespace holt::actors::logic {
namespace {

constexpr lease_ticket a{1}, b{2}, c{3}, d{4}, e{5};
using tickets = std::vector<lease_ticket>;
constexpr lease_limits two{.max_shared = 2, .max_waiting = 10};
constexpr lease_limits one{.max_shared = 1, .max_waiting = 10};

TEST(lease_queue, shared_users_work_together_up_to_the_cap) {
  lease_queue queue;
  EXPECT_EQ(queue.acquire(a, lease_mode::shared, two), tickets{a});
  EXPECT_EQ(queue.acquire(b, lease_mode::shared, two), tickets{b});
  EXPECT_EQ(queue.acquire(c, lease_mode::shared, two), tickets{});
  EXPECT_EQ(queue.release(a), tickets{c});
}

TEST(lease_queue, the_cap_is_read_at_every_use) {
  lease_queue queue;
  queue.acquire(a, lease_mode::shared, one);
  EXPECT_EQ(queue.acquire(b, lease_mode::shared, two), tickets{b});
  EXPECT_EQ(queue.acquire(c, lease_mode::shared, one), tickets{});
  EXPECT_EQ(queue.release(a), tickets{});
  EXPECT_EQ(queue.release(b), tickets{c});
}

TEST(lease_queue, file_operations_do_not_count) {
  lease_queue queue;
  queue.acquire(a, lease_mode::shared, one);
  EXPECT_EQ(queue.acquire(b, lease_mode::shared, one), tickets{});
  EXPECT_EQ(queue.acquire(c, lease_mode::uncounted, one), tickets{c});
  EXPECT_EQ(queue.release(c), tickets{});
  EXPECT_EQ(queue.release(a), tickets{b});
}

TEST(lease_queue, nobody_passes_a_waiting_exclusive) {
  lease_queue queue;
  queue.acquire(a, lease_mode::shared, two);
  EXPECT_EQ(queue.acquire(b, lease_mode::exclusive, two), tickets{});
  EXPECT_EQ(queue.acquire(c, lease_mode::shared, two), tickets{});
  EXPECT_EQ(queue.acquire(d, lease_mode::uncounted, two), tickets{});
  EXPECT_EQ(queue.release(a), tickets{b});
  EXPECT_EQ(queue.release(b), (tickets{c, d}));
}

TEST(lease_queue, an_exclusive_waits_for_uncounted_users_too) {
  lease_queue queue;
  queue.acquire(a, lease_mode::uncounted, two);
  EXPECT_EQ(queue.acquire(b, lease_mode::exclusive, two), tickets{});
  EXPECT_EQ(queue.release(a), tickets{b});
}

TEST(lease_queue, an_exclusive_behind_a_waiting_command_stays_in_order) {
  lease_queue queue;
  queue.acquire(a, lease_mode::shared, one);
  queue.acquire(b, lease_mode::shared, one);
  queue.acquire(c, lease_mode::exclusive, one);
  queue.acquire(d, lease_mode::uncounted, one);
  EXPECT_EQ(queue.release(a), tickets{b});
  EXPECT_EQ(queue.release(b), tickets{c});
  EXPECT_EQ(queue.release(c), tickets{d});
}

TEST(lease_queue, an_exclusive_that_gives_up_lets_the_rest_in) {
  lease_queue queue;
  queue.acquire(a, lease_mode::shared, two);
  queue.acquire(b, lease_mode::exclusive, two);
  queue.acquire(c, lease_mode::shared, two);
  queue.acquire(d, lease_mode::shared, two);
  EXPECT_EQ(queue.release(b), tickets{c});
  EXPECT_EQ(queue.release(c), tickets{d});
}

TEST(lease_queue, a_full_queue_refuses) {
  constexpr lease_limits tight{.max_shared = 1, .max_waiting = 1};
  lease_queue queue;
  EXPECT_FALSE(queue.refuses(lease_mode::shared, tight));
  queue.acquire(a, lease_mode::shared, tight);
  EXPECT_FALSE(queue.refuses(lease_mode::shared, tight));
  queue.acquire(b, lease_mode::shared, tight);
  EXPECT_TRUE(queue.refuses(lease_mode::shared, tight));
  EXPECT_TRUE(queue.refuses(lease_mode::exclusive, tight));
  EXPECT_FALSE(queue.refuses(lease_mode::uncounted, tight)) << "it needs not wait";
}

TEST(lease_queue, releasing_twice_changes_nothing) {
  lease_queue queue;
  queue.acquire(a, lease_mode::shared, one);
  queue.acquire(b, lease_mode::shared, one);
  queue.acquire(e, lease_mode::shared, one);
  EXPECT_EQ(queue.release(a), tickets{b});
  EXPECT_EQ(queue.release(a), tickets{});
  EXPECT_TRUE(queue.knows(e));
  EXPECT_FALSE(queue.knows(a));
}

TEST(lease_queue, at_random_it_never_breaks_its_promises) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random{seed};
    lease_queue queue;
    std::map<lease_ticket, lease_mode> asked, held;
    constexpr lease_limits limits{.max_shared = 3, .max_waiting = 8};
    for (std::uint64_t i = 1; i < 200; ++i) {
      tickets granted;
      if (random() % 2 && !queue.refuses(lease_mode{static_cast<std::uint8_t>(i % 3)}, limits)) {
        auto mode = lease_mode{static_cast<std::uint8_t>(i % 3)};
        asked[lease_ticket{i}] = mode;
        granted = queue.acquire(lease_ticket{i}, mode, limits);
      } else if (!asked.empty()) {
        auto which = std::next(asked.begin(), static_cast<long>(random() % asked.size()));
        auto ticket = which->first;
        held.erase(ticket);
        asked.erase(which);
        granted = queue.release(ticket);
      }
      for (auto ticket : granted) {
        ASSERT_TRUE(asked.contains(ticket));
        ASSERT_TRUE(held.emplace(ticket, asked[ticket]).second) << "granted twice";
      }
      auto count = [&](lease_mode mode) {
        return std::count_if(held.begin(), held.end(), [=](auto& user) { return user.second == mode; });
      };
      ASSERT_LE(count(lease_mode::shared), 3);
      if (count(lease_mode::exclusive) > 0) {
        ASSERT_EQ(held.size(), 1u);
      }
      // Nobody waits for nothing.
      if (!asked.empty()) {
        ASSERT_FALSE(held.empty());
      }
    }
  }
}

// A process id that came back after a restart once kept everybody out.
TEST(lease_queue, owner_token_is_random) {
  std::mt19937_64 first{std::random_device{}()}, second{std::random_device{}()};
  auto token = make_owner_token(first);
  EXPECT_EQ(token.size(), 32u);
  EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(token, make_owner_token(first));
  EXPECT_NE(token, make_owner_token(second));
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
  EXPECT_NE(token, host);
  EXPECT_NE(token, std::to_string(::getpid()));
}

} // namespace
} // namespace holt::actors::logic
