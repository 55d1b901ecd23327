#include "actors/config.hpp"

#include <caf/actor_system.hpp>
#include <caf/scheduler/abstract_coordinator.hpp>
#include <gtest/gtest.h>

namespace holt::actors {
namespace {

TEST(system_config, the_scheduler_shares_since_stealing_starves_actors_on_few_cores) {
  system_config config{3};
  EXPECT_EQ(caf::get_or(config, "scheduler.policy", caf::atom("")), caf::atom("sharing"));
  caf::actor_system system{config};
  EXPECT_EQ(system.scheduler().num_workers(), 3u);
  EXPECT_EQ(system.scheduler().max_throughput(), 50u);
}

TEST(system_config, threads_are_the_cores_unless_told) {
  system_config config;
  EXPECT_EQ(caf::get_or(config, "scheduler.max-threads", std::size_t{0}), std::max(1u, std::thread::hardware_concurrency()));
}

} // namespace
} // namespace holt::actors
