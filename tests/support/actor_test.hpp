#pragma once

#include <chrono>
#include <memory>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <gtest/gtest.h>

namespace holt::tests {

/// Runs actors on one thread under virtual time, and fails a test that leaves an actor behind.
class actor_test : public ::testing::Test {
protected:
  actor_test() {
    config_.set("scheduler.policy", caf::atom("testing"));
    system_ = std::make_unique<caf::actor_system>(config_);
    self_ = std::make_unique<caf::scoped_actor>(*system_, true);
  }

  void TearDown() override {
    self_.reset();
    scheduler().run();
    EXPECT_EQ(system_->registry().running(), 0u) << "an actor is left behind";
  }

  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system_->scheduler());
  }

  /// Delivers every message that can be delivered now.
  void run() {
    scheduler().run();
  }

  /// Lets virtual time pass in steps, so that what is due in between happens in between.
  void advance(std::chrono::nanoseconds time, std::chrono::nanoseconds step = std::chrono::milliseconds{50}) {
    run();
    for (; time.count() > 0; time -= step) {
      scheduler().advance_time(std::min(time, step));
      run();
    }
  }

  template <class Handle>
  void stop(const Handle& actor) {
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    run();
  }

  caf::scoped_actor& self() {
    return *self_;
  }

  caf::actor_system& system() {
    return *system_;
  }

private:
  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
  std::unique_ptr<caf::scoped_actor> self_;
};

} // namespace holt::tests
