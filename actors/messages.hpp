#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/ec.hpp"
#include "actors/front.hpp"
#include "actors/interfaces.hpp"
#include "actors/logic/lifecycle.hpp"
#include "actors/logic/use_decision.hpp"
#include "actors/once.hpp"

/// What the messages of interfaces.hpp carry: small values, shared by pointer where they aren't.
namespace holt::actors {

struct use_call {
  std::shared_ptr<const use_request> request;
  std::shared_ptr<once<use_result>> reply;
};

/// What is asked of an environment's lifecycle; the sweeps ask too.
struct lifecycle_call {
  std::string environment_id;
  std::optional<std::string> org_id; // none: holt itself asks
  logic::purpose wanted = logic::purpose::use;
  /// Only if nothing runs in it: asked under the exclusive lease (spec 23).
  bool only_if_idle = false;
  /// Of only_if_idle: and nobody used it since this time (microseconds since 1970).
  std::int64_t unused_since = 0;
  std::string operation_id; // that a client polls; may be empty
  std::shared_ptr<once<lifecycle_result>> reply;
};

struct activity_call {
  std::string environment_id;
  std::shared_ptr<once<environment_activity>> reply;
};

/// An operation for the session, named by its lease's ticket.
struct session_use {
  lease_ticket ticket{};
  std::shared_ptr<const use_request> request;
};

struct session_opened {
  std::uint64_t session = 0; // number given by the environment
  protocols::agent::roots roots;
};

struct session_ended {
  std::uint64_t session = 0;
  /// instance_gone, files_lost, sandbox_unavailable, stopping, or none when it was asked to close.
  ec reason = ec::none;
  std::string detail; // for the log
};

/// Either the agent's own answer or how the attempt ended without one.
struct operation_end {
  std::optional<protocols::json::value> result;
  std::optional<protocols::agent::operation_error> error;
  std::vector<std::uint64_t> finals; // in the order of the request's incoming streams
  std::optional<logic::attempt_end> broken;
  bool may_have_run = true; // of broken
  ec refused = ec::none;    // by the session itself: busy, detached, stopping …
};

enum class provider_action : std::uint8_t { create, resume, suspend, destroy, destroy_files, forget, inspect, open };

struct provider_call {
  provider_action action = provider_action::inspect;
  std::string environment_id;
  std::string handle;
  std::string file_system_id;
  std::uint64_t generation = 0;
  instance_spec spec; // of create
  /// How long the asker waits; a later answer is logged, and not acted on.
  std::chrono::milliseconds timeout{30000};
};

/// A connected socket that closes itself unless somebody takes it.
class held_socket {
public:
  explicit held_socket(int socket) : socket_(socket) {
    // nop
  }
  held_socket(const held_socket&) = delete;
  held_socket& operator=(const held_socket&) = delete;
  ~held_socket();
  int take() {
    return std::exchange(socket_, -1);
  }

private:
  int socket_;
};

struct provider_answer {
  std::optional<provider_error> error;
  created_instance created;                         // of create
  instance_status status = instance_status::gone;   // of inspect
  std::shared_ptr<held_socket> socket;              // of open
};

struct provider_outcome {
  std::shared_ptr<provider_answer> answer;
};

struct blocking_job {
  std::shared_ptr<const std::function<void()>> run;
};

struct loaded_environment {
  std::shared_ptr<const storage::environment_record> record;
};

struct instance_write {
  storage::instance_row row;
  std::uint64_t expected_generation = 0;
};

struct seen_swap {
  std::string environment_id;
  std::string holder;
  std::string identity;
  std::int64_t expires_at = 0;
};

struct instance_query {
  std::vector<std::string> statuses;
  bool deleted_only = false;
  std::string cursor;
  std::uint32_t limit = 100;
};

struct instance_page {
  std::shared_ptr<const storage::page<storage::environment_record>> page;
};

struct finished_operation {
  std::string id;
  std::string status;
  std::string error;
  std::int64_t now = 0;
};

struct reports {
  std::vector<provider_report> items;
};

} // namespace holt::actors
