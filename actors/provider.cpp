#include "actors/provider.hpp"

#include <exception>
#include <type_traits>

#include <caf/actor_cast.hpp>
#include <caf/actor_clock.hpp>
#include <caf/actor_system.hpp>
#include <caf/send.hpp>

#include "actors/error.hpp"
#include "actors/log_fields.hpp"

namespace holt::actors {

namespace {

static_assert(!std::is_aggregate_v<provider_state>);

using pointer = provider_actor::stateful_pointer<provider_state>;

constexpr std::uint32_t unhealthy_after = 3;

caf::timespan now(pointer self) {
  return self->clock().now().time_since_epoch();
}

provider_answer failed(provider_errc code, std::string detail) {
  provider_answer answer;
  answer.error = provider_error{code, std::move(detail)};
  return answer;
}

template <class T>
provider_answer answer_from(provider_result<T> result, void (*keep)(provider_answer&, T)) {
  provider_answer answer;
  if (result)
    keep(answer, std::move(*result));
  else
    answer.error = std::move(result.error());
  return answer;
}

provider_answer answer_from(provider_result<void> result) {
  provider_answer answer;
  if (!result)
    answer.error = std::move(result.error());
  return answer;
}

void arm(pointer self) {
  auto& state = self->state;
  std::optional<caf::timespan> earliest;
  for (auto& [number, call] : state.calls)
    if (call.owed && (!earliest || call.deadline < *earliest))
      earliest = call.deadline;
  if (!earliest || (state.armed && *state.armed <= *earliest))
    return;
  state.armed = earliest;
  self->send(state.schedule, wake_atom::value, *earliest, ++state.wake_generation);
}

/// Puts the call on the pool. Its outcome comes back as a message, also when the backend throws.
void run(pointer self, std::uint64_t number) {
  auto& state = self->state;
  auto& call = state.calls.at(number);
  call.running = true;
  ++state.running;
  state.busy.emplace(call.what->environment_id, number);
  auto job = std::make_shared<const std::function<void()>>(
      [weak = caf::actor_cast<caf::actor_addr>(self), backend = state.backend, what = call.what, number] {
        auto answer = std::make_shared<provider_answer>();
        try {
          *answer = call_backend(*backend, *what);
        } catch (const std::exception& error) {
          *answer = failed(provider_errc::failed, error.what());
        }
        if (auto asker = caf::actor_cast<provider_actor>(weak))
          caf::anon_send(asker, outcome_atom::value, number, provider_outcome{std::move(answer)});
      });
  self->send(state.pool, run_atom::value, blocking_job{std::move(job)});
}

/// Starts what may start, in the order of asking.
void start_waiting(pointer self) {
  auto& state = self->state;
  for (auto& [number, call] : state.calls) {
    if (state.running >= state.limits.max_running)
      return;
    if (!call.running && !state.busy.contains(call.what->environment_id))
      run(self, number);
  }
}

caf::result<provider_answer> accept(pointer self, provider_call& call) {
  auto& state = self->state;
  if (state.calls.size() >= state.limits.max_running + state.limits.max_waiting)
    return error_with(ec::sandbox_unavailable, "too many calls wait");
  auto promise = self->make_response_promise<provider_answer>();
  auto deadline = now(self) + call.timeout;
  state.calls.emplace(++state.last, provider_state::call{std::make_shared<const provider_call>(std::move(call)),
                                                         promise, deadline, false});
  start_waiting(self);
  arm(self);
  return promise;
}

void note_health(pointer self, const provider_answer& answer) {
  auto& state = self->state;
  bool unavailable = answer.error && answer.error->code == provider_errc::unavailable;
  auto before = state.failures;
  state.failures = unavailable ? before + 1 : 0;
  if (state.failures == unhealthy_after)
    state.shared->log("error", "provider.unhealthy", log_fields{}.add("provider", state.provider_name).text());
  else if (!unavailable && before >= unhealthy_after)
    state.shared->log("info", "provider.healthy", log_fields{}.add("provider", state.provider_name).text());
}

void finish(pointer self, std::uint64_t number, const provider_outcome& outcome) {
  auto& state = self->state;
  auto call = state.calls.extract(number);
  if (call.empty())
    return;
  state.busy.erase(call.mapped().what->environment_id);
  --state.running;
  note_health(self, *outcome.answer);
  if (outcome.answer->error)
    state.shared->log("warn", "provider.call_failed",
                      log_fields{}
                          .add("provider", state.provider_name)
                          .add("environment", call.mapped().what->environment_id)
                          .add("action", static_cast<std::uint64_t>(call.mapped().what->action))
                          .add("detail", outcome.answer->error->detail)
                          .text());
  if (auto& owed = call.mapped().owed)
    owed->deliver(std::move(*outcome.answer));
  else
    state.shared->log("warn", "provider.late_answer",
                      log_fields{}
                          .add("provider", state.provider_name)
                          .add("environment", call.mapped().what->environment_id)
                          .text());
  start_waiting(self);
}

/// Answers calls over time. One that runs keeps its place until its outcome comes; one that waits is forgotten.
void expire(pointer self) {
  auto& state = self->state;
  state.armed.reset();
  for (auto at = state.calls.begin(); at != state.calls.end();) {
    auto& call = at->second;
    bool over = call.owed && call.deadline <= now(self);
    if (over) {
      call.owed->deliver(error_with(ec::sandbox_unavailable, "the provider did not answer in time"));
      call.owed.reset();
    }
    at = over && !call.running ? state.calls.erase(at) : std::next(at);
  }
  arm(self);
}

void stop(pointer self, const caf::error& reason) {
  for (auto& [number, call] : self->state.calls)
    if (call.owed)
      call.owed->deliver(error_with(ec::stopping, ""));
  self->state.calls.clear();
  self->quit(reason);
}

} // namespace

provider_answer call_backend(provider_backend& backend, const provider_call& call) {
  switch (call.action) {
    case provider_action::create:
      return answer_from<created_instance>(backend.create(call.spec), [](provider_answer& answer, created_instance made) {
        answer.created = std::move(made);
      });
    case provider_action::resume:
      return answer_from(backend.resume(call.handle));
    case provider_action::suspend:
      return answer_from(backend.suspend(call.handle, call.generation));
    case provider_action::destroy:
      return answer_from(backend.destroy(call.environment_id, call.handle, call.generation));
    case provider_action::destroy_files:
      return answer_from(backend.destroy_files(call.environment_id, call.file_system_id));
    case provider_action::forget:
      return answer_from(backend.forget(call.environment_id));
    case provider_action::inspect:
      return answer_from<instance_status>(backend.inspect(call.handle), [](provider_answer& answer, instance_status status) {
        answer.status = status;
      });
    case provider_action::open:
      return answer_from<int>(backend.open(call.handle), [](provider_answer& answer, int socket) {
        answer.socket = std::make_shared<held_socket>(socket);
      });
  }
  return failed(provider_errc::failed, "no such action");
}

provider_actor::behavior_type provider(pointer self, std::shared_ptr<const context> shared, std::string name,
                                       std::shared_ptr<provider_backend> backend, blocking_pool_actor pool,
                                       schedule_actor schedule, provider_limits limits) {
  auto& state = self->state;
  state.shared = std::move(shared);
  state.provider_name = std::move(name);
  state.backend = std::move(backend);
  state.pool = std::move(pool);
  state.schedule = std::move(schedule);
  state.limits = limits;
  self->set_exit_handler([self](caf::exit_msg& msg) { stop(self, msg.reason); });
  return {
      [self](call_atom, provider_call& call) { return accept(self, call); },
      [self](report_atom) {
        // The report is made once at the start and kept by the backend: it doesn't block.
        auto report = self->state.backend->report();
        report.available = report.available && self->state.failures < unhealthy_after;
        return reports{{std::move(report)}};
      },
      [self](outcome_atom, std::uint64_t number, const provider_outcome& outcome) { finish(self, number, outcome); },
      [self](wake_atom, std::uint64_t generation) {
        if (generation == self->state.wake_generation)
          expire(self);
      },
  };
}

} // namespace holt::actors
