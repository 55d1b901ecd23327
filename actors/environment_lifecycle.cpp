#include "actors/environment.hpp"

#include <algorithm>

#include "actors/answers.hpp"
#include "actors/error.hpp"
#include "actors/log_fields.hpp"
#include "actors/logic/idle.hpp"
#include "actors/logic/lease_queue.hpp"
#include "protocols/control.hpp"
#include "protocols/json_read.hpp"
#include "protocols/json_write.hpp"

/// The exclusive half of an environment: carries out what logic/lifecycle.hpp decides, one step at a time.
namespace holt::actors {

namespace {

using logic::purpose;
using logic::step_kind;

/// Calls other than create; their own limits in the provider are below it.
constexpr std::chrono::seconds call_timeout{30};

std::chrono::nanoseconds lease_wait(const lifecycle_call& wish) {
  if (wish.only_if_idle)
    return defaults::sweep_wait;
  return wish.wanted == purpose::remove ? std::chrono::nanoseconds{defaults::remove_wait}
                                        : std::chrono::nanoseconds{defaults::exclusive_wait};
}

provider_action action_of(step_kind kind) {
  switch (kind) {
    case step_kind::create:
      return provider_action::create;
    case step_kind::resume:
      return provider_action::resume;
    case step_kind::suspend:
      return provider_action::suspend;
    case step_kind::destroy:
      return provider_action::destroy;
    case step_kind::forget:
      return provider_action::forget;
    default:
      return provider_action::destroy_files;
  }
}

environment_limits limits_of(const storage::environment_row& row) {
  environment_limits limits;
  auto text = protocols::json::parse_text(row.limits_json);
  if (!text || !text->is_object())
    return limits;
  auto& object = text->get_object();
  auto whole = [&](const char* key, std::optional<std::uint64_t>& out) {
    auto* found = object.if_contains(key);
    boost::system::error_code error;
    if (found && found->is_number())
      if (auto number = found->to_number<std::uint64_t>(error); !error)
        out = number;
  };
  whole("memory_bytes", limits.memory_bytes);
  whole("processes", limits.processes);
  whole("open_files", limits.open_files);
  whole("file_size_bytes", limits.file_size_bytes);
  whole("disk_bytes", limits.disk_bytes);
  if (auto* cpus = object.if_contains("cpus"); cpus && cpus->is_number())
    limits.cpus = cpus->to_number<double>();
  return limits;
}

/// What becomes of operations whose instance is about to change so.
ec fate_of_operations(std::string_view status) {
  return status == "suspending" || status == "suspended" || status == "resuming" ? ec::detached : ec::instance_gone;
}

} // namespace

void environment_state::on_change(lifecycle_call call) {
  // The row says that it is deleted; uses must see that, even if this one has to wait.
  if (call.wanted == purpose::remove)
    record_is_fresh = false;
  // A sweep is no use.
  if (!call.only_if_idle && call.wanted != purpose::settle && call.wanted != purpose::remove) {
    last_used = now();
    last_used_at = shared().wall_clock();
  }
  if (waiting_changes.size() >= defaults::max_waiting_changes) {
    call.reply->answer({.error = answer_of(ec::busy), .record = {}});
    return;
  }
  waiting_changes.push_back(std::move(call));
  begin_next();
}

/// The instance is wanted by uses that wait; whatever is under way comes first.
void environment_state::ensure_running() {
  if (current)
    return; // a use's own work answers them, another's end begins theirs
  lifecycle_call wish;
  wish.environment_id = id;
  wish.wanted = purpose::use;
  begin(std::move(wish), true);
}

void environment_state::begin_next() {
  if (current)
    return;
  bool blocked = std::any_of(uses.begin(), uses.end(), [](auto& use) { return use.second.now_in == phase::blocked; });
  if (blocked)
    return ensure_running();
  if (waiting_changes.empty()) {
    if (removed)
      last_used = now() - shared().settings.passivate_after;
    ask_to_go();
    return arm();
  }
  auto wish = std::move(waiting_changes.front());
  waiting_changes.pop_front();
  begin(std::move(wish), false);
}

void environment_state::begin(lifecycle_call wish, bool for_uses) {
  auto& work = current.emplace();
  work.deadline = now() + lease_wait(wish);
  work.wish = std::move(wish);
  work.for_uses = for_uses;
  work.number = ++last_work;
  work.ticket = lease_ticket{shared().random()};
  self->send(lease, acquire_atom::value, work.ticket, lease_mode::exclusive, std::uint32_t{1},
             shared().settings.max_waiting);
  wake_at(work.deadline);
}

void environment_state::on_exclusive() {
  load_for_work();
}

void environment_state::load_for_work() {
  self->request(others->store, defaults::store_timeout, load_atom::value, id)
      .then(
          [this, number = current->number](const loaded_environment& loaded) {
            if (current && current->number == number)
              on_loaded_for_work(*loaded.record);
          },
          [this, number = current->number](const caf::error& error) {
            if (current && current->number == number)
              end_work(code_of(error, ec::store_unavailable));
          });
}

void environment_state::on_loaded_for_work(const storage::environment_record& loaded) {
  record = loaded;
  record_is_fresh = true;
  auto& wish = current->wish;
  bool removal = wish.wanted == purpose::remove;
  bool hidden = removed || (!removal && !may_see(wish.org_id)) || (removal && wish.org_id && *wish.org_id != loaded.environment.org_id);
  if (hidden)
    return end_work(ec::not_found);
  if (removal && !loaded.environment.deleted_at)
    return end_work(ec::conflict);
  // A deleted environment's instance is never made again.
  if (loaded.environment.deleted_at && wish.wanted != purpose::remove && wish.wanted != purpose::settle)
    return end_work(ec::not_found);
  if (wish.only_if_idle && is_in_use())
    return end_work(ec::busy);
  bool asks_agent = wish.only_if_idle && !current->is_checked && row() && logic::usable(row(), facts());
  asks_agent ? check_activity() : step();
}

/// By what this actor knows; what runs in the instance is asked of its agent.
bool environment_state::is_in_use() const {
  auto used_at = std::max(last_used_at, row() ? row()->last_used_at : 0);
  return !uses.empty() || used_at > current->wish.unused_since;
}

void environment_state::step() {
  auto facts = this->facts();
  facts.fresh_file_system_id = "fs_" + logic::make_owner_token(shared().random);
  auto next = logic::next(row(), current->wish.wanted, facts);
  bool rebuild = next.kind == step_kind::write && next.row.status == "creating" && row() && row()->status == "running";
  if (rebuild && rebuilds.take(now())) {
    shared().log("error", "environment.rebuilds_exhausted", log_fields{}.add("environment", id).text());
    return end_work(ec::sandbox_unavailable);
  }
  carry_out(std::move(next));
}

void environment_state::carry_out(logic::next_step next) {
  switch (next.kind) {
    case step_kind::ready:
      return end_work(ec::none);
    case step_kind::fail:
      return end_work(next.error);
    case step_kind::write:
      return write(std::move(next.row));
    case step_kind::purge:
      return purge();
    case step_kind::create:
    case step_kind::resume:
    case step_kind::suspend:
    case step_kind::destroy:
    case step_kind::destroy_files:
    case step_kind::forget:
      return call_provider(next.kind);
  }
}

void environment_state::write(storage::instance_row target) {
  if (target.status != "running")
    close_session(fate_of_operations(target.status));
  auto expected = row() ? row()->generation : 0;
  self->request(others->store, defaults::store_timeout, write_atom::value, instance_write{std::move(target), expected})
      .then(
          [this, number = current->number](const instance_write& written) {
            if (!current || current->number != number)
              return;
            on_written(written.row);
            step();
          },
          [this, number = current->number](const caf::error& error) {
            record_is_fresh = false;
            if (!current || current->number != number)
              return;
            auto code = code_of(error, ec::store_unavailable);
            if (code != ec::lease_lost || std::exchange(current->reloaded_after_fence, true))
              return end_work(code);
            current->owned = false;
            load_for_work();
          });
}

void environment_state::on_written(const storage::instance_row& written) {
  shared().log("info", "instance.state",
               log_fields{}.add("environment", id).add("status", written.status).add("generation", written.generation).text());
  record->instance = written;
  current->owned = logic::is_intermediate(written.status);
  if (written.status != "running" || written.fs_status != "ok")
    return;
  // Another instance, or another run of it: whoever spoke to the former one doesn't any more.
  close_session(ec::instance_gone);
  reserved_epoch = written.epoch;
  found_gone.reset();
  if (auto read = protocols::json::read_text<protocols::agent::roots>(written.roots_json,
                                                                       protocols::json::unknown_fields::ignore))
    roots = *read;
}

void environment_state::purge() {
  auto done = [this, number = current->number] {
    removed = true;
    record->instance.reset();
    if (current && current->number == number)
      end_work(ec::none);
  };
  self->request(others->store, defaults::store_timeout, purge_atom::value, id, row() ? row()->generation : std::uint64_t{0})
      .then([done](bool) { done(); },
            [this, done, number = current->number](const caf::error& error) {
              auto code = code_of(error, ec::store_unavailable);
              if (code == ec::not_found) // by another, or by this one before a crash
                return done();
              record_is_fresh = false;
              if (current && current->number == number)
                end_work(code);
            });
}

void environment_state::call_provider(step_kind kind) {
  auto found = others->providers.find(row()->provider);
  if (found == others->providers.end())
    return end_work(ec::environment_unavailable);
  provider_call call;
  call.action = action_of(kind);
  call.environment_id = id;
  call.handle = row()->handle;
  call.file_system_id = row()->file_system_id;
  call.generation = row()->generation;
  call.timeout = call_timeout;
  if (kind == step_kind::create) {
    call.timeout = shared().settings.create_timeout;
    call.spec.environment_id = id;
    call.spec.file_system_id = row()->file_system_id;
    call.spec.new_files = logic::may_make_files(*row());
    call.spec.generation = row()->generation;
    call.spec.limits = limits_of(record->environment);
    call.spec.network = record->environment.network;
    call.spec.image = record->environment.image;
  }
  // The provider answers in time; the rest is for its answer's way.
  auto wait = call.timeout + std::chrono::seconds{2};
  auto number = current->number;
  self->request(found->second, wait, call_atom::value, std::move(call))
      .then(
          [this, kind, number](provider_answer& answer) {
            if (!current || current->number != number)
              return;
            logic::call_outcome outcome;
            if (answer.error)
              outcome.error = answer.error->code;
            outcome.created = std::move(answer.created);
            carry_out(logic::after(kind, outcome, *row(), current->wish.wanted, facts()));
          },
          [this, number](const caf::error& error) {
            if (current && current->number == number)
              end_work(code_of(error, ec::sandbox_unavailable));
          });
}

/// Asks the agent whether a process runs: that is activity (spec 23), however long ago somebody asked for it.
void environment_state::check_activity() {
  current->checking = true;
  if (!session_open) {
    if (!session)
      open_session();
    return; // on_opened comes back here, on_ended to on_activity
  }
  auto request = std::make_shared<use_request>();
  request->environment_id = id;
  request->op_id = "op_" + logic::make_owner_token(shared().random);
  request->operation = "process.list";
  request->arguments = protocols::json::object{};
  request->safe_to_repeat = true;
  self->send(*session, use_atom::value, session_use{current->ticket, std::move(request)});
}

void environment_state::on_activity(const operation_end& end) {
  if (!std::exchange(current->checking, false))
    return;
  // Its provider says that nothing is there: nothing runs.
  if (end.broken == logic::attempt_end::gone) {
    current->is_checked = true;
    return step();
  }
  if (!end.result)
    return end_work(ec::sandbox_unavailable);
  auto list = protocols::json::read<protocols::agent::process_list>(*end.result, protocols::json::unknown_fields::ignore);
  if (!list)
    return end_work(ec::sandbox_unavailable);
  bool active = std::any_of(list->processes.begin(), list->processes.end(),
                            [](auto& process) { return process.state == "running"; });
  if (active) {
    last_used_at = shared().wall_clock();
    touch(true);
    return end_work(ec::busy);
  }
  current->is_checked = true;
  step();
}

void environment_state::end_work(ec code) {
  auto work = std::move(*current);
  current.reset();
  self->send(lease, release_atom::value, work.ticket);
  if (code != ec::none && code != ec::busy)
    shared().log("warn", "environment.change_failed",
                 log_fields{}
                     .add("environment", id)
                     .add("wanted", static_cast<std::uint64_t>(work.wish.wanted))
                     .add("code", to_string(code))
                     .text());
  if (work.wish.wanted == purpose::remove && code != ec::none)
    note_failed_removal(code);
  if (!work.wish.operation_id.empty()) {
    finished_operation end{work.wish.operation_id, code == ec::none ? "done" : "failed",
                           code == ec::none ? "" : std::string{to_string(code)}, shared().wall_clock()};
    self->request(others->store, defaults::store_timeout, finish_atom::value, std::move(end))
        .then([](bool) {}, [this](const caf::error& error) {
          shared().log("error", "operation.not_finished",
                       log_fields{}.add("environment", id).add("code", to_string(code_of(error, ec::store_unavailable))).text());
        });
  }
  if (work.wish.reply) {
    lifecycle_result result;
    if (code != ec::none)
      result.error = answer_of(code);
    if (record && code != ec::not_found)
      result.record = *record;
    work.wish.reply->answer(std::move(result));
  }
  if (work.wish.wanted == purpose::use || code == ec::not_found) {
    if (code != ec::none) {
      answer_all_in(phase::blocked, code);
    } else {
      for (auto& [ticket, use] : uses) {
        if (use.now_in != phase::blocked)
          continue;
        use.deadline = now() + shared().settings.lease_wait;
        acquire(ticket, use);
      }
    }
  }
  begin_next();
}

/// The row stays, and a later sweep finishes it (spec 27).
void environment_state::note_failed_removal(ec code) {
  if (!record_is_fresh || !row() || code == ec::conflict || code == ec::not_found)
    return;
  auto target = *row();
  target.sweep_failed_at = shared().wall_clock();
  auto expected = target.generation;
  self->request(others->store, defaults::store_timeout, write_atom::value, instance_write{std::move(target), expected})
      .then([this](const instance_write& written) {
        if (row() && row()->generation < written.row.generation)
          record->instance = written.row;
      }, [this](const caf::error&) { record_is_fresh = false; });
}

} // namespace holt::actors
