#include "actors/environment.hpp"

#include <algorithm>
#include <type_traits>

#include <caf/actor_cast.hpp>
#include <caf/actor_clock.hpp>
#include <caf/actor_system.hpp>

#include "actors/agent_session.hpp"
#include "actors/answers.hpp"
#include "actors/error.hpp"
#include "actors/log_fields.hpp"
#include "actors/logic/idle.hpp"
#include "protocols/json_read.hpp"

namespace holt::actors {

namespace {

static_assert(!std::is_aggregate_v<environment_state>);

/// Of a handle without any (spec 3).
const protocols::agent::roots default_roots{"/workspace", "/skills", "/tmp"};

protocols::agent::roots roots_of(const storage::instance_row& row) {
  if (row.roots_json.empty())
    return default_roots;
  auto read = protocols::json::read_text<protocols::agent::roots>(row.roots_json, protocols::json::unknown_fields::ignore);
  return read ? *read : default_roots;
}

use_error error_of(const protocols::agent::operation_error& error) {
  use_error answer;
  answer.code = error.code;
  answer.message = error.message;
  answer.details = error.details;
  if (error.retry == "later")
    answer.retry_after = std::chrono::seconds{1};
  return answer;
}

/// `<created_at>:<file system id>` (spec 18).
std::string seen_identity(const storage::instance_row& row) {
  return std::to_string(row.instance_created_at) + ":" + row.file_system_id;
}

} // namespace

environment_state::clock environment_state::now() const {
  return self->clock().now().time_since_epoch();
}

const std::optional<storage::instance_row>& environment_state::row() const {
  static const std::optional<storage::instance_row> none;
  return record ? record->instance : none;
}

logic::lifecycle_facts environment_state::facts() const {
  logic::lifecycle_facts facts;
  facts.environment_id = id;
  // An environment names the current cloud provider, or an internal one and never another (spec 30, 31).
  auto& named = record->environment.provider;
  facts.provider = !named.empty() && named.front() == '@' ? named : shared().settings.cloud_provider;
  if (!others->providers.contains(facts.provider))
    facts.provider.clear();
  facts.row_provider_loaded = record->instance && others->providers.contains(record->instance->provider);
  facts.host_id = shared().settings.host_id;
  facts.boot_id = shared().settings.boot_id;
  facts.found_gone = found_gone;
  facts.owned = current && current->owned;
  facts.now = shared().wall_clock();
  return facts;
}

// -- uses -----------------------------------------------------------------------------------------------------------------

void environment_state::on_use(use_call call) {
  auto ticket = lease_ticket{shared().random()};
  while (uses.contains(ticket))
    ticket = lease_ticket{shared().random()};
  auto& use = uses[ticket];
  use.call = std::move(call);
  last_used = now();
  last_used_at = shared().wall_clock();
  if (!record) {
    load_for_uses();
    return;
  }
  admit(ticket);
}

void environment_state::load_for_uses() {
  if (std::exchange(loading, true))
    return;
  self->request(others->store, defaults::store_timeout, load_atom::value, id)
      .then([this](const loaded_environment& loaded) { on_loaded(loaded.record); },
            [this](const caf::error& error) { on_load_failed(code_of(error, ec::store_unavailable)); });
}

void environment_state::on_loaded(std::shared_ptr<const storage::environment_record> loaded) {
  loading = false;
  // A work that runs meanwhile knows better, once it has read the row itself: it writes.
  if (!record || !current || !current->leased) {
    record = *loaded;
    record_is_fresh = true;
    if (row())
      roots = roots_of(*row());
  }
  std::vector<std::pair<lease_ticket, bool>> ready;
  for (auto& [ticket, use] : uses)
    if (use.now_in == phase::loading)
      ready.emplace_back(ticket, use.leased);
  for (auto [ticket, leased] : ready)
    leased ? proceed(ticket) : admit(ticket);
}

void environment_state::on_load_failed(ec code) {
  loading = false;
  answer_all_in(phase::loading, code);
  // Ids that don't exist cost no actor.
  if (code == ec::not_found) {
    last_used = now() - shared().settings.passivate_after;
    ask_to_go();
  }
}

bool environment_state::may_see(const std::optional<std::string>& org_id) const {
  auto& environment = record->environment;
  if (removed)
    return false;
  return !org_id || (*org_id == environment.org_id && !environment.deleted_at);
}

void environment_state::admit(lease_ticket ticket) {
  auto& use = uses.at(ticket);
  if (!may_see(use.call.request->org_id))
    return answer(ticket, failed_use(ec::not_found));
  use.deadline = now() + shared().settings.lease_wait;
  acquire(ticket, use);
}

void environment_state::acquire(lease_ticket ticket, use& use) {
  use.now_in = phase::waiting;
  auto mode = use.call.request->counted ? lease_mode::shared : lease_mode::uncounted;
  self->send(lease, acquire_atom::value, ticket, mode, shared().max_concurrent_commands.load(std::memory_order_relaxed),
             shared().settings.max_waiting);
  wake_at(use.deadline);
}

void environment_state::on_granted(lease_ticket ticket) {
  if (current && current->ticket == ticket) {
    current->leased = true;
    return on_exclusive();
  }
  auto found = uses.find(ticket);
  // Given up meanwhile: its release is under way.
  if (found == uses.end() || found->second.now_in != phase::waiting)
    return;
  found->second.leased = true;
  proceed(ticket);
}

void environment_state::on_refused(lease_ticket ticket, ec code) {
  if (current && current->ticket == ticket && !current->leased)
    return end_work(code);
  auto found = uses.find(ticket);
  if (found != uses.end() && found->second.now_in == phase::waiting)
    answer(ticket, failed_use(code));
}

/// Under its lease: on to the session if the instance is usable, else aside until it is (spec 10, 14).
void environment_state::proceed(lease_ticket ticket) {
  auto& use = uses.at(ticket);
  bool rereads = !shared().sole_writer && use.now_in == phase::waiting;
  if (rereads || !record_is_fresh) {
    use.now_in = phase::loading;
    return load_for_uses();
  }
  if (!may_see(use.call.request->org_id))
    return answer(ticket, failed_use(ec::not_found));
  if (!logic::usable(row(), facts())) {
    if (use.call.request->if_running)
      return answer(ticket, failed_use(ec::not_running));
    return block(ticket);
  }
  if (session_open)
    return start(ticket);
  use.now_in = phase::connecting;
  if (!session)
    open_session();
}

void environment_state::block(lease_ticket ticket) {
  auto& use = uses.at(ticket);
  // The instance went away again and again while this use came to its turn.
  if (++use.times_blocked > defaults::max_times_blocked)
    return answer(ticket, failed_use(ec::sandbox_unavailable));
  release(ticket, use);
  use.now_in = phase::blocked;
  ensure_running();
}

void environment_state::start(lease_ticket ticket) {
  auto& use = uses.at(ticket);
  use.now_in = phase::running;
  use.session = session_number;
  ask_seen(ticket, use);
  touch(false);
  self->send(*session, use_atom::value, session_use{ticket, use.call.request});
}

void environment_state::on_accepted(lease_ticket ticket) {
  // A task or terminal holds a lease only while it starts (spec 7).
  if (auto found = uses.find(ticket); found != uses.end())
    release(ticket, found->second);
}

void environment_state::on_result(lease_ticket ticket, operation_end end) {
  if (current && current->ticket == ticket)
    return on_activity(end);
  auto found = uses.find(ticket);
  if (found == uses.end() || found->second.now_in != phase::running)
    return;
  if (end.broken)
    return after_broken(ticket, end);
  use_result result;
  if (end.refused != ec::none)
    result.error = answer_of(end.refused);
  else if (end.error)
    result.error = error_of(*end.error);
  else
    result.result = std::move(end.result);
  result.finals = std::move(end.finals);
  answer(ticket, std::move(result));
}

/// Once more, or what the caller is told (spec 15, 16, 44).
void environment_state::after_broken(lease_ticket ticket, const operation_end& end) {
  auto& use = uses.at(ticket);
  if (*end.broken == logic::attempt_end::gone) {
    ++use.times_gone;
    // What a former session says concerns a former instance.
    if (use.session == session_number)
      instance_is_gone();
  }
  auto decision = logic::decide_use({*end.broken, end.may_have_run, use.call.request->safe_to_repeat, use.times_gone});
  if (!decision.again) {
    auto result = failed_use(decision.error);
    result.finals = end.finals;
    return answer(ticket, std::move(result));
  }
  if (use.call.request->if_running)
    return answer(ticket, failed_use(ec::not_running));
  use.restarted = true;
  block(ticket);
}

void environment_state::answer(lease_ticket ticket, use_result result) {
  auto& use = uses.at(ticket);
  release(ticket, use);
  if (row())
    result.roots = roots;
  use.result = std::move(result);
  use.now_in = phase::seen;
  if (!use.asks_seen)
    finish(ticket);
}

void environment_state::finish(lease_ticket ticket) {
  auto use = uses.extract(ticket);
  use.mapped().result->restarted = use.mapped().restarted;
  use.mapped().call.reply->answer(std::move(*use.mapped().result));
  last_used = now();
  last_used_at = shared().wall_clock();
  touch(false);
  if (uses.empty())
    arm();
}

void environment_state::answer_all_in(phase which, ec code) {
  std::vector<lease_ticket> tickets;
  for (auto& [ticket, use] : uses)
    if (use.now_in == which)
      tickets.push_back(ticket);
  for (auto ticket : tickets)
    answer(ticket, failed_use(code));
}

void environment_state::release(lease_ticket ticket, use& use) {
  if (use.leased || use.now_in == phase::waiting)
    self->send(lease, release_atom::value, ticket);
  use.leased = false;
}

/// The identity that this holder saw last, while its operation runs (spec 18).
void environment_state::ask_seen(lease_ticket ticket, use& use) {
  auto& holder = use.call.request->holder;
  if (holder.empty() || use.asks_seen)
    return;
  auto identity = seen_identity(*row());
  auto known = seen.find(holder);
  if (known != seen.end() && known->second.identity == identity
      && now() - known->second.asked_at < defaults::seen_refresh)
    return;
  use.asks_seen = true;
  seen_swap swap;
  swap.environment_id = id;
  swap.holder = holder;
  swap.identity = identity;
  using std::chrono::microseconds;
  auto destroy_after = record->environment.destroy_after_ms
                           ? std::chrono::milliseconds{*record->environment.destroy_after_ms}
                           : shared().settings.destroy_after;
  swap.expires_at = shared().wall_clock() + microseconds{destroy_after + std::chrono::hours{24}}.count();
  self->request(others->store, defaults::store_timeout, seen_atom::value, std::move(swap))
      .then([this, ticket, identity](const std::string& former) { on_seen(ticket, former, identity, true); },
            [this, ticket, identity](const caf::error& error) {
              shared().log("warn", "seen.failed",
                           log_fields{}.add("environment", id).add("code", to_string(code_of(error, ec::store_unavailable))).text());
              on_seen(ticket, identity, identity, false);
            });
}

void environment_state::on_seen(lease_ticket ticket, const std::string& former, const std::string& identity,
                                bool counts) {
  auto found = uses.find(ticket);
  if (found == uses.end())
    return;
  auto& use = found->second;
  use.asks_seen = false;
  // A first use is not a restart.
  if (!former.empty() && former != identity)
    use.restarted = true;
  if (counts) {
    if (seen.size() >= defaults::max_seen_cached)
      seen.clear();
    seen[use.call.request->holder] = {identity, now()};
  }
  if (use.now_in == phase::seen)
    finish(ticket);
  else if (use.now_in == phase::running && counts)
    ask_seen(ticket, use); // the instance may be another by now
}

void environment_state::cancel(const std::string& op_id) {
  std::vector<lease_ticket> unsent;
  for (auto& [ticket, use] : uses)
    if (use.call.request->op_id == op_id && use.now_in != phase::running && use.now_in != phase::seen)
      unsent.push_back(ticket);
  for (auto ticket : unsent)
    answer(ticket, failed_use(ec::cancelled));
  if (session)
    self->send(*session, cancel_atom::value, op_id);
}

void environment_state::detach(const std::string& op_id, const std::vector<std::uint32_t>& streams) {
  if (session)
    self->send(*session, detach_atom::value, op_id, streams);
}

void environment_state::tell_activity(const activity_call& call) {
  environment_activity activity;
  activity.connected = session_open;
  for (auto& [ticket, use] : uses) {
    bool works = use.now_in == phase::connecting || use.now_in == phase::running;
    ++(works ? activity.uses : activity.waiting);
    auto& holder = use.call.request->holder;
    if (!holder.empty() && std::find(activity.holders.begin(), activity.holders.end(), holder) == activity.holders.end())
      activity.holders.push_back(holder);
  }
  call.reply->answer(std::move(activity));
}

void environment_state::touch(bool at_once) {
  if (!row() || row()->status != "running")
    return;
  if (!at_once && touched_at && now() - *touched_at < defaults::touch_interval)
    return;
  touched_at = now();
  shared().store->touch_instance(id, shared().wall_clock());
}

// -- session --------------------------------------------------------------------------------------------------------------

void environment_state::open_session() {
  session_target target;
  target.environment_id = id;
  target.handle = row()->handle;
  target.provider = row()->provider;
  target.number = ++session_number;
  target.epoch = std::exchange(reserved_epoch, std::nullopt);
  session_open = false;
  session = self->spawn(agent_session, others, std::move(target), caf::actor_cast<caf::actor_addr>(self));
  self->monitor(*session);
}

void environment_state::close_session(ec code) {
  if (!session)
    return;
  self->send(*session, close_atom::value, static_cast<std::uint8_t>(code));
  self->demonitor(session->address());
  session.reset();
  session_open = false;
  ++session_number; // its last words don't concern the next; results of its operations still count
}

void environment_state::on_opened(const session_opened& opened) {
  if (opened.session != session_number || !session)
    return;
  session_open = true;
  if (!opened.roots.workspace.empty())
    roots = opened.roots;
  std::vector<lease_ticket> ready;
  for (auto& [ticket, use] : uses)
    if (use.now_in == phase::connecting)
      ready.push_back(ticket);
  for (auto ticket : ready)
    start(ticket);
  if (current && current->checking)
    check_activity();
}

void environment_state::on_ended(const session_ended& ended) {
  // It answered all that it had. What still runs with it reached it too late, and was not begun.
  std::vector<lease_ticket> missed;
  for (auto& [ticket, use] : uses)
    if (use.now_in == phase::running && use.session == ended.session)
      missed.push_back(ticket);
  if (ended.session != session_number) {
    for (auto ticket : missed)
      uses.at(ticket).leased ? proceed(ticket) : answer(ticket, failed_use(ec::outcome_unknown));
    return;
  }
  session.reset();
  session_open = false;
  if (ended.reason != ec::none)
    shared().log("warn", "session.ended",
                 log_fields{}.add("environment", id).add("code", to_string(ended.reason)).add("detail", ended.detail).text());
  operation_end end;
  end.may_have_run = false;
  end.broken = logic::attempt_end::unreachable;
  if (ended.reason == ec::instance_gone) {
    end.broken = logic::attempt_end::gone;
    instance_is_gone();
  } else if (ended.reason == ec::files_lost) {
    end.broken = logic::attempt_end::files_gone;
    record_files_lost();
  }
  std::vector<lease_ticket> waiting;
  for (auto& [ticket, use] : uses)
    if (use.now_in == phase::connecting)
      waiting.push_back(ticket);
  waiting.insert(waiting.end(), missed.begin(), missed.end());
  for (auto ticket : waiting) {
    uses.at(ticket).session = session_number;
    if (ended.reason == ec::none || ended.reason == ec::stopping)
      proceed(ticket); // it went as they came: another one
    else if (ended.reason == ec::store_unavailable || ended.reason == ec::internal)
      answer(ticket, failed_use(ended.reason));
    else
      after_broken(ticket, end);
  }
  if (current && current->checking)
    on_activity(end);
}

void environment_state::instance_is_gone() {
  // Of the instance that the session spoke to; the row may tell of a younger one by now.
  if (row() && row()->status == "running")
    found_gone = logic::identity_of(*row());
}

void environment_state::record_files_lost() {
  // Only while the row still records that instance (spec 16); what fails here is only logged.
  auto target = row() ? logic::files_lost(row(), logic::identity_of(*row())) : std::nullopt;
  if (!target)
    return;
  record->instance->fs_status = "lost"; // for uses from now on, whatever becomes of the record
  auto expected = row()->generation;
  self->request(others->store, defaults::store_timeout, write_atom::value, instance_write{std::move(*target), expected})
      .then(
          [this](const instance_write& written) {
            if (row() && row()->generation < written.row.generation)
              record->instance = written.row;
          },
          [this](const caf::error& error) {
            record_is_fresh = false;
            shared().log("error", "files_lost.not_recorded",
                         log_fields{}.add("environment", id).add("code", to_string(code_of(error, ec::store_unavailable))).text());
          });
}

// -- time -----------------------------------------------------------------------------------------------------------------

/// One wake-up is enough: it looks at everything and asks for the next.
void environment_state::wake_at(clock at) {
  if (armed && *armed <= at)
    return;
  armed = at;
  self->send(others->schedule, wake_atom::value, caf::timespan{at}, ++wake_generation);
}

void environment_state::arm() {
  for (auto& [ticket, use] : uses)
    if (use.now_in == phase::waiting)
      wake_at(use.deadline);
  if (current && !current->leased)
    wake_at(current->deadline);
  if (uses.empty() && !current && waiting_changes.empty())
    wake_at(last_used + shared().settings.passivate_after);
}

void environment_state::on_wake() {
  armed.reset();
  std::vector<lease_ticket> late;
  for (auto& [ticket, use] : uses)
    if (use.now_in == phase::waiting && use.deadline <= now())
      late.push_back(ticket);
  for (auto ticket : late)
    answer(ticket, failed_use(ec::busy, std::chrono::seconds{1}));
  if (current && !current->leased && current->deadline <= now())
    end_work(ec::busy);
  ask_to_go();
  arm();
}

/// If nobody needs this actor. The supervisor answers `leave`, or a message is under way that starts all this again.
void environment_state::ask_to_go() {
  auto decision = logic::decide_passivation({now(), last_used, shared().settings.passivate_after, uses.size(),
                                             current.has_value() || !waiting_changes.empty()});
  if (decision != logic::passivation::go)
    return;
  if (auto parent = caf::actor_cast<environment_supervisor_actor>(supervisor))
    self->send(parent, idle_atom::value, id, taken);
  last_used = now();
}

/// Answers all that is owed. Running processes go on in the sandbox; the agent keeps their results.
void environment_state::stop(ec code) {
  close_session(ec::stopping);
  for (auto& [ticket, use] : uses) {
    bool has_result = use.result.has_value();
    use.call.reply->answer(has_result ? std::move(*use.result) : failed_use(code));
  }
  uses.clear();
  auto refuse = [&](lifecycle_call& call) {
    if (call.reply)
      call.reply->answer({.error = answer_of(code), .record = {}});
  };
  if (current)
    refuse(current->wish);
  current.reset();
  for (auto& call : waiting_changes)
    refuse(call);
  waiting_changes.clear();
}

environment_actor::behavior_type environment(environment_state::pointer self, std::shared_ptr<const peers> others,
                                             std::string id, lease_actor lease, caf::actor_addr supervisor) {
  auto& state = self->state;
  state.others = std::move(others);
  state.id = std::move(id);
  state.lease = std::move(lease);
  state.supervisor = std::move(supervisor);
  // Not used yet: one that a sweep looked at goes when that is done.
  state.last_used = state.now() - state.shared().settings.passivate_after;
  self->set_exit_handler([self](caf::exit_msg& msg) {
    self->state.stop(code_of(msg.reason, ec::stopping));
    self->quit(msg.reason);
  });
  self->set_down_handler([self](caf::down_msg& msg) {
    auto& state = self->state;
    if (!state.session || msg.source != state.session->address())
      return;
    // It died without a word: what it had may have run or not.
    state.answer_all_in(environment_state::phase::running, ec::outcome_unknown);
    state.on_ended({state.session_number, ec::sandbox_unavailable, "the session died"});
  });
  return {
      [self](use_atom, use_call& call) {
        ++self->state.taken;
        self->state.on_use(std::move(call));
      },
      [self](cancel_atom, const std::string& op_id) {
        ++self->state.taken;
        self->state.cancel(op_id);
      },
      [self](detach_atom, const std::string& op_id, const std::vector<std::uint32_t>& streams) {
        ++self->state.taken;
        self->state.detach(op_id, streams);
      },
      [self](change_atom, lifecycle_call& call) {
        ++self->state.taken;
        self->state.on_change(std::move(call));
      },
      [self](activity_atom, const activity_call& call) {
        ++self->state.taken;
        self->state.tell_activity(call);
      },
      [self](leave_atom) {
        self->state.stop(ec::stopping); // nothing is owed; closes the session
        self->quit(caf::exit_reason::user_shutdown);
      },
      [self](granted_atom, lease_ticket ticket) { self->state.on_granted(ticket); },
      [self](refused_atom, lease_ticket ticket, std::uint8_t code) {
        self->state.on_refused(ticket, static_cast<ec>(code));
      },
      [self](opened_atom, const session_opened& opened) { self->state.on_opened(opened); },
      [self](ended_atom, const session_ended& ended) { self->state.on_ended(ended); },
      [self](accepted_atom, lease_ticket ticket) { self->state.on_accepted(ticket); },
      [self](result_atom, lease_ticket ticket, operation_end& end) { self->state.on_result(ticket, std::move(end)); },
      [self](wake_atom, std::uint64_t generation) {
        if (generation == self->state.wake_generation)
          self->state.on_wake();
      },
  };
}

} // namespace holt::actors
