#include "actors/environment_supervisor.hpp"

#include <type_traits>

#include <caf/actor_cast.hpp>

#include "actors/answers.hpp"
#include "actors/environment.hpp"
#include "actors/error.hpp"
#include "actors/lease.hpp"
#include "actors/log_fields.hpp"

namespace holt::actors {

namespace {

static_assert(!std::is_aggregate_v<environment_supervisor_state>);

using pointer = environment_supervisor_actor::stateful_pointer<environment_supervisor_state>;
using child = environment_supervisor_state::child;

child& spawn_child(pointer self, const std::string& id) {
  auto& state = self->state;
  auto lease_handle = self->spawn(lease, state.others->shared);
  auto environment_handle = self->spawn(environment, state.others, id, lease_handle,
                                        caf::actor_cast<caf::actor_addr>(self));
  self->monitor(lease_handle);
  self->monitor(environment_handle);
  state.ids.emplace(lease_handle.address(), id);
  state.ids.emplace(environment_handle.address(), id);
  return state.directory.emplace(id, child{environment_handle, lease_handle, 0}).first->second;
}

/// The environment's actor, or nothing when there are too many or the end has begun.
child* find_or_spawn(pointer self, const std::string& id) {
  auto& state = self->state;
  if (state.stopping)
    return nullptr;
  if (auto found = state.directory.find(id); found != state.directory.end())
    return &found->second;
  if (state.directory.size() >= state.max_environments)
    return nullptr;
  return &spawn_child(self, id);
}

ec refusal(pointer self) {
  return self->state.stopping ? ec::stopping : ec::busy;
}

/// For what only concerns an environment in use.
template <class... Ts>
bool tell(pointer self, const std::string& id, Ts&&... message) {
  auto found = self->state.directory.find(id);
  if (found == self->state.directory.end())
    return false;
  ++found->second.sent;
  self->send(found->second.environment, std::forward<Ts>(message)...);
  return true;
}

void let_go(pointer self, const std::string& id, std::uint64_t taken) {
  auto& state = self->state;
  auto found = state.directory.find(id);
  if (found == state.directory.end() || found->second.sent != taken || state.stopping
      || found->second.environment.address() != self->current_sender())
    return;
  self->send(found->second.environment, leave_atom::value);
  self->send_exit(found->second.lease, caf::exit_reason::user_shutdown);
  state.directory.erase(found); // the addresses go on DOWN
}

void on_down(pointer self, const caf::down_msg& msg) {
  auto& state = self->state;
  auto id = state.ids.extract(msg.source);
  if (id.empty())
    return;
  auto found = state.directory.find(id.mapped());
  if (found != state.directory.end()) {
    auto& [environment, lease, sent] = found->second;
    bool of_environment = environment.address() == msg.source;
    if (of_environment || lease.address() == msg.source) {
      if (!state.stopping)
        state.others->shared->log("error", "environment.actor_died",
                                  log_fields{}
                                      .add("environment", id.mapped())
                                      .add("actor", of_environment ? "environment" : "lease")
                                      .text());
      // Neither is of use without the other.
      if (of_environment)
        self->send_exit(lease, caf::exit_reason::user_shutdown);
      else
        self->send_exit(environment, caf::error{ec::lease_lost});
      state.directory.erase(found);
    }
  }
  if (state.stopping && state.ids.empty())
    self->quit(state.stop_reason);
}

void stop(pointer self, const caf::error& reason) {
  auto& state = self->state;
  if (std::exchange(state.stopping, true))
    return;
  state.stop_reason = reason;
  for (auto& [id, child] : state.directory) {
    // In this order: what an environment owes is answered before its lease is away.
    self->send_exit(child.environment, caf::exit_reason::user_shutdown);
    self->send_exit(child.lease, caf::exit_reason::user_shutdown);
  }
  if (state.ids.empty())
    self->quit(reason);
}

} // namespace

environment_supervisor_actor::behavior_type environment_supervisor(pointer self, std::shared_ptr<const peers> others,
                                                                   std::size_t max_environments) {
  self->state.others = std::move(others);
  self->state.max_environments = max_environments;
  self->set_down_handler([self](caf::down_msg& msg) { on_down(self, msg); });
  self->set_exit_handler([self](caf::exit_msg& msg) { stop(self, msg.reason); });
  return {
      [self](use_atom, use_call& call) {
        auto* child = find_or_spawn(self, call.request->environment_id);
        if (!child)
          return call.reply->answer(failed_use(refusal(self), std::chrono::seconds{1}));
        ++child->sent;
        self->send(child->environment, use_atom::value, std::move(call));
      },
      [self](cancel_atom, const std::string& id, const std::string& op_id) {
        tell(self, id, cancel_atom::value, op_id);
      },
      [self](detach_atom, const std::string& id, const std::string& op_id, const std::vector<std::uint32_t>& streams) {
        tell(self, id, detach_atom::value, op_id, streams);
      },
      [self](change_atom, lifecycle_call& call) {
        auto* child = find_or_spawn(self, call.environment_id);
        if (!child)
          return call.reply->answer({.error = answer_of(refusal(self)), .record = {}});
        ++child->sent;
        self->send(child->environment, change_atom::value, std::move(call));
      },
      [self](activity_atom, const activity_call& call) {
        if (!tell(self, call.environment_id, activity_atom::value, call))
          call.reply->answer({});
      },
      [self](idle_atom, const std::string& id, std::uint64_t taken) { let_go(self, id, taken); },
  };
}

} // namespace holt::actors
