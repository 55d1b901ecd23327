#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/provider_backend.hpp"
#include "actors/use.hpp"
#include "storage/store.hpp"

/// The door from the edge (HTTP, MCP, command line) into the actors, without CAF in its header.
namespace holt::actors {

enum class lifecycle_action : std::uint8_t {
  suspend,
  resume, // also creates, when there is no instance
  reset,  // destroys instance and files; the next use starts with new files (spec 16, 17)
  remove, // the row is marked deleted already: instance, files, rows (spec 25, 27); finishes the operation row
};

struct lifecycle_request {
  std::string org_id;
  std::string environment_id;
  lifecycle_action action = lifecycle_action::resume;
  std::string operation_id; // of remove
};

struct lifecycle_result {
  std::optional<use_error> error;
  std::optional<storage::environment_record> record; // as it is now
};

/// What runs in one environment now, as this replica knows it.
struct environment_activity {
  std::uint32_t uses = 0;    // in flight
  std::uint32_t waiting = 0; // for a lease
  std::vector<std::string> holders;
  bool connected = false; // an agent session is open
};

/// Every method: any thread, never blocks, and answers exactly once through its reply (on a thread of the actor system:
/// post it on). After the stop began: error server.stopping.
class front {
public:
  virtual ~front() = default;
  virtual void use(std::shared_ptr<const use_request> request, use_reply reply) = 0;
  /// Ends the operation (a process: its whole tree); the use itself answers.
  virtual void cancel(const std::string& environment_id, const std::string& op_id) = 0;
  /// The client left: takes these streams off the operation, which goes on detached (spec 43). The use is answered with
  /// its result when that comes, or with operation.detached if `abandon` is set.
  virtual void detach(const std::string& environment_id, const std::string& op_id, std::vector<std::uint32_t> streams) = 0;
  virtual void lifecycle(lifecycle_request request, std::function<void(lifecycle_result)> reply) = 0;
  virtual void activity(const std::string& environment_id, std::function<void(environment_activity)> reply) = 0;
  virtual void providers(std::function<void(std::vector<provider_report>)> reply) = 0;
};

} // namespace holt::actors
