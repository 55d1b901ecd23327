#include <thread>

#include <caf/typed_event_based_actor.hpp>
#include <gtest/gtest.h>

#include "actors/answers.hpp"
#include "actors/blocking_pool.hpp"
#include "actors/config.hpp"
#include "actors/context.hpp"
#include "actors/error.hpp"
#include "actors/front_door.hpp"
#include "actors/lease.hpp"
#include "actors/messages.hpp"
#include "actors/provider.hpp"
#include "actors/schedule.hpp"
#include "protocols/problem.hpp"
#include "tests/actors/house.hpp"
#include "tests/support/actor_test.hpp"

/// Each actor by itself.
namespace holt::actors {
namespace {

using namespace std::chrono_literals;
using tests::actor_test;
using tests::behaviour;
using tests::house;

TEST(answers, every_code_is_one_of_the_api) {
  for (std::size_t code = 1; code < static_cast<std::size_t>(ec::count); ++code)
    EXPECT_NE(protocols::find_problem(to_string(static_cast<ec>(code))), nullptr) << to_string(static_cast<ec>(code));
}

TEST(answers, what_is_worth_trying_again_says_when) {
  for (auto code : {ec::busy, ec::sandbox_unavailable, ec::environment_unavailable, ec::store_unavailable, ec::stopping})
    EXPECT_TRUE(answer_of(code).retry_after) << to_string(code);
  for (auto code : {ec::not_found, ec::files_lost, ec::outcome_unknown, ec::conflict})
    EXPECT_FALSE(answer_of(code).retry_after) << to_string(code);
}

TEST(answers, a_way_back_is_used_exactly_once_also_when_it_is_dropped) {
  int answers = 0;
  std::string code;
  auto reply = [&](use_result result) {
    ++answers;
    code = result.error ? result.error->code : "";
  };
  {
    auto once = once_for(use_reply{reply});
    once->answer({});
    once->answer(failed_use(ec::busy));
  }
  EXPECT_EQ(answers, 1);
  EXPECT_EQ(code, "");
  once_for(use_reply{reply}).reset();
  EXPECT_EQ(answers, 2);
  EXPECT_EQ(code, "server.stopping");
}

// -- lease ----------------------------------------------------------------------------------------------------------------

struct told {
  std::vector<lease_ticket> granted;
  std::vector<std::pair<lease_ticket, ec>> refused;
};

using lease_asker_actor = lease_user_actor::extend<
    caf::reacts_to<acquire_atom, lease_actor, lease_ticket, lease_mode, std::uint32_t, std::uint32_t>>;

lease_asker_actor::behavior_type lease_asker(lease_asker_actor::pointer self, std::shared_ptr<told> told) {
  return {
      [told](granted_atom, lease_ticket ticket) { told->granted.push_back(ticket); },
      [told](refused_atom, lease_ticket ticket, std::uint8_t code) { told->refused.emplace_back(ticket, static_cast<ec>(code)); },
      [self](acquire_atom, const lease_actor& lease, lease_ticket ticket, lease_mode mode, std::uint32_t shared,
             std::uint32_t waiting) { self->send(lease, acquire_atom::value, ticket, mode, shared, waiting); },
  };
}

class lease_test : public actor_test {
protected:
  static constexpr lease_ticket a{1}, b{2}, c{3};

  lease_test() {
    shared->random = [this] { return ++random; };
    actor = system().spawn(lease, shared);
    user = system().spawn(lease_asker, ours);
    other = system().spawn(lease_asker, theirs);
  }

  void TearDown() override {
    for (auto* handle : {&user, &other})
      if (*handle)
        stop(*handle);
    if (actor)
      stop(actor);
    user = other = nullptr;
    actor = nullptr;
    actor_test::TearDown();
  }

  void acquire(const lease_asker_actor& who, lease_ticket ticket, lease_mode mode = lease_mode::shared,
               std::uint32_t max_waiting = 10) {
    caf::anon_send(who, acquire_atom::value, actor, ticket, mode, std::uint32_t{1}, max_waiting);
    run();
  }

  std::uint64_t random = 0;
  std::shared_ptr<context> shared = std::make_shared<context>();
  std::shared_ptr<told> ours = std::make_shared<told>(), theirs = std::make_shared<told>();
  lease_actor actor;
  lease_asker_actor user, other;
};

TEST_F(lease_test, a_waiting_user_is_told_when_the_actor_stops) {
  acquire(user, a);
  acquire(user, b);
  stop(actor);
  actor = nullptr;
  EXPECT_EQ(ours->granted, std::vector{a});
  ASSERT_EQ(ours->refused.size(), 1u);
  EXPECT_EQ(ours->refused[0], std::pair(b, ec::lease_lost));
}

TEST_F(lease_test, a_user_that_gives_up_waiting_is_answered) {
  acquire(user, a);
  acquire(user, b);
  caf::anon_send(actor, release_atom::value, b);
  run();
  ASSERT_EQ(ours->refused.size(), 1u);
  EXPECT_EQ(ours->refused[0], std::pair(b, ec::cancelled));
}

TEST_F(lease_test, a_full_queue_refuses_at_once) {
  acquire(user, a);
  acquire(user, b, lease_mode::shared, 0);
  ASSERT_EQ(ours->refused.size(), 1u);
  EXPECT_EQ(ours->refused[0], std::pair(b, ec::busy));
}

TEST_F(lease_test, a_ticket_in_use_is_refused) {
  acquire(user, a);
  acquire(user, a);
  ASSERT_EQ(ours->refused.size(), 1u);
  EXPECT_EQ(ours->refused[0], std::pair(a, ec::conflict));
}

TEST_F(lease_test, a_user_that_dies_has_released) {
  acquire(other, a, lease_mode::exclusive);
  acquire(user, b);
  EXPECT_TRUE(ours->granted.empty());
  stop(other);
  other = nullptr;
  EXPECT_EQ(ours->granted, std::vector{b});
}

// -- schedule -------------------------------------------------------------------------------------------------------------

using tick_actor = caf::typed_actor<caf::reacts_to<wake_atom, std::uint64_t>, caf::reacts_to<job_atom, std::string>,
                                    caf::reacts_to<wake_atom, schedule_actor, caf::timespan, std::uint64_t>>;

tick_actor::behavior_type ticker(tick_actor::pointer self, std::shared_ptr<std::vector<std::string>> seen) {
  return {
      [seen](wake_atom, std::uint64_t generation) { seen->push_back("wake " + std::to_string(generation)); },
      [seen](job_atom, const std::string& name) { seen->push_back(name); },
      [self](wake_atom, const schedule_actor& schedule, caf::timespan in, std::uint64_t generation) {
        self->send(schedule, wake_atom::value, caf::timespan{self->clock().now().time_since_epoch() + in}, generation);
      },
  };
}

class schedule_test : public actor_test {
protected:
  schedule_test() {
    actor = system().spawn(schedule);
    sleeper = system().spawn(ticker, seen);
  }
  void TearDown() override {
    stop(sleeper);
    sleeper = nullptr;
    advance(2h, 10min);
    stop(actor);
    actor = nullptr;
    actor_test::TearDown();
  }
  void wake(std::chrono::nanoseconds in, std::uint64_t generation) {
    caf::anon_send(sleeper, wake_atom::value, actor, caf::timespan{in}, generation);
    run();
  }

  std::shared_ptr<std::vector<std::string>> seen = std::make_shared<std::vector<std::string>>();
  schedule_actor actor;
  tick_actor sleeper;
};

TEST_F(schedule_test, a_sleeper_is_woken_at_its_time_and_once) {
  wake(1s, 7);
  advance(900ms);
  EXPECT_TRUE(seen->empty());
  advance(200ms);
  EXPECT_EQ(*seen, std::vector<std::string>{"wake 7"});
  advance(10s);
  EXPECT_EQ(seen->size(), 1u);
}

TEST_F(schedule_test, a_nearer_deadline_replaces_the_timer) {
  wake(1h, 1);
  wake(1s, 2);
  advance(2s);
  EXPECT_EQ(*seen, std::vector<std::string>{"wake 2"});
  advance(2h, 1min);
  EXPECT_EQ(seen->size(), 1u) << "one deadline a sleeper";
}

TEST_F(schedule_test, a_job_comes_each_period) {
  caf::anon_send(actor, every_atom::value, std::string{"sweep"}, caf::timespan{1h}, caf::actor_cast<worker_actor>(sleeper));
  run();
  advance(3h + 1min, 1min);
  EXPECT_EQ(*seen, (std::vector<std::string>{"sweep", "sweep", "sweep"}));
}

// -- provider -------------------------------------------------------------------------------------------------------------

TEST(provider, never_two_calls_for_one_environment) {
  house h;
  h.checks_calls = false;
  h.pool->holds = true;
  h.use("op_1");
  h.run();
  h.kill_environment(); // its call is under way
  h.run();
  h.use("op_2");
  h.run();
  EXPECT_EQ(h.pool->held.size(), 1u);
  h.pool->release();
  h.run();
  EXPECT_EQ(h.world->instances.size(), 1u);
  EXPECT_EQ(h.world->instances.at("env_1").generation, h.store->instance("env_1").generation - 1);
}

TEST(provider, calls_at_a_time_are_bounded) {
  house h;
  h.checks_calls = false;
  h.pool->holds = true;
  for (int i = 0; i < 10; ++i) {
    auto id = "env_many_" + std::to_string(i);
    h.store->add_environment(id);
    h.use("op_" + std::to_string(i), [&](auto& request) { request.environment_id = id; });
  }
  h.run();
  EXPECT_EQ(h.pool->held.size(), provider_limits{}.max_running);
  h.pool->release();
  h.run();
  EXPECT_EQ(h.world->instances.size(), 10u);
}

TEST(provider, an_unhealthy_provider_is_told_once_and_again_when_it_is_well) {
  house h;
  h.world->fails = [](auto&, auto&) { return std::optional{provider_errc::unavailable}; };
  for (int i = 0; i < 6; ++i) {
    h.use("op_" + std::to_string(i));
    h.run();
  }
  auto count = [&](const std::string& event) {
    return std::count_if(h.log.begin(), h.log.end(), [&](auto& line) { return line.first == event; });
  };
  EXPECT_EQ(count("provider.unhealthy"), 1);
  h.world->fails = {};
  h.use("op_last");
  h.run();
  EXPECT_EQ(count("provider.healthy"), 1);
}

// -- blocking pool --------------------------------------------------------------------------------------------------------

TEST(blocking_pool, jobs_run_on_threads_of_their_own_and_all_run) {
  system_config config{2};
  caf::actor_system system{config};
  auto pool = system.spawn(blocking_pool, 3u);
  std::atomic<int> done{0}, at_once{0}, most{0};
  auto job = std::make_shared<const std::function<void()>>([&] {
    int now = ++at_once;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
    }
    std::this_thread::sleep_for(5ms);
    --at_once;
    ++done;
  });
  for (int i = 0; i < 30; ++i)
    caf::anon_send(pool, run_atom::value, blocking_job{job});
  while (done < 30)
    std::this_thread::yield();
  EXPECT_LE(most, 3);
  caf::anon_send_exit(pool, caf::exit_reason::user_shutdown);
  pool = nullptr;
}

// -- session: what the agent may say --------------------------------------------------------------------------------------

TEST(agent_session, a_detached_stream_stays_off_after_a_reconnect) {
  house h;
  h.world->behaves = [](auto&) { return behaviour::run; };
  auto use = h.use("op_1");
  h.run();
  caf::anon_send(h.supervisor, detach_atom::value, std::string{house::env}, std::string{"op_1"}, use->observer->streams);
  h.run();
  h.world->print("op_1", "unheard");
  h.world->drop_connections("env_1");
  h.advance(5s);
  EXPECT_EQ(use->output->bytes, "hello\n");
  h.world->complete("op_1");
  h.run();
  EXPECT_EQ(use->code(), "") << "the use is answered all the same";
}

TEST(agent_session, more_streams_than_a_connection_has_are_busy) {
  house h{1, [](auto& settings) { settings.max_concurrent_commands = 100; }};
  h.world->behaves = [](auto&) { return behaviour::run; };
  std::vector<std::shared_ptr<tests::asked>> uses;
  for (int i = 0; i < 66; ++i)
    uses.push_back(h.use("op_" + std::to_string(i)));
  h.run();
  int busy = 0;
  for (auto& use : uses)
    busy += use->code() == "environment.busy";
  EXPECT_EQ(busy, 2);
}

TEST(agent_session, a_cancel_during_a_reconnect_is_not_lost) {
  house h;
  h.world->behaves = [](auto&) { return behaviour::run; };
  auto use = h.use("op_1");
  h.run();
  h.world->drop_connections("env_1");
  h.run();
  h.cancel("op_1");
  h.advance(5s);
  EXPECT_EQ(use->code(), "");
}

TEST(agent_session, hundreds_of_operations_are_taken_up_again) {
  house h{1, [](auto& settings) { settings.max_concurrent_commands = 1000; }};
  h.world->behaves = [](auto&) { return behaviour::run; };
  std::vector<std::shared_ptr<tests::asked>> uses;
  for (int i = 0; i < 450; ++i)
    uses.push_back(h.use("op_" + std::to_string(i), [](auto& request) { request.streams.clear(); }));
  h.run();
  h.world->drop_connections("env_1");
  h.advance(5s);
  for (int i = 0; i < 450; ++i)
    h.world->complete("op_" + std::to_string(i));
  h.run();
  for (auto& use : uses)
    EXPECT_EQ(use->code(), "");
}

} // namespace
} // namespace holt::actors
