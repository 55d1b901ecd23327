#include "actors/blocking_pool.hpp"

#include <type_traits>

#include <caf/actor_cast.hpp>

namespace holt::actors {

namespace {

static_assert(!std::is_aggregate_v<blocking_pool_state>);

using pointer = blocking_pool_actor::stateful_pointer<blocking_pool_state>;

blocking_worker_actor::behavior_type worker(blocking_worker_actor::pointer self) {
  return {
      [self](run_atom, const blocking_job& job, std::uint32_t number) {
        auto pool = caf::actor_cast<blocking_pool_actor>(self->current_sender());
        (*job.run)();
        if (pool)
          self->send(pool, idle_atom::value, number);
      },
  };
}

void dispatch(pointer self) {
  auto& state = self->state;
  while (!state.idle.empty() && !state.waiting.empty()) {
    auto number = state.idle.back();
    state.idle.pop_back();
    self->send(state.workers[number], run_atom::value, std::move(state.waiting.front()), number);
    state.waiting.pop_front();
  }
}

} // namespace

blocking_pool_actor::behavior_type blocking_pool(pointer self, std::uint32_t threads) {
  for (std::uint32_t number = 0; number < threads; ++number) {
    self->state.workers.push_back(self->spawn<caf::detached>(worker));
    self->state.idle.push_back(number);
  }
  self->set_exit_handler([self](caf::exit_msg& msg) {
    for (auto& thread : self->state.workers)
      self->send_exit(thread, msg.reason);
    self->quit(msg.reason);
  });
  return {
      [self](run_atom, const blocking_job& job) {
        self->state.waiting.push_back(job);
        dispatch(self);
      },
      [self](idle_atom, std::uint32_t number) {
        self->state.idle.push_back(number);
        dispatch(self);
      },
  };
}

} // namespace holt::actors
