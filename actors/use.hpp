#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/channel.hpp"
#include "protocols/agent_messages.hpp"

/// One use of an environment (spec 14): what is asked, and how the answer comes back to the edge.
namespace holt::actors {

/// The edge's side of a running operation. Implemented by runtime/http. Called from any thread; must not block.
class operation_observer {
public:
  virtual ~operation_observer() = default;
  /// The agent accepted (it is in the ledger). `streams` are the ids opened for use_request::streams, in that order.
  /// From now on data flows to the consumers, and outgoing streams may be written through `channel`.
  /// Called again when the operation was taken up over another connection: with its channel and ids, `attached` set;
  /// consumers go on where they were.
  virtual void on_accepted(std::shared_ptr<agent_channel> channel, std::vector<std::uint32_t> streams,
                           const protocols::agent::op_accepted& accepted) = 0;
};

/// One stream that the use wants. An incoming one has a consumer, an outgoing one has none.
struct use_stream {
  std::string name; // "output", "stdin", "body"
  std::shared_ptr<stream_consumer> consumer;
};

enum class use_kind : std::uint8_t {
  start,  // op.start
  attach, // op.attach to `op_id`
  query,  // op.query of `op_id`: result is an op_state
};

struct use_request {
  std::string org_id;
  std::string environment_id;
  std::string holder; // conversation or client; empty: none (no seen record, spec 18)
  use_kind kind = use_kind::start;
  /// Only on a running instance: never creates or resumes (spec 19); else error environment.not_running.
  bool if_running = false;
  /// Takes one of the counted shared leases (spec 7): process starts. Others use the environment without being counted.
  bool counted = false;
  /// Holds its lease only until op.accepted (background processes, terminals).
  bool releases_when_accepted = false;
  /// May be run again though it may have run before: reads.
  bool safe_to_repeat = false;
  /// The op_id came from the caller: durable ledger.
  bool caller_chose_id = false;

  std::string op_id;
  std::string operation;
  protocols::json::value arguments;
  std::string digest;
  std::uint64_t attach_from = 0;
  bool attach_follow = true;

  std::vector<use_stream> streams;
  std::shared_ptr<operation_observer> observer; // may be null
};

/// An error of the API: `code` of protocols/problem.hpp.
struct use_error {
  std::string code;
  std::string message;
  std::optional<protocols::json::value> details;
  std::optional<std::chrono::milliseconds> retry_after;
};

struct use_result {
  /// Either of the two. A process's result is a process_state.
  std::optional<protocols::json::value> result;
  std::optional<use_error> error;
  std::vector<std::uint64_t> finals; // last position of each incoming stream, in the request's order
  bool restarted = false;            // spec 18
  std::optional<protocols::agent::roots> roots;
};

/// The one-shot way back from actors to the edge: runs on the edge's executor, exactly once, also when the actor dies
/// (then with server.stopping).
using use_reply = std::function<void(use_result)>;

} // namespace holt::actors
