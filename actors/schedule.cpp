#include "actors/schedule.hpp"

#include <algorithm>
#include <type_traits>

#include <caf/actor_cast.hpp>
#include <caf/actor_clock.hpp>
#include <caf/actor_system.hpp>

namespace holt::actors {

namespace {

static_assert(!std::is_aggregate_v<schedule_state>);

using pointer = schedule_actor::stateful_pointer<schedule_state>;

constexpr caf::timespan grain = std::chrono::milliseconds{20};

caf::timespan now(pointer self) {
  return self->clock().now().time_since_epoch();
}

/// Sets the timer when something is due before it rings.
void arm(pointer self) {
  auto& state = self->state;
  auto earliest = state.deadlines.earliest();
  if (!earliest || (state.armed && *state.armed <= *earliest + grain))
    return;
  state.armed = std::max(*earliest, now(self)) + grain;
  self->scheduled_send(self, caf::actor_clock::time_point{*state.armed}, run_atom::value, ++state.generation);
}

void wake(pointer self, const caf::actor_addr& sleeper) {
  auto found = self->state.sleepers.extract(sleeper);
  if (found.empty())
    return;
  if (auto handle = caf::actor_cast<sleeper_actor>(sleeper))
    self->send(handle, wake_atom::value, found.mapped());
}

void run_job(pointer self, const std::string& name) {
  auto& job = self->state.jobs.at(name);
  auto worker = caf::actor_cast<worker_actor>(job.worker);
  if (!worker) {
    self->state.jobs.erase(name);
    return;
  }
  self->send(worker, job_atom::value, name);
  // What was missed meanwhile is made up for by one.
  while (job.next <= now(self))
    job.next += job.period;
  self->state.deadlines.set({{}, name}, job.next);
}

} // namespace

schedule_actor::behavior_type schedule(pointer self) {
  return {
      [self](wake_atom, caf::timespan at, std::uint64_t generation) {
        auto sleeper = caf::actor_cast<caf::actor_addr>(self->current_sender());
        if (!sleeper)
          return;
        self->state.sleepers[sleeper] = generation;
        self->state.deadlines.set({sleeper, {}}, at);
        arm(self);
      },
      [self](every_atom, const std::string& name, caf::timespan period, const worker_actor& worker) {
        auto next = now(self) + period;
        self->state.jobs[name] = {worker.address(), period, next};
        self->state.deadlines.set({{}, name}, next);
        arm(self);
      },
      [self](run_atom, std::uint64_t generation) {
        auto& state = self->state;
        if (generation != state.generation)
          return;
        state.armed.reset();
        for (auto& due : state.deadlines.take_due(now(self))) {
          if (due.job.empty())
            wake(self, due.sleeper);
          else
            run_job(self, due.job);
        }
        arm(self);
      },
  };
}

} // namespace holt::actors
