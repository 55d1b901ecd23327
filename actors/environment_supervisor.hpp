#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include <caf/actor_addr.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/context.hpp"
#include "actors/messages.hpp"

namespace holt::actors {

struct environment_supervisor_state {
  environment_supervisor_state() = default;

  static constexpr const char* name = "environment_supervisor";

  std::shared_ptr<const peers> others;
  std::size_t max_environments = defaults::max_environments;

  struct child {
    environment_actor environment;
    lease_actor lease;
    /// Messages sent to it: one that asks to go must have taken them all.
    std::uint64_t sent = 0;
  };
  /// Environments in use, by id.
  std::unordered_map<std::string, child> directory;

  /// Who died belongs to which environment: of environments and leases alike. Erased on DOWN.
  std::unordered_map<caf::actor_addr, std::string> ids;

  /// Asked to stop: waits for the last child.
  bool stopping = false;
  caf::error stop_reason;
};

/// One per replica, held by the node. Spawns an environment's actor and its lease on demand, forgets those that nobody
/// needs, and replaces none that died: the next use spawns another, which finds in the rows what was half done.
environment_supervisor_actor::behavior_type
environment_supervisor(environment_supervisor_actor::stateful_pointer<environment_supervisor_state> self,
                       std::shared_ptr<const peers> others, std::size_t max_environments);

} // namespace holt::actors
