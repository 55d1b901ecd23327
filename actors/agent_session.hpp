#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <caf/actor_addr.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/context.hpp"
#include "actors/messages.hpp"
#include "actors/resumable_stream.hpp"

namespace holt::actors {

/// What a session needs to reach its agent.
struct session_target {
  std::string environment_id;
  std::string handle;
  std::string provider;
  /// Told to the environment with everything, so that it knows a former session's words.
  std::uint64_t number = 0;
  /// Of the first connection, where one was written with the row; later ones are asked of the store.
  std::optional<std::uint64_t> epoch;
};

struct agent_session_state {
  explicit agent_session_state(agent_session_actor::stateful_pointer<agent_session_state> self) : self(self) {
    // nop
  }
  ~agent_session_state();

  static constexpr const char* name = "agent_session";

  agent_session_actor::stateful_pointer<agent_session_state> self;

  std::shared_ptr<const peers> others;
  session_target target;
  /// Whom to tell; weak, since it holds this actor.
  caf::actor_addr environment;

  enum class phase : std::uint8_t {
    preparing,  // asks for epoch, incarnation and a socket
    greeting,   // challenge sent, hello awaited
    asking,     // reconnected: what became of the operations?
    open,
    waiting,    // for the next try to reconnect
    ended,
  };
  phase now_in = phase::preparing;

  /// Of the connection being made or in use. What an older one says is ignored.
  std::uint64_t connection = 0;
  std::shared_ptr<agent_channel> channel;
  std::string incarnation;
  std::uint64_t epoch = 0;
  std::string session_id; // given by the first welcome
  /// Of phase asking: what the ledger said so far, and the questions that are open.
  std::vector<protocols::agent::op_state> resumed_states;
  std::size_t open_queries = 0;
  bool was_open = false;
  logic::retry_budget retries;

  struct operation {
    lease_ticket ticket{};
    std::shared_ptr<const use_request> request;
    /// In the request's order; null for outgoing streams.
    std::vector<std::shared_ptr<resumable_stream>> consumers;
    /// Of the present connection, in the request's order; 0: none.
    std::vector<std::uint32_t> streams;
    /// Taken off for good (spec 43): not opened again on another connection.
    std::vector<bool> detached;
    std::string query_id; // of kind query
    bool sent = false;
    bool accepted = false;
    /// Sent as op.attach, by wish or after a reconnect.
    bool attached = false;
    /// Asked for while no connection was open: goes out behind the operation.
    bool cancelled = false;
  };
  /// In the order of sending: two with one op_id are answered in that order.
  std::list<operation> operations;

  std::uint64_t wake_generation = 0;

  // -- connection
  void prepare();
  void connect(std::uint64_t with_epoch);
  void greet(int socket);
  void on_hello(const protocols::json::value& message);
  void on_open();
  void on_closed(const std::string& reason);
  void retry_or_end(ec reason, const std::string& detail);
  void wake_in(std::chrono::milliseconds delay);
  void on_wake();

  // -- operations
  void use(const session_use& use);
  void send(operation& op);
  bool open_streams(operation& op);
  void close_streams(operation& op);
  void on_control(const std::string& text);
  void on_accepted(const protocols::agent::op_accepted& accepted);
  void on_result(protocols::agent::op_result result);
  void on_states(const protocols::agent::op_states& states);
  void resume_all();
  void resume(std::list<operation>::iterator op, const std::string& state);
  void finish(std::list<operation>::iterator op, operation_end end);
  void finish_broken(std::list<operation>::iterator op, logic::attempt_end end);
  void cancel(const std::string& op_id);
  void detach(const std::string& op_id, const std::vector<std::uint32_t>& streams);
  std::list<operation>::iterator find_for_result(const protocols::agent::op_result& result);

  // -- the end
  void close(ec code);
  void end(ec reason, const std::string& detail);
};

/// One per connected agent, spawned by its environment and gone with it. Reaches the agent through the provider, takes it
/// through the handshake, and carries operations. A dropped connection is made again a few times; what was under way is
/// then asked of the agent's ledger and taken up where it was (spec 56): a command is never sent twice unless the ledger
/// says that it was never begun.
agent_session_actor::behavior_type agent_session(agent_session_actor::stateful_pointer<agent_session_state> self,
                                                 std::shared_ptr<const peers> others, session_target target,
                                                 caf::actor_addr environment);

} // namespace holt::actors
