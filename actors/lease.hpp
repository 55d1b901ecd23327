#pragma once

#include <map>
#include <string>
#include <unordered_map>

#include <caf/actor_addr.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/context.hpp"
#include "actors/logic/lease_queue.hpp"

namespace holt::actors {

struct lease_state {
  // Declared, or C++20 would initialise the first member from the actor's own pointer.
  lease_state() = default;

  static constexpr const char* name = "lease";

  /// Who holds and who waits; every decision is made there.
  logic::lease_queue queue;

  /// Names this lease's holder where leases are shared (spec 9): random, so that it never comes back.
  std::string owner_token;

  struct user {
    /// Weak: a lease must not keep its user alive.
    caf::actor_addr address;
    /// Waits, and is owed a `granted` or a `refused`.
    bool waits = true;
  };

  std::map<lease_ticket, user> users;

  /// Users that are watched: each once, until it dies.
  std::unordered_map<caf::actor_addr, bool> watched;
};

/// Behaviour of a lease actor: one per environment in use, spawned and watched by the environment supervisor.
///
/// Stops on any exit message, after refusing those who wait with ec::lease_lost.
lease_actor::behavior_type lease(lease_actor::stateful_pointer<lease_state> self, std::shared_ptr<const context> shared);

} // namespace holt::actors
