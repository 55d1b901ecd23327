#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/channel.hpp"
#include "actors/provider_backend.hpp"
#include "actors/use.hpp"
#include "storage/store.hpp"

/// What stands around the actors in their tests: a store, a provider and agents, all in memory and on the test's thread.
namespace holt::tests {

/// Answers at once, unless told to fail or to hold a call. Fences as the real one does.
class fake_store final : public storage::store {
public:
  std::map<std::string, storage::environment_record> rows;
  std::map<std::pair<std::string, std::string>, std::string> seen;
  std::map<std::string, storage::operation_row> operations;
  std::vector<std::string> calls;             // names, in order
  std::vector<storage::instance_row> written; // every row that a write stored
  std::vector<std::int64_t> touched;
  std::uint64_t fenced = 0;
  /// What a call of this name fails with; asked at each call. Empty: it succeeds.
  std::function<std::optional<storage::store_errc>(const std::string& call)> fails;
  /// Whether a write that fails with `unavailable` was stored all the same: its answer was lost.
  bool stores_though_unavailable = false;
  /// Called after each stored write.
  std::function<void(const storage::instance_row&)> after_write;

  /// Holds calls of this name; release() lets them go on.
  std::set<std::string> held_names;
  void release();

  void add_environment(const std::string& id, const std::string& org = "org_a");
  storage::instance_row& instance(const std::string& id) {
    return *rows.at(id).instance;
  }
  std::size_t count(const std::string& call) const;

  void create_environment(storage::environment_row, storage::store_reply<storage::environment_row>) override;
  void get_environment(std::string, std::string, storage::store_reply<storage::environment_record>) override;
  void list_environments(storage::environment_filter,
                         storage::store_reply<storage::page<storage::environment_record>>) override;
  void update_environment(storage::environment_row, storage::store_reply<storage::environment_row>) override;
  void delete_environment(std::string, std::string, storage::operation_row,
                          storage::store_reply<storage::operation_row>) override;
  void load_environment(std::string id, storage::store_reply<storage::environment_record> reply) override;
  void write_instance(storage::instance_row row, std::uint64_t expected,
                      storage::store_reply<storage::instance_row> reply) override;
  void touch_instance(std::string id, std::int64_t last_used_at) override;
  void next_epoch(std::string id, storage::store_reply<std::uint64_t> reply) override;
  void swap_seen(std::string id, std::string holder, std::string identity, std::int64_t,
                 storage::store_reply<std::string> reply) override;
  void purge_environment(std::string id, std::uint64_t expected, storage::store_reply<bool> reply) override;
  void list_instances(std::vector<std::string> statuses, bool deleted_only, std::string cursor, std::uint32_t limit,
                      storage::store_reply<storage::page<storage::environment_record>> reply) override;
  void get_operation(std::string, std::string, storage::store_reply<storage::operation_row>) override;
  void finish_operation(std::string id, std::string status, std::string error, std::int64_t,
                        storage::store_reply<bool> reply) override;
  void create_org(storage::org_row, storage::store_reply<storage::org_row>) override;
  void list_orgs(std::string, std::uint32_t, storage::store_reply<storage::page<storage::org_row>>) override;
  void get_org(std::string, storage::store_reply<storage::org_row>) override;
  void delete_org(std::string, std::int64_t, storage::store_reply<bool>) override;
  void create_user(storage::user_row, storage::store_reply<storage::user_row>) override;
  void list_users(std::string, std::string, std::uint32_t,
                  storage::store_reply<storage::page<storage::user_row>>) override;
  void delete_user(std::string, std::string, storage::store_reply<bool>) override;
  void create_key(storage::key_row, storage::store_reply<storage::key_row>) override;
  void list_keys(std::string, std::string, std::uint32_t, storage::store_reply<storage::page<storage::key_row>>) override;
  void delete_key(std::string, std::string, storage::store_reply<bool>) override;
  void find_key(std::string, storage::store_reply<storage::key_row>) override;
  void count_keys(storage::store_reply<std::uint64_t>) override;
  void incarnation(storage::store_reply<std::string> reply) override;
  void ping(storage::store_reply<bool> reply) override;
  void close() override {
  }

private:
  /// Runs the call now or when it is released, with what it fails with.
  void carry_out(const std::string& name, std::function<void(std::optional<storage::store_error>)> call);

  std::deque<std::function<void()>> held_;
};

/// How an operation behaves at a scripted agent.
enum class behaviour {
  answer,             // accepted, one piece of output if it has a stream, result
  run,                // accepted; ends when the test says so
  drop_before_ledger, // the connection breaks before anything happened
  drop_after_start,   // in the ledger and running, then the connection breaks
  drop_after_result,  // done, but the connection breaks before the result is out
  lose_result,        // in the ledger; the agent's run ends: unknown
  not_started,        // the instance vanishes before anything happened
  vanish,             // in the ledger and running; then the whole instance vanishes
};

/// One sandbox as its provider and its agent see it. Counts how often each operation was begun.
struct fake_instance {
  std::string environment_id;
  std::uint64_t generation = 0;
  std::int64_t created_at = 0;
  bool running = true;
  std::string process_id;
};

class fake_world;

class fake_channel final : public actors::agent_channel, public std::enable_shared_from_this<fake_channel> {
public:
  fake_channel(fake_world& world, std::string environment_id, std::int64_t created_at, actors::channel_events events)
      : world_(world), environment_id_(std::move(environment_id)), created_at_(created_at), events_(std::move(events)) {
  }
  void send_control(std::string json) override;
  std::uint32_t open_stream(std::shared_ptr<actors::stream_consumer> consumer) override;
  void close_stream(std::uint32_t stream) override;
  void grant(std::uint32_t, std::uint64_t, std::uint64_t) override {
  }
  void send_data(std::uint32_t, actors::shared_bytes, bool, std::function<void(bool)> done) override {
    done(open_);
  }
  void close(std::string reason) override;

  /// The connection breaks.
  void drop(const std::string& reason);
  void reply(std::string json);
  /// To the stream's consumer, if it has one.
  void data(std::uint32_t stream, std::uint64_t offset, const std::string& bytes, bool last);

  bool is_open() const {
    return open_;
  }
  const std::string& environment_id() const {
    return environment_id_;
  }
  std::int64_t created_at() const {
    return created_at_;
  }
  bool welcomed = false;
  std::uint64_t epoch = 0;

private:
  fake_world& world_;
  std::string environment_id_;
  std::int64_t created_at_;
  actors::channel_events events_;
  std::map<std::uint32_t, std::shared_ptr<actors::stream_consumer>> streams_;
  std::uint32_t last_stream_ = 0;
  bool open_ = true;
};

/// All sandboxes and their agents, and the provider that makes them.
class fake_world final : public actors::provider_backend {
public:
  fake_world() = default;

  // -- what a test sets
  /// What a call fails with, asked at each call: "create", "resume", "suspend", "destroy", "destroy_files", "open".
  std::function<std::optional<actors::provider_errc>(const std::string& call, const std::string& environment)> fails;
  /// How an operation behaves, asked when it arrives.
  std::function<behaviour(const std::string& op_id)> behaves;
  /// The agents say nothing.
  bool mute = false;
  /// They speak another version.
  std::uint32_t version = 1;
  /// Called before a provider's call does anything: where a crash is put.
  std::function<void(const std::string& call)> before_call;

  // -- what it sees
  std::map<std::string, fake_instance> instances; // by environment
  std::map<std::string, std::set<std::string>> files; // environment → file system ids
  std::set<std::string> forgotten;
  std::vector<std::string> calls;
  std::map<std::string, int> begun; // op_id → how often it was run
  std::vector<std::string> control; // kinds that agents got
  std::size_t connections = 0;
  std::uint64_t max_epoch_refused = 0;
  std::vector<std::string> broken; // what should never have been asked

  struct ledger_entry {
    std::string digest;
    std::string state; // "running", "done", "unknown"
    std::string environment_id;
    std::int64_t created_at = 0;
    std::string output;
  };
  std::map<std::string, ledger_entry> ledger; // outlives instances
  std::map<std::string, std::uint64_t> epochs; // highest seen, by environment

  // -- what a test does
  /// A running operation ends.
  void complete(const std::string& op_id);
  /// Output of a running operation, now.
  void print(const std::string& op_id, const std::string& bytes);
  /// The sandbox is gone; its connections break.
  void vanish(const std::string& environment_id);
  /// All connections of an environment break; the agent lives on.
  void drop_connections(const std::string& environment_id);
  std::size_t open_connections() const;
  std::size_t count(const std::string& call) const;
  actors::channel_factory channels();

  // -- provider_backend
  actors::provider_report report() const override;
  actors::provider_result<actors::created_instance> create(const actors::instance_spec& spec) override;
  actors::provider_result<void> resume(const std::string& handle) override;
  actors::provider_result<void> suspend(const std::string& handle, std::uint64_t generation) override;
  actors::provider_result<void> destroy(const std::string& environment_id, const std::string& handle,
                                        std::uint64_t generation) override;
  actors::provider_result<void> destroy_files(const std::string& environment_id,
                                              const std::string& file_system_id) override;
  actors::provider_result<void> forget(const std::string& environment_id) override;
  actors::provider_result<actors::instance_status> inspect(const std::string& handle) override;
  actors::provider_result<int> open(const std::string& handle) override;

  // -- the agents
  void on_control(fake_channel& channel, const std::string& text);

private:
  friend class fake_channel;

  struct attachment {
    std::weak_ptr<fake_channel> channel;
    std::uint32_t output = 0; // stream, 0: none
    std::uint64_t sent = 0;
  };

public:
  /// Instances, files and ledgers of another world, as they were when its server died: without its connections.
  void take_over(const fake_world& other);

private:
  std::optional<actors::provider_error> note(const std::string& call, const std::string& environment);
  fake_instance* find(const std::string& handle);
  void start(fake_channel& channel, const std::string& op_id, const std::string& operation, const std::string& digest,
             std::uint32_t output, bool durable);
  void attach(fake_channel& channel, const std::string& op_id, std::uint64_t from, std::uint32_t output);
  void accepted(fake_channel& channel, const std::string& op_id, bool attached);
  void result(fake_channel& channel, const std::string& op_id, const attachment& to);
  void pump(const std::string& op_id);

  // Descriptor → environment, created_at. Whoever holds the descriptor closes it.
  std::map<int, std::pair<std::string, std::int64_t>> sockets_;
  std::vector<std::weak_ptr<fake_channel>> channels_;
  std::map<std::string, std::vector<attachment>> attached_; // op_id →
  std::int64_t clock_ = 1000;
};

/// Collects one stream, and checks its order.
class fake_consumer final : public actors::stream_consumer {
public:
  std::string bytes;
  bool last = false;
  int closed = 0;
  bool out_of_order = false;

  void on_data(std::uint64_t offset, actors::shared_bytes data, bool, bool is_last) override {
    out_of_order |= offset != bytes.size();
    bytes.append(reinterpret_cast<const char*>(data.bytes.data()), data.bytes.size());
    last |= is_last;
  }
  void on_gap(std::uint64_t, std::uint64_t) override {
  }
  void on_closed() override {
    ++closed;
  }
};

class fake_observer final : public actors::operation_observer {
public:
  int accepted = 0;
  std::shared_ptr<actors::agent_channel> channel;
  std::vector<std::uint32_t> streams;
  void on_accepted(std::shared_ptr<actors::agent_channel> to, std::vector<std::uint32_t> ids,
                   const protocols::agent::op_accepted&) override {
    ++accepted;
    channel = std::move(to);
    streams = std::move(ids);
  }
};

} // namespace holt::tests
