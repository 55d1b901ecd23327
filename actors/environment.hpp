#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <caf/actor_addr.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/context.hpp"
#include "actors/logic/lifecycle.hpp"
#include "actors/messages.hpp"

namespace holt::actors {

struct environment_state {
  using pointer = environment_actor::stateful_pointer<environment_state>;
  using clock = std::chrono::nanoseconds; // of the actor system's clock

  explicit environment_state(pointer self) : self(self) {
    // nop
  }

  static constexpr const char* name = "environment";

  pointer self;
  std::shared_ptr<const peers> others;
  std::string id;
  lease_actor lease;
  caf::actor_addr supervisor;

  // -- the row

  /// As last read or written. Empty until the first load.
  std::optional<storage::environment_record> record;
  /// Nobody else can have written it since (spec 10, context::sole_writer).
  bool record_is_fresh = false;
  /// A load for uses is under way.
  bool loading = false;
  /// The instance that was found gone (spec 12).
  std::optional<logic::instance_identity> found_gone;
  protocols::agent::roots roots; // of the instance
  /// Written with the row, for the next session.
  std::optional<std::uint64_t> reserved_epoch;
  /// The environment was removed while this actor lived: nothing of it may come back.
  bool removed = false;

  // -- uses

  enum class phase : std::uint8_t {
    loading,    // for the row
    waiting,    // for its lease
    blocked,    // for the instance, without a lease
    connecting, // for the session
    running,    // the session has it
    seen,       // has its result, waits for the seen record
  };

  struct use {
    use_call call;
    phase now_in = phase::loading;
    bool leased = false;
    clock deadline{0}; // of phase waiting
    std::uint32_t times_gone = 0;
    std::uint32_t times_blocked = 0;
    std::uint64_t session = 0; // that was given it
    bool restarted = false;
    bool asks_seen = false;
    std::optional<use_result> result; // of phase seen
  };
  /// By lease ticket, random.
  std::unordered_map<lease_ticket, use> uses;

  // -- the session

  std::optional<agent_session_actor> session;
  std::uint64_t session_number = 0;
  bool session_open = false;

  // -- lifecycle: one work at a time, under the exclusive lease

  struct work {
    lifecycle_call wish;
    bool for_uses = false; // begun by uses that are blocked
    lease_ticket ticket{};
    bool leased = false;
    clock deadline{0}; // for the lease
    /// The row's intermediate state was written by this work.
    bool owned = false;
    bool reloaded_after_fence = false;
    /// Running processes (spec 23): whether they are being asked for, and were.
    bool checking = false;
    bool is_checked = false;
    /// Answers to another work's requests don't concern this one.
    std::uint64_t number = 0;
  };
  std::optional<work> current;
  std::deque<lifecycle_call> waiting_changes;
  std::uint64_t last_work = 0;
  logic::rate_budget rebuilds{defaults::rebuild_burst, defaults::rebuild_interval};

  // -- the seen record (spec 18)

  struct seen_entry {
    std::string identity;
    clock asked_at{0};
  };
  std::unordered_map<std::string, seen_entry> seen;

  // -- time

  clock last_used{0};
  std::int64_t last_used_at = 0; // microseconds since 1970: truer than the row, which is written now and then
  std::optional<clock> touched_at;
  std::optional<clock> armed;
  std::uint64_t wake_generation = 0;
  /// Messages taken from the supervisor, so that it knows whether one is under way when this actor asks to go.
  std::uint64_t taken = 0;

  clock now() const;
  logic::lifecycle_facts facts() const;
  const context& shared() const {
    return *others->shared;
  }
  const std::optional<storage::instance_row>& row() const;

  // -- uses (environment.cpp)
  void on_use(use_call call);
  void load_for_uses();
  void on_loaded(std::shared_ptr<const storage::environment_record> loaded);
  void on_load_failed(ec code);
  void admit(lease_ticket ticket);
  void acquire(lease_ticket ticket, use& use);
  void on_granted(lease_ticket ticket);
  void on_refused(lease_ticket ticket, ec code);
  void proceed(lease_ticket ticket);
  void block(lease_ticket ticket);
  void start(lease_ticket ticket);
  void on_result(lease_ticket ticket, operation_end end);
  void after_broken(lease_ticket ticket, const operation_end& end);
  void on_accepted(lease_ticket ticket);
  void answer(lease_ticket ticket, use_result result);
  void answer_all_in(phase which, ec code);
  void finish(lease_ticket ticket);
  void release(lease_ticket ticket, use& use);
  void ask_seen(lease_ticket ticket, use& use);
  void on_seen(lease_ticket ticket, const std::string& former, const std::string& identity, bool counts);
  void cancel(const std::string& op_id);
  void detach(const std::string& op_id, const std::vector<std::uint32_t>& streams);
  void tell_activity(const activity_call& call);
  bool may_see(const std::optional<std::string>& org_id) const;
  void touch(bool at_once);

  // -- session (environment.cpp)
  void open_session();
  void close_session(ec code);
  void on_opened(const session_opened& opened);
  void on_ended(const session_ended& ended);
  void instance_is_gone();
  void record_files_lost();

  // -- lifecycle (environment_lifecycle.cpp)
  void on_change(lifecycle_call call);
  void ensure_running();
  void begin(lifecycle_call wish, bool for_uses);
  void begin_next();
  void on_exclusive();
  void load_for_work();
  void on_loaded_for_work(const storage::environment_record& loaded);
  bool is_in_use() const;
  void step();
  void carry_out(logic::next_step next);
  void write(storage::instance_row row);
  void on_written(const storage::instance_row& written);
  void purge();
  void call_provider(logic::step_kind kind);
  void check_activity();
  void on_activity(const operation_end& end);
  void end_work(ec code);
  void note_failed_removal(ec code);

  // -- time (environment.cpp)
  void arm();
  void wake_at(clock at);
  void on_wake();
  void ask_to_go();
  void stop(ec code);
};

/// One environment in use on this replica: the row as read, the session, the uses in flight. Serialises what changes the
/// instance through its lease, and answers each use exactly once. Spawned and watched by the environment supervisor, and
/// gone when nobody used it for a while: nothing lies here that the rows and the agent's ledger don't tell.
environment_actor::behavior_type environment(environment_state::pointer self, std::shared_ptr<const peers> others,
                                             std::string id, lease_actor lease, caf::actor_addr supervisor);

} // namespace holt::actors
