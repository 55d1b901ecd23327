#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <caf/actor_addr.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/context.hpp"
#include "actors/logic/idle.hpp"
#include "actors/messages.hpp"

namespace holt::actors {

struct sweeper_state {
  sweeper_state() = default;

  static constexpr const char* name = "sweeper";

  std::shared_ptr<const peers> others;
  environment_supervisor_actor supervisor;

  /// The sweep under way; one at a time, and what comes meanwhile waits here by name, once (spec 28).
  struct sweep {
    std::uint64_t number = 0;
    std::string job;
    std::string cursor; // of the next page
    bool last_page = false;
    bool reading = false;
    std::deque<lifecycle_call> todo;
    std::size_t running = 0;
    std::map<std::string, std::uint64_t> counts; // by outcome
  };
  std::optional<sweep> current;
  std::deque<std::string> waiting;
  std::uint64_t last = 0;
};

/// One per replica, held by the node. From stored times alone it finds what may be suspended, destroyed or removed, and what
/// a crash left half done, and asks each environment, a few at a time; the environment looks again under its own lease.
sweeper_actor::behavior_type sweeper(sweeper_actor::stateful_pointer<sweeper_state> self,
                                     std::shared_ptr<const peers> others, environment_supervisor_actor supervisor);

} // namespace holt::actors
