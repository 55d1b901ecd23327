#include "actors/agent_session.hpp"

#include <algorithm>
#include <type_traits>

#include <caf/actor_cast.hpp>
#include <caf/actor_clock.hpp>
#include <caf/actor_system.hpp>
#include <caf/send.hpp>

#include "actors/error.hpp"
#include "actors/log_fields.hpp"
#include "actors/logic/lease_queue.hpp"
#include "protocols/control.hpp"
#include "protocols/json_write.hpp"

namespace holt::actors {

namespace agent = protocols::agent;

namespace {

static_assert(!std::is_aggregate_v<agent_session_state>);

/// Provider, store and handshake each have their own time; this is the provider's.
constexpr std::chrono::seconds open_timeout{10};
/// What an agent takes in one op.query.
constexpr std::size_t max_query_ids = 200;

/// How an attempt ended, for operations that the session can't carry further.
logic::attempt_end attempt_end_of(ec reason) {
  switch (reason) {
    case ec::instance_gone:
      return logic::attempt_end::gone;
    case ec::files_lost:
      return logic::attempt_end::files_gone;
    default:
      return logic::attempt_end::unreachable;
  }
}

template <class T>
std::optional<T> read(const protocols::json::value& message) {
  auto read = protocols::read_control<T>(message);
  return read ? std::optional<T>{std::move(*read)} : std::nullopt;
}

} // namespace

agent_session_state::~agent_session_state() {
  // Killed, or its environment died: nobody else closes the socket.
  if (channel)
    channel->close("the session ended");
}

// -- connection -----------------------------------------------------------------------------------------------------------

void agent_session_state::prepare() {
  now_in = phase::preparing;
  auto number = ++connection;
  auto failed = [this, number](const caf::error& error) {
    if (number == connection)
      retry_or_end(code_of(error, ec::store_unavailable), detail_of(error));
  };
  auto with_incarnation = [this, number, failed] {
    if (target.epoch) {
      connect(*std::exchange(target.epoch, std::nullopt));
      return;
    }
    self->request(others->store, defaults::store_timeout, epoch_atom::value, target.environment_id)
        .then([this, number](std::uint64_t next) {
          if (number == connection)
            connect(next);
        }, failed);
  };
  if (!incarnation.empty())
    return with_incarnation();
  self->request(others->store, defaults::store_timeout, origin_atom::value)
      .then([this, number, with_incarnation](std::string& origin) {
        incarnation = std::move(origin);
        if (number == connection)
          with_incarnation();
      }, failed);
}

void agent_session_state::connect(std::uint64_t with_epoch) {
  epoch = with_epoch;
  auto found = others->providers.find(target.provider);
  if (found == others->providers.end())
    return end(ec::sandbox_unavailable, "the provider is not loaded");
  provider_call call;
  call.action = provider_action::open;
  call.environment_id = target.environment_id;
  call.handle = target.handle;
  call.timeout = open_timeout;
  auto number = connection;
  self->request(found->second, open_timeout + std::chrono::seconds{1}, call_atom::value, std::move(call))
      .then(
          [this, number](provider_answer& answer) {
            if (number != connection)
              return;
            if (!answer.error)
              return greet(answer.socket->take());
            switch (answer.error->code) {
              case provider_errc::gone:
                return end(ec::instance_gone, answer.error->detail);
              case provider_errc::files_gone:
                return end(ec::files_lost, answer.error->detail);
              default:
                return retry_or_end(ec::sandbox_unavailable, answer.error->detail);
            }
          },
          [this, number](const caf::error& error) {
            if (number == connection)
              retry_or_end(code_of(error, ec::sandbox_unavailable), detail_of(error));
          });
}

void agent_session_state::greet(int socket) {
  now_in = phase::greeting;
  channel_events events;
  auto weak = caf::actor_cast<caf::actor_addr>(self);
  auto number = connection;
  events.on_control = [weak, number](std::string json) {
    if (auto session = caf::actor_cast<agent_session_actor>(weak))
      caf::anon_send(session, control_atom::value, number, std::move(json));
  };
  events.on_closed = [weak, number](std::string reason) {
    if (auto session = caf::actor_cast<agent_session_actor>(weak))
      caf::anon_send(session, closed_atom::value, number, std::move(reason));
  };
  channel = others->shared->open_channel(socket, std::move(events));
  if (!channel)
    return retry_or_end(ec::sandbox_unavailable, "no channel");
  agent::challenge challenge;
  challenge.purpose = "agent";
  challenge.issuer = others->shared->settings.issuer;
  challenge.nonce = logic::make_owner_token(others->shared->random);
  challenge.server_time = others->shared->wall_clock();
  channel->send_control(protocols::json::write_control(challenge));
  wake_in(defaults::handshake_timeout);
}

void agent_session_state::on_hello(const protocols::json::value& message) {
  auto hello = read<agent::hello>(message);
  if (!hello || hello->versions.min > agent::protocol_version || hello->versions.max < agent::protocol_version) {
    channel->send_control(protocols::json::write_control(
        agent::protocol_error{"protocol.version", "this server speaks version 1 of the agent protocol"}));
    return retry_or_end(ec::sandbox_unavailable, hello ? "the agent speaks another version" : "no hello");
  }
  agent::welcome welcome;
  if (session_id.empty())
    session_id = "ses_" + logic::make_owner_token(others->shared->random);
  welcome.session_id = session_id;
  welcome.incarnation = incarnation;
  welcome.epoch = epoch;
  welcome.resumed = was_open;
  channel->send_control(protocols::json::write_control(welcome));
  if (!was_open) {
    was_open = true;
    if (auto parent = caf::actor_cast<environment_actor>(environment))
      self->send(parent, opened_atom::value, session_opened{target.number, hello->roots});
  }
  on_open();
}

/// Asks what became of the operations that the last connection left behind; then all is open.
void agent_session_state::on_open() {
  std::vector<std::string> ids;
  for (auto& op : operations)
    if (op.sent && op.request->kind != use_kind::query)
      ids.push_back(op.request->op_id);
  resumed_states.clear();
  open_queries = 0;
  if (ids.empty())
    return resume_all();
  now_in = phase::asking;
  for (std::size_t from = 0; from < ids.size(); from += max_query_ids, ++open_queries) {
    auto to = std::min(from + max_query_ids, ids.size());
    agent::op_query query;
    query.query_id = "resume_" + std::to_string(connection);
    query.op_ids.assign(ids.begin() + static_cast<long>(from), ids.begin() + static_cast<long>(to));
    channel->send_control(protocols::json::write_control(query));
  }
  wake_in(defaults::handshake_timeout);
}

void agent_session_state::on_closed(const std::string& reason) {
  channel.reset();
  retry_or_end(ec::sandbox_unavailable, reason);
}

void agent_session_state::retry_or_end(ec reason, const std::string& detail) {
  ++connection; // what the present one still says doesn't count
  if (channel)
    channel->close("another connection is tried");
  channel.reset();
  for (auto& op : operations)
    op.streams.assign(op.request->streams.size(), 0);
  if (!was_open && reason == ec::stopping)
    return end(reason, detail);
  // Nobody waits for a connection: the next use makes one.
  if (operations.empty() && was_open)
    return end(ec::none, detail);
  auto delay = retries.next(fraction_of(others->shared->random()));
  if (!delay)
    return end(reason, detail);
  others->shared->log("warn", "session.reconnect",
                      log_fields{}
                          .add("environment", target.environment_id)
                          .add("operations", operations.size())
                          .add("detail", detail)
                          .text());
  now_in = phase::waiting;
  wake_in(*delay);
}

void agent_session_state::wake_in(std::chrono::milliseconds delay) {
  auto at = self->clock().now().time_since_epoch() + delay;
  self->send(others->schedule, wake_atom::value, caf::timespan{at}, ++wake_generation);
}

void agent_session_state::on_wake() {
  switch (now_in) {
    case phase::waiting:
      return prepare();
    case phase::greeting:
    case phase::asking:
      return retry_or_end(ec::sandbox_unavailable, "the agent did not answer in time");
    case phase::preparing:
    case phase::open:
    case phase::ended:
      return;
  }
}

// -- operations -----------------------------------------------------------------------------------------------------------

void agent_session_state::use(const session_use& use) {
  auto& op = operations.emplace_back();
  op.ticket = use.ticket;
  op.request = use.request;
  auto from = use.request->kind == use_kind::attach ? use.request->attach_from : 0;
  for (auto& stream : use.request->streams)
    op.consumers.push_back(stream.consumer ? std::make_shared<resumable_stream>(stream.consumer, from) : nullptr);
  op.streams.assign(use.request->streams.size(), 0);
  op.detached.assign(use.request->streams.size(), false);
  op.attached = use.request->kind == use_kind::attach;
  if (now_in == phase::open)
    send(op);
}

bool agent_session_state::open_streams(operation& op) {
  for (std::size_t i = 0; i < op.consumers.size(); ++i) {
    if (op.detached[i])
      continue;
    op.streams[i] = channel->open_stream(op.consumers[i]);
    if (op.streams[i] == 0) {
      close_streams(op);
      return false;
    }
  }
  return true;
}

void agent_session_state::close_streams(operation& op) {
  for (auto& stream : op.streams)
    if (auto id = std::exchange(stream, 0); id != 0 && channel)
      channel->close_stream(id);
}

/// Sends what was not sent on this connection; ends it with `busy` when no stream is free.
void agent_session_state::send(operation& op) {
  auto& request = *op.request;
  if (request.kind == use_kind::query) {
    op.query_id = "query_" + std::to_string(connection) + "_" + std::to_string(static_cast<std::uint64_t>(op.ticket));
    channel->send_control(protocols::json::write_control(agent::op_query{op.query_id, {request.op_id}}));
    op.sent = true;
    return;
  }
  if (!open_streams(op)) {
    auto at = std::find_if(operations.begin(), operations.end(), [&](auto& each) { return &each == &op; });
    operation_end end;
    end.refused = ec::busy;
    return finish(at, std::move(end));
  }
  std::vector<agent::stream_ref> streams;
  for (std::size_t i = 0; i < op.streams.size(); ++i)
    if (op.streams[i] != 0)
      streams.push_back({request.streams[i].name, op.streams[i]});
  if (op.attached) {
    agent::op_attach attach;
    attach.op_id = request.op_id;
    attach.from = request.attach_from;
    for (auto& consumer : op.consumers)
      if (consumer)
        attach.from = consumer->position();
    attach.follow = request.kind == use_kind::attach ? request.attach_follow : true;
    attach.streams = std::move(streams);
    channel->send_control(protocols::json::write_control(attach));
  } else {
    agent::op_start start;
    start.op_id = request.op_id;
    start.operation = request.operation;
    start.arguments = request.arguments;
    start.digest = request.digest;
    start.durable = request.caller_chose_id;
    start.streams = std::move(streams);
    channel->send_control(protocols::json::write_control(start));
  }
  op.sent = true;
  op.accepted = false;
  if (op.cancelled)
    channel->send_control(protocols::json::write_control(agent::op_cancel{request.op_id}));
}

void agent_session_state::on_control(const std::string& text) {
  auto message = protocols::parse_control(text);
  if (!message) {
    channel->send_control(protocols::json::write_control(agent::protocol_error{"protocol.malformed", message.error().message}));
    return retry_or_end(ec::sandbox_unavailable, "malformed control message");
  }
  auto kind = protocols::json::kind_of(*message);
  if (now_in == phase::greeting) {
    if (kind == agent::hello::kind)
      on_hello(*message);
    else
      retry_or_end(ec::sandbox_unavailable, "the agent did not begin with hello");
    return;
  }
  if (kind == agent::op_result::kind) {
    if (auto result = read<agent::op_result>(*message))
      on_result(std::move(*result));
  } else if (kind == agent::op_accepted::kind) {
    if (auto accepted = read<agent::op_accepted>(*message))
      on_accepted(*accepted);
  } else if (kind == agent::op_states::kind) {
    if (auto states = read<agent::op_states>(*message))
      on_states(*states);
  } else if (kind == agent::protocol_error::kind) {
    // A stale epoch, for one: another connection was accepted meanwhile. The next has a higher one.
    auto error = read<agent::protocol_error>(*message);
    retry_or_end(ec::sandbox_unavailable, error ? error->code : "error");
  } else if (kind != agent::gap::kind && kind != agent::op_detach::kind) {
    // Gaps are the channel's. A detached reader took nothing for a minute: its result comes with a gap.
    channel->send_control(protocols::json::write_control(agent::protocol_error{"unsupported", "unknown kind"}));
  }
}

void agent_session_state::on_accepted(const agent::op_accepted& accepted) {
  for (auto& op : operations) {
    if (op.request->op_id != accepted.op_id || !op.sent || op.accepted)
      continue;
    op.accepted = true;
    retries.succeeded();
    if (op.request->observer)
      op.request->observer->on_accepted(channel, op.streams, accepted);
    if (op.request->releases_when_accepted)
      if (auto parent = caf::actor_cast<environment_actor>(environment))
        self->send(parent, accepted_atom::value, op.ticket);
    return;
  }
}

std::list<agent_session_state::operation>::iterator
agent_session_state::find_for_result(const agent::op_result& result) {
  auto is_its = [&](auto& op, auto& final) {
    return std::find(op.streams.begin(), op.streams.end(), final.stream) != op.streams.end();
  };
  auto first = operations.end();
  for (auto op = operations.begin(); op != operations.end(); ++op) {
    if (op->request->op_id != result.op_id || !op->sent || op->request->kind == use_kind::query)
      continue;
    if (std::any_of(result.finals.begin(), result.finals.end(), [&](auto& final) { return is_its(*op, final); }))
      return op;
    if (first == operations.end())
      first = op;
  }
  return first;
}

void agent_session_state::on_result(agent::op_result result) {
  auto op = find_for_result(result);
  if (op == operations.end())
    return;
  operation_end end;
  for (std::size_t i = 0; i < op->consumers.size(); ++i) {
    if (!op->consumers[i])
      continue;
    auto final = std::find_if(result.finals.begin(), result.finals.end(),
                              [&](auto& each) { return each.stream == op->streams[i]; });
    // What the consumer has is what counts where the agent names nothing: the bytes lay before this message.
    end.finals.push_back(final != result.finals.end() ? final->position : op->consumers[i]->position());
  }
  if (result.outcome == "unknown") {
    end.broken = logic::attempt_end::unknown;
  } else if (result.error && result.error->code == to_string(ec::expired)) {
    end.broken = logic::attempt_end::expired;
  } else {
    end.result = std::move(result.result);
    end.error = std::move(result.error);
  }
  finish(op, std::move(end));
}

void agent_session_state::on_states(const agent::op_states& states) {
  if (now_in == phase::asking) {
    resumed_states.insert(resumed_states.end(), states.states.begin(), states.states.end());
    if (open_queries > 0 && --open_queries == 0)
      resume_all();
    return;
  }
  auto asked = std::find_if(operations.begin(), operations.end(),
                            [&](auto& op) { return op.sent && !op.query_id.empty() && op.query_id == states.query_id; });
  if (asked == operations.end() || states.states.empty())
    return;
  operation_end end;
  end.result = protocols::json::to_value(states.states.front());
  finish(asked, std::move(end));
}

/// Sends what waits, and takes up what the last connection left.
void agent_session_state::resume_all() {
  bool asked = now_in == phase::asking;
  now_in = phase::open;
  ++wake_generation; // it answered in time
  if (asked)
    retries.succeeded();
  for (auto op = operations.begin(); op != operations.end();) {
    auto here = op++;
    auto state = std::find_if(resumed_states.begin(), resumed_states.end(),
                              [&](auto& each) { return each.op_id == here->request->op_id; });
    if (!here->sent || here->request->kind == use_kind::query)
      send(*here);
    else
      resume(here, state != resumed_states.end() ? state->state : "never");
  }
}

/// Takes an operation up on a new connection, by what the agent's ledger says of it.
void agent_session_state::resume(std::list<operation>::iterator op, const std::string& state) {
  if (state == "running" || state == "done") {
    op->attached = true;
    return send(*op);
  }
  if (state == "unknown")
    return finish_broken(op, logic::attempt_end::unknown);
  if (state == "expired")
    return finish_broken(op, logic::attempt_end::expired);
  // Never begun: what can't be repeated is in the ledger before it acts. Reads are in no ledger; they may begin again
  // only while nobody has seen a byte of the first answer.
  bool untouched = std::all_of(op->consumers.begin(), op->consumers.end(),
                               [](auto& consumer) { return !consumer || consumer->untouched(); });
  bool nothing_sent = !op->accepted || op->request->streams.size() == static_cast<std::size_t>(std::count_if(
                                           op->consumers.begin(), op->consumers.end(), [](auto& c) { return bool(c); }));
  if (op->request->kind == use_kind::attach || (untouched && nothing_sent && (!op->accepted || op->request->safe_to_repeat)))
    return send(*op);
  finish_broken(op, logic::attempt_end::unreachable);
}

void agent_session_state::finish(std::list<operation>::iterator op, operation_end end) {
  close_streams(*op);
  // A stream that ended with its last byte has told its consumer so; after a broken attempt nobody else does.
  if (end.broken || end.refused != ec::none) {
    // Unless the operation is begun again, which the environment decides: then the same consumer goes on.
    auto decision = end.broken ? logic::decide_use({*end.broken, end.may_have_run, op->request->safe_to_repeat, 1})
                               : logic::use_decision{};
    if (!decision.again)
      for (auto& consumer : op->consumers)
        if (consumer)
          consumer->end();
  }
  if (auto parent = caf::actor_cast<environment_actor>(environment))
    self->send(parent, result_atom::value, op->ticket, std::move(end));
  operations.erase(op);
}

void agent_session_state::finish_broken(std::list<operation>::iterator op, logic::attempt_end broken) {
  operation_end end;
  end.broken = broken;
  bool untouched = std::all_of(op->consumers.begin(), op->consumers.end(),
                               [](auto& consumer) { return !consumer || consumer->untouched(); });
  // Also a read is not begun again behind bytes that somebody has seen.
  end.may_have_run = op->sent;
  if (end.may_have_run && !untouched && broken == logic::attempt_end::gone)
    end.broken = logic::attempt_end::unknown;
  finish(op, std::move(end));
}

void agent_session_state::cancel(const std::string& op_id) {
  bool open = now_in == phase::open;
  for (auto op = operations.begin(); op != operations.end();) {
    auto here = op++;
    if (here->request->op_id != op_id)
      continue;
    if (here->sent) {
      here->cancelled |= !open;
      continue;
    }
    operation_end end;
    end.refused = ec::cancelled;
    finish(here, std::move(end));
  }
  // Also when it was begun over another connection.
  if (open)
    channel->send_control(protocols::json::write_control(agent::op_cancel{op_id}));
}

void agent_session_state::detach(const std::string& op_id, const std::vector<std::uint32_t>& streams) {
  for (auto& op : operations) {
    if (op.request->op_id != op_id)
      continue;
    std::vector<std::uint32_t> taken;
    for (std::size_t i = 0; i < op.streams.size(); ++i) {
      if (op.streams[i] == 0 || std::find(streams.begin(), streams.end(), op.streams[i]) == streams.end())
        continue;
      taken.push_back(op.streams[i]);
      op.detached[i] = true;
      if (channel)
        channel->close_stream(std::exchange(op.streams[i], 0));
    }
    if (!taken.empty() && channel)
      channel->send_control(protocols::json::write_control(agent::op_detach{op_id, std::move(taken)}));
  }
}

// -- the end --------------------------------------------------------------------------------------------------------------

void agent_session_state::close(ec code) {
  for (auto op = operations.begin(); op != operations.end();) {
    auto here = op++;
    operation_end end;
    if (code == ec::instance_gone)
      end.broken = here->sent ? logic::attempt_end::unknown : logic::attempt_end::unreachable;
    else
      end.refused = code == ec::none ? ec::detached : code;
    end.may_have_run = here->sent;
    finish(here, std::move(end));
  }
  end(ec::none, "closed by the environment");
}

void agent_session_state::end(ec reason, const std::string& detail) {
  now_in = phase::ended;
  ++connection;
  for (auto op = operations.begin(); op != operations.end();)
    finish_broken(op++, attempt_end_of(reason));
  if (channel)
    channel->close("the session ended");
  channel.reset();
  if (auto parent = caf::actor_cast<environment_actor>(environment))
    self->send(parent, ended_atom::value, session_ended{target.number, reason, detail});
  self->quit(caf::exit_reason::user_shutdown);
}

agent_session_actor::behavior_type agent_session(agent_session_actor::stateful_pointer<agent_session_state> self,
                                                 std::shared_ptr<const peers> others, session_target target,
                                                 caf::actor_addr environment) {
  auto& state = self->state;
  state.retries = logic::retry_budget{others->shared->reconnect};
  state.others = std::move(others);
  state.target = std::move(target);
  state.environment = environment;
  // Without its environment nobody knows this session.
  self->monitor(environment);
  self->set_down_handler([self](caf::down_msg& msg) {
    if (msg.source == self->state.environment)
      self->quit(caf::exit_reason::user_shutdown);
  });
  state.prepare();
  return {
      [self](use_atom, const session_use& use) { self->state.use(use); },
      [self](cancel_atom, const std::string& op_id) { self->state.cancel(op_id); },
      [self](detach_atom, const std::string& op_id, const std::vector<std::uint32_t>& streams) {
        self->state.detach(op_id, streams);
      },
      [self](close_atom, std::uint8_t code) { self->state.close(static_cast<ec>(code)); },
      [self](control_atom, std::uint64_t number, const std::string& text) {
        if (number == self->state.connection)
          self->state.on_control(text);
      },
      [self](closed_atom, std::uint64_t number, const std::string& reason) {
        if (number == self->state.connection)
          self->state.on_closed(reason);
      },
      [self](wake_atom, std::uint64_t generation) {
        if (generation == self->state.wake_generation)
          self->state.on_wake();
      },
  };
}

} // namespace holt::actors
