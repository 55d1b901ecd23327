#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/scoped_actor.hpp>
#include <gtest/gtest.h>

#include "actors/context.hpp"
#include "actors/messages.hpp"
#include "tests/actors/fakes.hpp"

namespace holt::tests {

/// A pool that runs jobs in its own handler, or keeps them until it is told.
struct fake_pool {
  bool holds = false;
  std::deque<actors::blocking_job> held;
  void release();
};

/// One use and its answer.
struct asked {
  actors::use_request request;
  std::shared_ptr<fake_consumer> output = std::make_shared<fake_consumer>();
  std::shared_ptr<fake_observer> observer = std::make_shared<fake_observer>();
  int answers = 0;
  actors::use_result result;

  std::string code() const {
    return answers == 0 ? "no answer" : result.error ? result.error->code : "";
  }
};

struct changed {
  int answers = 0;
  actors::lifecycle_result result;
  std::string code() const {
    return answers == 0 ? "no answer" : result.error ? result.error->code : "";
  }
};

/// All actors below the front on one thread under virtual time, with fakes around them. Checks in passing that each of the
/// provider's steps had its target state written first (spec 6), and at its end that no actor is left.
class house {
public:
  explicit house(std::uint64_t seed = 1, std::function<void(actors::node_settings&)> adjust = {}, bool sole_writer = true);
  /// The next life, after the other's process died: same rows, sandboxes and ledgers.
  explicit house(const house& dead);
  ~house();

  static constexpr const char* env = "env_1";

  std::shared_ptr<asked> use(const std::string& op_id, const std::function<void(actors::use_request&)>& adjust = {});
  std::shared_ptr<changed> change(actors::logic::purpose wanted,
                                  const std::function<void(actors::lifecycle_call&)>& adjust = {});
  void cancel(const std::string& op_id);
  /// The actor of `env` dies without a word, if there is one.
  void kill_environment();
  /// What the actor of `env` is at, in words.
  std::string describe();
  actors::environment_activity activity();
  void sweep(const std::string& job);

  void run();
  /// At most so many messages; answers how many were left to do.
  bool run_some(std::size_t messages);
  void advance(std::chrono::nanoseconds time, std::chrono::nanoseconds step = std::chrono::milliseconds{50});
  /// Asks all to stop, in order; the destructor does it if nobody did.
  void stop();
  std::size_t actors_running() const {
    return system_->registry().running();
  }
  /// Actors that a house has when no environment is in use.
  static constexpr std::size_t idle_actors = 6;

  std::int64_t wall_clock() const;
  caf::actor_system& system() {
    return *system_;
  }

  std::shared_ptr<fake_store> store = std::make_shared<fake_store>();
  std::shared_ptr<fake_world> world = std::make_shared<fake_world>();
  std::shared_ptr<fake_pool> pool = std::make_shared<fake_pool>();
  std::vector<std::pair<std::string, std::string>> log; // event, fields
  bool logged(const std::string& event) const;
  std::mt19937_64 random;
  std::shared_ptr<actors::context> shared;
  actors::environment_supervisor_actor supervisor;
  actors::sweeper_actor sweeper;
  actors::schedule_actor schedule;
  std::size_t max_environments = 100;
  /// Whether provider calls are checked against the row; off where a call is held back on purpose.
  bool checks_calls = true;

private:
  void build();
  void check_call(const std::string& call);
  caf::scheduler::test_coordinator& scheduler();

  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
  std::shared_ptr<actors::peers> peers_;
  actors::store_actor store_;
  actors::blocking_pool_actor pool_;
  bool stopped_ = false;
};

} // namespace holt::tests
