#pragma once

#include <deque>
#include <vector>

#include <caf/actor.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/interfaces.hpp"
#include "actors/messages.hpp"

namespace holt::actors {

/// One thread of the pool.
using blocking_worker_actor = caf::typed_actor<
    // From the pool: run this, then say idle with this number.
    caf::reacts_to<run_atom, blocking_job, std::uint32_t>>;

struct blocking_pool_state {
  blocking_pool_state() = default;

  static constexpr const char* name = "blocking_pool";

  std::vector<blocking_worker_actor> workers;
  std::vector<std::uint32_t> idle; // indices of workers
  /// Jobs that wait for a thread. Bounded by those who ask: each provider bounds its calls.
  std::deque<blocking_job> waiting;
};

/// A fixed number of threads for what blocks; REQUIRES threads > 0. A job that throws is a bug and is swallowed after its
/// own handling: it tells its end itself. On exit, jobs that wait are dropped and running ones end in their own time.
blocking_pool_actor::behavior_type blocking_pool(blocking_pool_actor::stateful_pointer<blocking_pool_state> self,
                                                 std::uint32_t threads);

} // namespace holt::actors
