#pragma once

#include <functional>
#include <memory>
#include <unordered_map>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/interfaces.hpp"
#include "storage/store.hpp"

namespace holt::actors {

struct store_bridge_state {
  store_bridge_state() = default;

  static constexpr const char* name = "store_bridge";

  std::shared_ptr<storage::store> store;

  /// Requests that the store has not answered: what to do with its answer, which lies in the closure's own slot by then.
  /// Called with true to deliver it, with false to fail the promise: a bridge that stops owes nothing.
  std::unordered_map<std::uint64_t, std::function<void(bool)>> open;
  std::uint64_t last = 0;
};

/// The one bridge between actors and the store's callbacks. Those hold it weakly and only post a message; promises are
/// delivered in its own handlers. One per node, held by it.
store_actor::behavior_type store_bridge(store_actor::stateful_pointer<store_bridge_state> self,
                                        std::shared_ptr<storage::store> store);

} // namespace holt::actors
