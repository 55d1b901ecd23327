#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "actors/front.hpp"

/// The process's actor system: made by main, holds all supervisors, stops in stages (spec 100). No CAF in this header.
namespace holt::actors {

struct node_settings {
  std::uint32_t threads = 0;        // of the actor scheduler; 0 = cores
  std::uint32_t blocking_threads = 4; // the fixed pool for providers
  std::uint32_t max_concurrent_commands = 8;   // sandbox.max_concurrent_commands (spec 7)
  std::uint32_t max_waiting = 256;             // queue of one environment
  std::chrono::milliseconds lease_wait{30000}; // lease.wait_ms
  std::chrono::milliseconds suspend_after{std::chrono::minutes{30}}; // 0: never
  std::chrono::milliseconds destroy_after{std::chrono::hours{24 * 7}};
  std::chrono::milliseconds passivate_after{std::chrono::minutes{2}}; // an environment not in use has no actor
  std::chrono::milliseconds create_timeout{std::chrono::seconds{30}};
  std::string cloud_provider = "bubblewrap";
  std::string issuer;  // of the challenge
  std::string host_id; // of this replica
  std::string boot_id; // of this machine's run
};

struct node_parts {
  std::shared_ptr<storage::store> store;
  std::map<std::string, std::shared_ptr<provider_backend>> providers;
  channel_factory open_channel;
  /// One line of structured log: level ("info", "warn", "error"), event, fields as JSON text. Any thread.
  std::function<void(const char* level, const char* event, std::string fields)> log;
};

class node {
public:
  virtual ~node() = default;
  virtual front& edge() = 0;
  /// Staged: no new uses → running ones finish or fail within `grace` → schedule → supervisors → sessions closed (sandboxes
  /// live on) → actor system. Blocks; `stage` is told each stage as it begins, for the watchdog.
  virtual void stop(std::chrono::milliseconds grace, const std::function<void(const char* stage)>& stage) = 0;
};

/// Starts the actors. Adoption of instances that outlived the last run happens at first use, and half-done lifecycle work
/// that rows tell of (spec 6) is finished or undone in the background.
std::unique_ptr<node> start_node(node_settings settings, node_parts parts);

} // namespace holt::actors
