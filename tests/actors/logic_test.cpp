#include <gtest/gtest.h>

#include "actors/logic/deadline_index.hpp"
#include "actors/logic/idle.hpp"
#include "actors/logic/retry.hpp"
#include "actors/logic/use_decision.hpp"

namespace holt::actors::logic {
namespace {

using namespace std::chrono_literals;

// -- when an operation may be run again (spec 15, 44) ---------------------------------------------------------------------

TEST(use_decision, what_did_not_start_is_run_once_more_after_a_rebuild) {
  EXPECT_TRUE(decide_use({attempt_end::gone, false, false, 1}).again);
}

TEST(use_decision, what_is_safe_to_repeat_is_run_once_more_after_a_rebuild) {
  EXPECT_TRUE(decide_use({attempt_end::gone, true, true, 1}).again);
}

TEST(use_decision, a_command_that_may_have_run_is_never_run_again) {
  auto decision = decide_use({attempt_end::gone, true, false, 1});
  EXPECT_FALSE(decision.again);
  EXPECT_EQ(decision.error, ec::outcome_unknown);
}

TEST(use_decision, gone_a_second_time_is_an_error) {
  EXPECT_EQ(decide_use({attempt_end::gone, false, false, 2}).error, ec::instance_gone);
  EXPECT_FALSE(decide_use({attempt_end::gone, false, false, 2}).again);
}

TEST(use_decision, unreachable_never_leads_to_a_rebuild) {
  for (bool ran : {false, true})
    for (bool safe : {false, true})
      EXPECT_FALSE(decide_use({attempt_end::unreachable, ran, safe, 0}).again);
  EXPECT_EQ(decide_use({attempt_end::unreachable, false, false, 0}).error, ec::sandbox_unavailable);
  EXPECT_EQ(decide_use({attempt_end::unreachable, true, false, 0}).error, ec::outcome_unknown);
}

TEST(use_decision, an_unknown_outcome_is_told_and_not_retried) {
  for (bool safe : {false, true})
    EXPECT_EQ(decide_use({attempt_end::unknown, true, safe, 0}).error, ec::outcome_unknown);
  EXPECT_EQ(decide_use({attempt_end::expired, true, false, 0}).error, ec::expired);
}

// -- retries --------------------------------------------------------------------------------------------------------------

TEST(retry_budget, delays_double_up_to_the_cap_with_full_jitter) {
  retry_budget budget{{.base = 100ms, .cap = 300ms, .max_retries = 4}};
  EXPECT_EQ(budget.next(0.999), 99ms);
  EXPECT_EQ(budget.next(0.5), 100ms);
  EXPECT_EQ(budget.next(0.0), 0ms);
  EXPECT_EQ(budget.next(0.5), 150ms);
  EXPECT_EQ(budget.next(0.5), std::nullopt);
  budget.succeeded();
  EXPECT_EQ(budget.next(0.5), 50ms);
}

TEST(rate_budget, a_burst_then_one_an_interval) {
  rate_budget budget{2, 10s};
  EXPECT_FALSE(budget.take(0s));
  EXPECT_FALSE(budget.take(0s));
  EXPECT_EQ(budget.take(0s), 10s);
  EXPECT_EQ(budget.take(4s), 6s);
  EXPECT_FALSE(budget.take(10s));
  EXPECT_TRUE(budget.take(11s));
  EXPECT_FALSE(budget.take(60s));
  EXPECT_FALSE(budget.take(60s));
}

// -- deadlines ------------------------------------------------------------------------------------------------------------

TEST(deadline_index, what_is_due_comes_in_order_and_once) {
  deadline_index<std::string> index;
  index.set("b", 20ms);
  index.set("a", 10ms);
  index.set("c", 30ms);
  EXPECT_EQ(index.earliest(), 10ms);
  EXPECT_EQ(index.take_due(20ms), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(index.take_due(20ms), std::vector<std::string>{});
  EXPECT_EQ(index.size(), 1u);
}

TEST(deadline_index, a_key_has_one_deadline) {
  deadline_index<int> index;
  index.set(1, 10ms);
  index.set(1, 50ms);
  EXPECT_EQ(index.take_due(20ms), std::vector<int>{});
  index.erase(1);
  EXPECT_EQ(index.earliest(), std::nullopt);
}

// -- idleness -------------------------------------------------------------------------------------------------------------

TEST(passivation, an_actor_goes_only_when_nobody_used_it_for_the_time_set) {
  EXPECT_EQ(decide_passivation({100s, 0s, 60s, 0, false}), passivation::go);
  EXPECT_EQ(decide_passivation({100s, 50s, 60s, 0, false}), passivation::wait);
  EXPECT_EQ(decide_passivation({100s, 0s, 60s, 1, false}), passivation::stay);
  EXPECT_EQ(decide_passivation({100s, 0s, 60s, 0, true}), passivation::stay);
}

sweep_view idle_for(std::chrono::microseconds time, std::string_view status = "running") {
  sweep_view view;
  view.status = status;
  view.row_provider = view.current_provider = "bubblewrap";
  view.now = time;
  view.suspend_after = 30min;
  view.destroy_after = 24h;
  return view;
}

TEST(sweep_decision, running_instances_idle_for_too_long_are_suspended) {
  EXPECT_EQ(decide_sweep(idle_for(29min)), sweep_action::leave);
  EXPECT_EQ(decide_sweep(idle_for(30min)), sweep_action::suspend);
  EXPECT_EQ(decide_sweep(idle_for(30min, "suspended")), sweep_action::leave);
}

TEST(sweep_decision, only_instances_made_by_the_current_provider_are_suspended) {
  auto view = idle_for(30min);
  view.current_provider = "docker";
  EXPECT_EQ(decide_sweep(view), sweep_action::leave);
}

TEST(sweep_decision, long_unused_instances_and_creates_in_progress_are_destroyed) {
  for (auto* status : {"running", "suspended", "creating"})
    EXPECT_EQ(decide_sweep(idle_for(24h, status)), sweep_action::destroy);
  EXPECT_EQ(decide_sweep(idle_for(24h, "destroyed")), sweep_action::leave);
}

TEST(sweep_decision, devices_are_never_swept_for_inactivity_and_deleted_ones_are) {
  auto view = idle_for(24h);
  view.row_provider = view.current_provider = "@device";
  EXPECT_EQ(decide_sweep(view), sweep_action::leave);
  view.deleted = true;
  EXPECT_EQ(decide_sweep(view), sweep_action::remove);
}

TEST(sweep_decision, zero_means_never) {
  auto view = idle_for(24h * 365);
  view.suspend_after = view.destroy_after = 0ms;
  EXPECT_EQ(decide_sweep(view), sweep_action::leave);
}

} // namespace
} // namespace holt::actors::logic
