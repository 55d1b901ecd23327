#include "actors/sweeper.hpp"

#include <algorithm>
#include <type_traits>

#include <caf/actor_cast.hpp>
#include <caf/send.hpp>

#include "actors/answers.hpp"
#include "actors/error.hpp"
#include "actors/log_fields.hpp"

namespace holt::actors {

namespace {

static_assert(!std::is_aggregate_v<sweeper_state>);

using pointer = sweeper_actor::stateful_pointer<sweeper_state>;
using logic::purpose;
using logic::sweep_action;
using std::chrono::milliseconds;

void advance(pointer self);

/// settle: what a crash left half done, and deletions that nobody finishes. suspend: idle running ones. destroy: long unused
/// ones, and deletions.
instance_query query_of(const sweeper_state::sweep& sweep) {
  instance_query query;
  query.cursor = sweep.cursor;
  if (sweep.job == "settle")
    query.statuses = {"creating", "suspending", "resuming", "destroying", "resetting"};
  else if (sweep.job == "suspend")
    query.statuses = {"running"};
  else if (sweep.job == "destroy")
    query.statuses = {"running", "suspended", "creating"};
  else
    query.deleted_only = true; // "remove"
  return query;
}

std::optional<lifecycle_call> wish_for(const sweeper_state& state, const storage::environment_record& record) {
  auto& environment = record.environment;
  auto& settings = state.others->shared->settings;
  auto& job = state.current->job;
  lifecycle_call call;
  call.environment_id = environment.id;
  if (job == "settle") {
    call.wanted = environment.deleted_at ? purpose::remove : purpose::settle;
    return call;
  }
  logic::sweep_view view;
  bool internal = !environment.provider.empty() && environment.provider.front() == '@';
  view.current_provider = internal ? std::string_view{environment.provider} : std::string_view{settings.cloud_provider};
  view.deleted = environment.deleted_at.has_value();
  view.now = std::chrono::microseconds{state.others->shared->wall_clock()};
  view.suspend_after = environment.suspend_after_ms ? milliseconds{*environment.suspend_after_ms} : settings.suspend_after;
  view.destroy_after = environment.destroy_after_ms ? milliseconds{*environment.destroy_after_ms} : settings.destroy_after;
  if (record.instance) {
    view.status = record.instance->status;
    view.row_provider = record.instance->provider;
    view.last_used = std::chrono::microseconds{record.instance->last_used_at};
  }
  auto action = logic::decide_sweep(view);
  if (action == sweep_action::leave || (job == "suspend" && action != sweep_action::suspend)
      || (job == "destroy" && action == sweep_action::suspend))
    return std::nullopt;
  if (action == sweep_action::remove) {
    call.wanted = purpose::remove;
    return call;
  }
  call.wanted = action == sweep_action::suspend ? purpose::suspend : purpose::destroy;
  call.only_if_idle = true;
  call.unused_since = record.instance->last_used_at;
  return call;
}

void finish(pointer self) {
  auto& state = self->state;
  log_fields fields;
  fields.add("job", state.current->job);
  for (auto& [outcome, count] : state.current->counts)
    fields.add(outcome, count);
  state.others->shared->log("info", "sweep.done", fields.text());
  state.current.reset();
  advance(self);
}

void on_page(pointer self, const instance_page& page) {
  auto& state = self->state;
  auto& sweep = *state.current;
  sweep.reading = false;
  sweep.cursor = page.page->next_cursor;
  sweep.last_page = sweep.cursor.empty();
  for (auto& record : page.page->items)
    if (auto wish = wish_for(state, record))
      sweep.todo.push_back(std::move(*wish));
  advance(self);
}

void read_page(pointer self) {
  auto& sweep = *self->state.current;
  sweep.reading = true;
  auto number = sweep.number;
  self->request(self->state.others->store, defaults::store_timeout, list_atom::value, query_of(sweep))
      .then(
          [self, number](const instance_page& page) {
            if (self->state.current && self->state.current->number == number)
              on_page(self, page);
          },
          [self, number](const caf::error&) {
            if (!self->state.current || self->state.current->number != number)
              return;
            // The next sweep begins anew (spec 29).
            self->state.current->reading = false;
            self->state.current->last_page = true;
            ++self->state.current->counts["unread"];
            advance(self);
          });
}

void ask(pointer self, lifecycle_call call) {
  auto& sweep = *self->state.current;
  ++sweep.running;
  auto weak = caf::actor_cast<caf::actor_addr>(self);
  auto id = call.environment_id;
  call.reply = once_for([weak, id, number = sweep.number](lifecycle_result result) {
    auto sweeper = caf::actor_cast<sweeper_actor>(weak);
    if (!sweeper)
      return;
    auto known = result.error ? std::find(std::begin(ec_names), std::end(ec_names), result.error->code) : std::begin(ec_names);
    auto code = known == std::end(ec_names) ? ec::internal : static_cast<ec>(known - std::begin(ec_names));
    caf::anon_send(sweeper, settled_atom::value, number, id, static_cast<std::uint8_t>(code));
  });
  self->send(self->state.supervisor, change_atom::value, std::move(call));
}

void advance(pointer self) {
  auto& state = self->state;
  if (!state.current) {
    if (state.waiting.empty())
      return;
    auto& sweep = state.current.emplace();
    sweep.number = ++state.last;
    sweep.job = std::move(state.waiting.front());
    state.waiting.pop_front();
  }
  auto& sweep = *state.current;
  while (!sweep.todo.empty() && sweep.running < defaults::sweep_parallel) {
    auto call = std::move(sweep.todo.front());
    sweep.todo.pop_front();
    ask(self, std::move(call));
  }
  if (!sweep.todo.empty() || sweep.reading)
    return;
  if (!sweep.last_page)
    return read_page(self);
  if (sweep.running == 0)
    finish(self);
}

} // namespace

sweeper_actor::behavior_type sweeper(pointer self, std::shared_ptr<const peers> others,
                                     environment_supervisor_actor supervisor) {
  self->state.others = std::move(others);
  self->state.supervisor = std::move(supervisor);
  return {
      [self](job_atom, const std::string& job) {
        auto& state = self->state;
        bool known = std::find(state.waiting.begin(), state.waiting.end(), job) != state.waiting.end();
        if (known || (state.current && state.current->job == job))
          return; // a sweep never overlaps itself
        state.waiting.push_back(job);
        advance(self);
      },
      [self](settled_atom, std::uint64_t number, const std::string&, std::uint8_t code) {
        auto& state = self->state;
        if (!state.current || state.current->number != number)
          return;
        --state.current->running;
        ++state.current->counts[std::string{code == 0 ? "done" : to_string(static_cast<ec>(code))}];
        advance(self);
      },
  };
}

} // namespace holt::actors
