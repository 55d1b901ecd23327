#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "protocols/agent_messages.hpp"

/// What a provider of environments must be able to do (spec 32). Implemented in runtime/providers; called by the provider
/// actor on the blocking pool, several calls at once but never two for one environment.
namespace holt::actors {

/// Why a provider's call failed.
enum class provider_errc : std::uint8_t {
  /// The provider's own word that the instance doesn't exist any more (spec 22). Never a guess.
  gone,
  /// The kept files are not there.
  files_gone,
  /// Not reachable or not answering in time: nothing is known. Try again.
  unavailable,
  /// A limit, or something this machine can't give.
  refused,
  /// Named a generation, and found a younger one (spec 5).
  younger_generation,
  /// Anything else; `detail` is for operators.
  failed,
};

struct provider_error {
  provider_errc code = provider_errc::failed;
  std::string detail; // no secrets; may hold paths of the server: for the log, never for answers
};

template <class T>
using provider_result = tl::expected<T, provider_error>;

struct environment_limits {
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint64_t> processes;
  std::optional<double> cpus;
  std::optional<std::uint64_t> open_files;
  std::optional<std::uint64_t> file_size_bytes;
  std::optional<std::uint64_t> disk_bytes;
  friend bool operator==(const environment_limits&, const environment_limits&) = default;
};

/// What an instance is made from. The provider's resource name derives from environment_id (spec 5).
struct instance_spec {
  std::string environment_id;
  std::string file_system_id; // kept files; made empty when they don't exist and new_files is set
  bool new_files = false;     // false: the files must exist, else files_gone: never recreated silently (spec 16)
  std::uint64_t generation = 0;
  environment_limits limits;
  std::string network = "none"; // "none", "egress", "host"
  std::optional<std::string> image;
};

struct created_instance {
  std::string handle; // JSON object with sorted keys; names the instance to this provider
  std::int64_t created_at = 0; // microseconds since 1970; with the handle, the instance's identity (spec 2)
  protocols::agent::roots roots;
};

enum class instance_status : std::uint8_t { running, suspended, gone };

/// What the machine can isolate, for GET /v1/server.
struct provider_report {
  std::string name;
  bool available = true;
  std::vector<std::string> features; // "user_namespace", "seccomp", "memory_limit", …
  std::vector<std::string> missing;  // what this machine can't give, in words
};

/// All calls are idempotent and bounded in time by the implementation. Any thread.
class provider_backend {
public:
  virtual ~provider_backend() = default;

  virtual provider_report report() const = 0;
  /// Finds a half-made or running instance of this generation, or makes one; ends any of an older generation.
  virtual provider_result<created_instance> create(const instance_spec& spec) = 0;
  virtual provider_result<void> resume(const std::string& handle) = 0;
  /// Both refuse a younger generation (younger_generation); an instance that is gone already is success.
  virtual provider_result<void> suspend(const std::string& handle, std::uint64_t generation) = 0;
  virtual provider_result<void> destroy(const std::string& environment_id, const std::string& handle,
                                        std::uint64_t generation) = 0;
  virtual provider_result<void> destroy_files(const std::string& environment_id, const std::string& file_system_id) = 0;
  /// After the last destroy_files of a deleted environment: drops what else was kept for it (the agent's ledger and logs, its
  /// host uid). Not at a reset: the ids of its operations stay known.
  virtual provider_result<void> forget(const std::string& environment_id) {
    (void)environment_id;
    return {};
  }
  virtual provider_result<instance_status> inspect(const std::string& handle) = 0;
  /// A connected socket to the agent, owned by the caller.
  virtual provider_result<int> open(const std::string& handle) = 0;
};

} // namespace holt::actors
