#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include <caf/actor_addr.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/interfaces.hpp"
#include "actors/logic/deadline_index.hpp"

namespace holt::actors {

struct schedule_state {
  schedule_state() = default;

  static constexpr const char* name = "schedule";

  /// What is due when: a sleeper's key is its address, a job's its name.
  struct key {
    caf::actor_addr sleeper;
    std::string job;
    friend bool operator<(const key& a, const key& b) {
      return a.sleeper != b.sleeper ? a.sleeper < b.sleeper : a.job < b.job;
    }
  };
  logic::deadline_index<key> deadlines;

  /// The generation that each sleeper gave; it comes back with the wake-up. Erased when woken: a sleeper that died before
  /// is forgotten at its deadline.
  std::unordered_map<caf::actor_addr, std::uint64_t> sleepers;

  struct job {
    caf::actor_addr worker; // weak: the node holds it
    caf::timespan period{0};
    caf::timespan next{0}; // from one due time to the next, so that lateness doesn't add up
  };
  std::map<std::string, job> jobs;

  /// The one timer, and when it rings. A tick of an older generation is stale.
  std::uint64_t generation = 0;
  std::optional<caf::timespan> armed;
};

/// One per replica, held by the node. Wake-ups come up to 20 ms late, so that many deadlines share one tick.
schedule_actor::behavior_type schedule(schedule_actor::stateful_pointer<schedule_state> self);

} // namespace holt::actors
