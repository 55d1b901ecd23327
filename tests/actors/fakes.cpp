#include "tests/actors/fakes.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "protocols/control.hpp"
#include "protocols/json_read.hpp"
#include "protocols/json_write.hpp"

namespace holt::tests {

namespace agent = protocols::agent;
using namespace storage;
using actors::provider_errc;
using actors::provider_error;

// -- store ----------------------------------------------------------------------------------------------------------------

void fake_store::release() {
  held_names.clear();
  auto held = std::move(held_);
  held_.clear();
  for (auto& call : held)
    call();
}

void fake_store::add_environment(const std::string& id, const std::string& org) {
  auto& row = rows[id].environment;
  row.id = id;
  row.org_id = org;
  row.kind = "cloud";
}

std::size_t fake_store::count(const std::string& call) const {
  return static_cast<std::size_t>(std::count(calls.begin(), calls.end(), call));
}

void fake_store::carry_out(const std::string& name, std::function<void(std::optional<store_error>)> call) {
  calls.push_back(name);
  std::optional<store_error> error;
  if (fails)
    if (auto code = fails(name))
      error = store_error{*code, "the test wants it so"};
  if (held_names.contains(name))
    held_.push_back([call, error] { call(error); });
  else
    call(error);
}

void fake_store::load_environment(std::string id, store_reply<environment_record> reply) {
  carry_out("load", [this, id, reply](auto error) {
    if (!error && !rows.contains(id))
      error = store_error{store_errc::not_found, ""};
    error ? reply(tl::unexpected(*error)) : reply(rows.at(id));
  });
}

void fake_store::write_instance(instance_row row, std::uint64_t expected, store_reply<instance_row> reply) {
  carry_out("write", [this, row, expected, reply](auto error) {
    if (error && !(stores_though_unavailable && error->code == store_errc::unavailable))
      return reply(tl::unexpected(*error));
    auto found = rows.find(row.environment_id);
    if (found == rows.end())
      return reply(tl::unexpected(store_error{store_errc::not_found, ""}));
    auto& stored = found->second.instance;
    if ((stored ? stored->generation : 0) != expected) {
      ++fenced;
      return reply(tl::unexpected(store_error{store_errc::fenced, ""}));
    }
    auto next = row;
    next.generation = expected + 1;
    if (stored) {
      next.epoch = std::max(next.epoch, stored->epoch);
      next.last_used_at = std::max(next.last_used_at, stored->last_used_at);
    }
    stored = next;
    written.push_back(next);
    if (after_write)
      after_write(next);
    error ? reply(tl::unexpected(*error)) : reply(next);
  });
}

void fake_store::touch_instance(std::string id, std::int64_t last_used_at) {
  touched.push_back(last_used_at);
  auto found = rows.find(id);
  if (found != rows.end() && found->second.instance)
    found->second.instance->last_used_at = std::max(found->second.instance->last_used_at, last_used_at);
}

void fake_store::next_epoch(std::string id, store_reply<std::uint64_t> reply) {
  carry_out("epoch", [this, id, reply](auto error) {
    if (!error && (!rows.contains(id) || !rows.at(id).instance))
      error = store_error{store_errc::not_found, ""};
    error ? reply(tl::unexpected(*error)) : reply(++rows.at(id).instance->epoch);
  });
}

void fake_store::swap_seen(std::string id, std::string holder, std::string identity, std::int64_t,
                           store_reply<std::string> reply) {
  carry_out("seen", [this, id, holder, identity, reply](auto error) {
    if (error)
      return reply(tl::unexpected(*error));
    reply(std::exchange(seen[{id, holder}], identity));
  });
}

void fake_store::purge_environment(std::string id, std::uint64_t expected, store_reply<bool> reply) {
  carry_out("purge", [this, id, expected, reply](auto error) {
    if (error)
      return reply(tl::unexpected(*error));
    auto found = rows.find(id);
    if (found == rows.end() || !found->second.environment.deleted_at)
      return reply(tl::unexpected(store_error{store_errc::not_found, ""}));
    auto& instance = found->second.instance;
    if ((instance ? instance->generation : 0) != expected)
      return reply(tl::unexpected(store_error{store_errc::fenced, ""}));
    rows.erase(found);
    reply(true);
  });
}

void fake_store::list_instances(std::vector<std::string> statuses, bool deleted_only, std::string cursor,
                                std::uint32_t limit, store_reply<page<environment_record>> reply) {
  carry_out("list", [this, statuses, deleted_only, cursor, limit, reply](auto error) {
    if (error)
      return reply(tl::unexpected(*error));
    page<environment_record> found;
    for (auto& [id, record] : rows) {
      bool wanted = deleted_only ? record.environment.deleted_at.has_value()
                                 : record.instance
                                       && std::find(statuses.begin(), statuses.end(), record.instance->status) != statuses.end();
      if (id <= cursor || !wanted)
        continue;
      if (found.items.size() == limit) {
        found.next_cursor = found.items.back().environment.id;
        break;
      }
      found.items.push_back(record);
    }
    reply(std::move(found));
  });
}

void fake_store::finish_operation(std::string id, std::string status, std::string error, std::int64_t,
                                  store_reply<bool> reply) {
  carry_out("finish", [=, this](auto failure) {
    if (failure)
      return reply(tl::unexpected(*failure));
    auto& row = operations[id];
    row.status = status;
    row.error = error;
    reply(true);
  });
}

void fake_store::incarnation(store_reply<std::string> reply) {
  carry_out("incarnation", [reply](auto error) { error ? reply(tl::unexpected(*error)) : reply("incarnation_1"); });
}

void fake_store::ping(store_reply<bool> reply) {
  reply(true);
}

namespace {
template <class T>
void never_called(const store_reply<T>& reply) {
  reply(tl::unexpected(store_error{store_errc::internal, "not called by actors"}));
}
} // namespace

void fake_store::create_environment(environment_row, store_reply<environment_row> r) { never_called(r); }
void fake_store::get_environment(std::string, std::string, store_reply<environment_record> r) { never_called(r); }
void fake_store::list_environments(environment_filter, store_reply<page<environment_record>> r) { never_called(r); }
void fake_store::update_environment(environment_row, store_reply<environment_row> r) { never_called(r); }
void fake_store::delete_environment(std::string, std::string, operation_row, store_reply<operation_row> r) { never_called(r); }
void fake_store::get_operation(std::string, std::string, store_reply<operation_row> r) { never_called(r); }
void fake_store::create_org(org_row, store_reply<org_row> r) { never_called(r); }
void fake_store::list_orgs(std::string, std::uint32_t, store_reply<page<org_row>> r) { never_called(r); }
void fake_store::get_org(std::string, store_reply<org_row> r) { never_called(r); }
void fake_store::delete_org(std::string, std::int64_t, store_reply<bool> r) { never_called(r); }
void fake_store::create_user(user_row, store_reply<user_row> r) { never_called(r); }
void fake_store::list_users(std::string, std::string, std::uint32_t, store_reply<page<user_row>> r) { never_called(r); }
void fake_store::delete_user(std::string, std::string, store_reply<bool> r) { never_called(r); }
void fake_store::create_key(key_row, store_reply<key_row> r) { never_called(r); }
void fake_store::list_keys(std::string, std::string, std::uint32_t, store_reply<page<key_row>> r) { never_called(r); }
void fake_store::delete_key(std::string, std::string, store_reply<bool> r) { never_called(r); }
void fake_store::find_key(std::string, store_reply<key_row> r) { never_called(r); }
void fake_store::count_keys(store_reply<std::uint64_t> r) { never_called(r); }

// -- channel --------------------------------------------------------------------------------------------------------------

void fake_channel::send_control(std::string json) {
  if (open_)
    world_.on_control(*this, json);
}

std::uint32_t fake_channel::open_stream(std::shared_ptr<actors::stream_consumer> consumer) {
  if (streams_.size() >= 64)
    return 0;
  streams_.emplace(++last_stream_, std::move(consumer));
  return last_stream_;
}

void fake_channel::close_stream(std::uint32_t stream) {
  streams_.erase(stream);
}

void fake_channel::close(std::string reason) {
  drop(reason);
}

void fake_channel::drop(const std::string& reason) {
  if (!std::exchange(open_, false))
    return;
  auto streams = std::move(streams_);
  streams_.clear();
  for (auto& [id, consumer] : streams)
    if (consumer)
      consumer->on_closed();
  auto events = std::exchange(events_, {});
  events.on_closed(reason);
}

void fake_channel::reply(std::string json) {
  if (open_)
    events_.on_control(std::move(json));
}

void fake_channel::data(std::uint32_t stream, std::uint64_t offset, const std::string& bytes, bool last) {
  auto found = streams_.find(stream);
  if (!open_ || found == streams_.end() || !found->second)
    return;
  auto copy = std::make_shared<std::string>(bytes);
  auto view = std::as_bytes(std::span{copy->data(), copy->size()});
  found->second->on_data(offset, {copy, view}, false, last);
}

// -- world: the provider ----------------------------------------------------------------------------------------------------

void fake_world::take_over(const fake_world& other) {
  instances = other.instances;
  files = other.files;
  forgotten = other.forgotten;
  begun = other.begun;
  ledger = other.ledger;
  epochs = other.epochs;
  broken = other.broken;
  clock_ = other.clock_;
}

std::size_t fake_world::count(const std::string& call) const {
  return static_cast<std::size_t>(std::count(calls.begin(), calls.end(), call));
}

std::optional<provider_error> fake_world::note(const std::string& call, const std::string& environment) {
  if (before_call)
    before_call(call);
  calls.push_back(call);
  if (fails)
    if (auto code = fails(call, environment))
      return provider_error{*code, "the test wants it so"};
  return std::nullopt;
}

fake_instance* fake_world::find(const std::string& handle) {
  for (auto& [id, instance] : instances)
    if (handle == "{\"env\":\"" + id + "\"}")
      return &instance;
  return nullptr;
}

actors::provider_report fake_world::report() const {
  return {"bubblewrap", true, {"user_namespace"}, {}};
}

actors::provider_result<actors::created_instance> fake_world::create(const actors::instance_spec& spec) {
  auto& id = spec.environment_id;
  if (auto error = note("create", id))
    return tl::unexpected(*error);
  auto& kept = files[id];
  if (!kept.contains(spec.file_system_id)) {
    if (!spec.new_files)
      return tl::unexpected(provider_error{provider_errc::files_gone, ""});
    kept.insert(spec.file_system_id);
  }
  auto found = instances.find(id);
  if (found != instances.end() && found->second.generation > spec.generation)
    return tl::unexpected(provider_error{provider_errc::younger_generation, ""});
  if (found == instances.end() || found->second.generation != spec.generation) {
    vanish(id); // ends one of an older generation
    fake_instance instance;
    instance.environment_id = id;
    instance.generation = spec.generation;
    instance.created_at = ++clock_;
    instance.process_id = "agent_" + std::to_string(clock_);
    found = instances.insert_or_assign(id, instance).first;
  }
  return actors::created_instance{"{\"env\":\"" + id + "\"}", found->second.created_at,
                                  {"/workspace", "/skills", "/tmp"}};
}

actors::provider_result<void> fake_world::resume(const std::string& handle) {
  auto* instance = find(handle);
  if (auto error = note("resume", instance ? instance->environment_id : ""))
    return tl::unexpected(*error);
  if (!instance)
    return tl::unexpected(provider_error{provider_errc::gone, ""});
  instance->running = true;
  return {};
}

actors::provider_result<void> fake_world::suspend(const std::string& handle, std::uint64_t generation) {
  auto* instance = find(handle);
  if (auto error = note("suspend", instance ? instance->environment_id : ""))
    return tl::unexpected(*error);
  if (!instance)
    return {};
  if (instance->generation > generation)
    return tl::unexpected(provider_error{provider_errc::younger_generation, ""});
  instance->running = false;
  return {};
}

actors::provider_result<void> fake_world::destroy(const std::string& environment_id, const std::string&,
                                                  std::uint64_t generation) {
  if (auto error = note("destroy", environment_id))
    return tl::unexpected(*error);
  auto found = instances.find(environment_id);
  if (found != instances.end() && found->second.generation > generation)
    return tl::unexpected(provider_error{provider_errc::younger_generation, ""});
  vanish(environment_id);
  return {};
}

actors::provider_result<void> fake_world::destroy_files(const std::string& environment_id,
                                                        const std::string& file_system_id) {
  if (auto error = note("destroy_files", environment_id))
    return tl::unexpected(*error);
  if (instances.contains(environment_id))
    broken.push_back("files destroyed below a running instance");
  files[environment_id].erase(file_system_id);
  return {};
}

actors::provider_result<void> fake_world::forget(const std::string& environment_id) {
  if (auto error = note("forget", environment_id))
    return tl::unexpected(*error);
  forgotten.insert(environment_id);
  return {};
}

actors::provider_result<actors::instance_status> fake_world::inspect(const std::string& handle) {
  auto* instance = find(handle);
  if (!instance)
    return actors::instance_status::gone;
  return instance->running ? actors::instance_status::running : actors::instance_status::suspended;
}

actors::provider_result<int> fake_world::open(const std::string& handle) {
  auto* instance = find(handle);
  if (auto error = note("open", instance ? instance->environment_id : ""))
    return tl::unexpected(*error);
  if (!instance)
    return tl::unexpected(provider_error{provider_errc::gone, ""});
  int socket = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  sockets_[socket] = {instance->environment_id, instance->created_at};
  return socket;
}

actors::channel_factory fake_world::channels() {
  return [this](int socket, actors::channel_events events) -> std::shared_ptr<actors::agent_channel> {
    auto [environment, created_at] = sockets_.at(socket);
    sockets_.erase(socket);
    ::close(socket);
    ++connections;
    auto channel = std::make_shared<fake_channel>(*this, environment, created_at, std::move(events));
    channels_.push_back(channel);
    return channel;
  };
}

void fake_world::vanish(const std::string& environment_id) {
  auto found = instances.find(environment_id);
  if (found == instances.end())
    return;
  auto created_at = found->second.created_at;
  instances.erase(found);
  for (auto& [id, entry] : ledger)
    if (entry.environment_id == environment_id && entry.created_at == created_at && entry.state == "running")
      entry.state = "unknown";
  drop_connections(environment_id);
}

void fake_world::drop_connections(const std::string& environment_id) {
  auto channels = channels_;
  for (auto& weak : channels)
    if (auto channel = weak.lock(); channel && channel->environment_id() == environment_id)
      channel->drop("the connection broke");
}

std::size_t fake_world::open_connections() const {
  return static_cast<std::size_t>(std::count_if(channels_.begin(), channels_.end(), [](auto& weak) {
    auto channel = weak.lock();
    return channel && channel->is_open();
  }));
}

// -- world: the agents ------------------------------------------------------------------------------------------------------

void fake_world::on_control(fake_channel& channel, const std::string& text) {
  using protocols::json::write_control;
  auto message = protocols::parse_control(text);
  if (!message) {
    broken.push_back("malformed: " + text);
    return;
  }
  std::string kind{protocols::json::kind_of(*message)};
  control.push_back(kind);
  if (mute)
    return;
  auto instance = instances.find(channel.environment_id());
  if (instance == instances.end() || instance->second.created_at != channel.created_at())
    return channel.drop("nobody is there");
  if (kind == "challenge") {
    agent::hello hello;
    hello.versions = {version, version};
    hello.process_id = instance->second.process_id;
    hello.roots = {"/workspace", "/skills", "/tmp"};
    return channel.reply(write_control(hello));
  }
  if (kind == "welcome") {
    auto welcome = protocols::read_control<agent::welcome>(*message);
    auto& highest = epochs[channel.environment_id()];
    if (welcome->epoch <= highest) {
      max_epoch_refused = std::max(max_epoch_refused, welcome->epoch);
      broken.push_back("an epoch was used twice");
      channel.reply(write_control(agent::protocol_error{"protocol.stale_epoch", ""}));
      return channel.drop("stale epoch");
    }
    highest = welcome->epoch;
    channel.epoch = welcome->epoch;
    channel.welcomed = true;
    return;
  }
  if (kind == "error")
    return;
  if (!channel.welcomed) {
    broken.push_back(kind + " before the welcome");
    return;
  }
  if (!instance->second.running) {
    broken.push_back(kind + " to a suspended instance");
    return;
  }
  auto stream_named_output = [](const std::vector<agent::stream_ref>& streams) {
    for (auto& stream : streams)
      if (stream.name == "output" || stream.name == "body")
        return stream.stream;
    return std::uint32_t{0};
  };
  if (kind == "op.start") {
    auto op = protocols::read_control<agent::op_start>(*message);
    start(channel, op->op_id, op->operation, op->digest, stream_named_output(op->streams), op->durable);
  } else if (kind == "op.attach") {
    auto op = protocols::read_control<agent::op_attach>(*message);
    attach(channel, op->op_id, op->from, stream_named_output(op->streams));
  } else if (kind == "op.query") {
    auto query = protocols::read_control<agent::op_query>(*message);
    agent::op_states states{query->query_id, {}};
    for (auto& id : query->op_ids)
      states.states.push_back({id, ledger.contains(id) ? ledger.at(id).state : "never"});
    channel.reply(write_control(states));
  } else if (kind == "op.cancel") {
    complete(protocols::read_control<agent::op_cancel>(*message)->op_id);
  }
}

void fake_world::accepted(fake_channel& channel, const std::string& op_id, bool attached) {
  agent::op_accepted accepted;
  accepted.op_id = op_id;
  accepted.attached = attached;
  channel.reply(protocols::json::write_control(accepted));
}

void fake_world::result(fake_channel& channel, const std::string& op_id, const attachment& to) {
  auto& entry = ledger.at(op_id);
  agent::op_result result;
  result.op_id = op_id;
  result.outcome = entry.state == "unknown" ? "unknown" : "done";
  if (entry.state == "done")
    result.result = protocols::json::object{{"op_id", op_id}, {"state", "exited"}};
  if (to.output != 0)
    result.finals.push_back({to.output, entry.output.size()});
  channel.reply(protocols::json::write_control(result));
}

void fake_world::start(fake_channel& channel, const std::string& op_id, const std::string& operation,
                       const std::string& digest, std::uint32_t output, bool) {
  using protocols::json::write_control;
  if (operation == "process.list") {
    agent::process_list list;
    for (auto& [id, entry] : ledger) {
      if (entry.environment_id != channel.environment_id() || entry.state != "running")
        continue;
      agent::process_state state;
      state.op_id = id;
      state.state = "running";
      list.processes.push_back(state);
    }
    agent::op_result result;
    result.op_id = op_id;
    result.outcome = "done";
    result.result = protocols::json::to_value(list);
    return channel.reply(write_control(result));
  }
  if (ledger.contains(op_id)) {
    auto& entry = ledger.at(op_id);
    if (entry.digest != digest) {
      agent::op_result refused;
      refused.op_id = op_id;
      refused.outcome = "not_started";
      refused.error = agent::operation_error{"operation.conflict", "other arguments", "never", {}};
      return channel.reply(write_control(refused));
    }
    accepted(channel, op_id, true);
    return attach(channel, op_id, 0, output);
  }
  auto how = behaves ? behaves(op_id) : behaviour::answer;
  auto environment = channel.environment_id();
  if (how == behaviour::drop_before_ledger)
    return channel.drop("before the ledger");
  if (how == behaviour::not_started)
    return vanish(environment);
  bool reads = operation.starts_with("file.read");
  ++begun[op_id];
  auto keep = channel.shared_from_this();
  ledger_entry entry{digest, "running", environment, channel.created_at(), operation == "silent" ? "" : "hello\n"};
  if (!reads)
    ledger[op_id] = entry;
  if (how == behaviour::drop_after_start)
    return channel.drop("after the start");
  if (how == behaviour::vanish)
    return vanish(environment);
  if (how == behaviour::lose_result) {
    ledger[op_id].state = "unknown";
    return channel.drop("the agent ended");
  }
  accepted(channel, op_id, false);
  attachment to{keep, output, 0};
  if (how == behaviour::run) {
    ledger[op_id] = entry;
    attached_[op_id].push_back(to);
    return pump(op_id);
  }
  if (output != 0)
    channel.data(output, 0, entry.output, true);
  ledger[op_id] = entry;
  ledger[op_id].state = "done";
  if (how == behaviour::drop_after_result)
    return channel.drop("before the result is out");
  result(channel, op_id, to);
  if (reads)
    ledger.erase(op_id);
}

void fake_world::attach(fake_channel& channel, const std::string& op_id, std::uint64_t from, std::uint32_t output) {
  if (!ledger.contains(op_id)) {
    agent::op_result refused;
    refused.op_id = op_id;
    refused.outcome = "not_started";
    refused.error = agent::operation_error{"operation.not_found", "no such operation", "never", {}};
    return channel.reply(protocols::json::write_control(refused));
  }
  auto& entry = ledger.at(op_id);
  if (entry.state == "running") {
    accepted(channel, op_id, true);
    attached_[op_id].push_back({channel.shared_from_this(), output, from});
    return pump(op_id);
  }
  if (output != 0 && from <= entry.output.size())
    channel.data(output, from, entry.output.substr(from), true);
  result(channel, op_id, {channel.shared_from_this(), output, from});
}

void fake_world::pump(const std::string& op_id) {
  auto& entry = ledger.at(op_id);
  for (auto& to : attached_[op_id]) {
    auto channel = to.channel.lock();
    if (channel && to.output != 0 && to.sent < entry.output.size())
      channel->data(to.output, to.sent, entry.output.substr(to.sent), false);
    to.sent = entry.output.size();
  }
}

void fake_world::print(const std::string& op_id, const std::string& bytes) {
  ledger.at(op_id).output += bytes;
  pump(op_id);
}

void fake_world::complete(const std::string& op_id) {
  auto found = ledger.find(op_id);
  if (found == ledger.end() || found->second.state != "running")
    return;
  found->second.state = "done";
  auto attached = std::move(attached_[op_id]);
  attached_.erase(op_id);
  for (auto& to : attached) {
    auto channel = to.channel.lock();
    if (!channel || !channel->is_open())
      continue;
    if (to.output != 0)
      channel->data(to.output, to.sent, "", true);
    result(*channel, op_id, to);
  }
}

} // namespace holt::tests
