#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <caf/typed_response_promise.hpp>

#include "actors/context.hpp"
#include "actors/messages.hpp"

namespace holt::actors {

struct provider_limits {
  /// Calls on the pool at a time. More let one provider fill all the threads.
  std::size_t max_running = 4;
  std::size_t max_waiting = defaults::max_waiting_calls;
};

struct provider_state {
  provider_state() = default;

  static constexpr const char* name = "provider";

  std::shared_ptr<const context> shared;
  std::string provider_name;
  std::shared_ptr<provider_backend> backend;
  blocking_pool_actor pool;
  provider_limits limits;

  struct call {
    std::shared_ptr<const provider_call> what;
    /// Unanswered until the outcome comes or the time is over, whichever is first.
    std::optional<caf::typed_response_promise<provider_answer>> owed;
    caf::timespan deadline{0};
    bool running = false;
  };
  /// By number, so in the order of asking. A call over time stays here until its outcome comes: its environment waits.
  std::map<std::uint64_t, call> calls;
  std::uint64_t last = 0;
  std::size_t running = 0;

  /// The call under way of each environment: never two (provider_backend.hpp).
  std::map<std::string, std::uint64_t> busy;

  /// Health: outcomes `unavailable` in a row, and whether that was logged.
  std::uint32_t failures = 0;

  schedule_actor schedule;
  std::uint64_t wake_generation = 0;
  std::optional<caf::timespan> armed;
};

/// One per provider, held by the node. Its backend's calls run on the pool.
provider_actor::behavior_type provider(provider_actor::stateful_pointer<provider_state> self,
                                       std::shared_ptr<const context> shared, std::string name,
                                       std::shared_ptr<provider_backend> backend, blocking_pool_actor pool,
                                       schedule_actor schedule, provider_limits limits);

/// Makes the call. Blocks.
provider_answer call_backend(provider_backend& backend, const provider_call& call);

} // namespace holt::actors
