#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/providers/cgroups.hpp"
#include "runtime/providers/process_identity.hpp"

/// What is written down about a sandbox in its `run` directory, so that a restarted server adopts it or cleans it up
/// (spec 33). Valid for one boot of the machine, so it is never flushed. Pure.
namespace holt::providers {

struct instance_record {
  std::uint64_t generation = 0;
  std::int64_t created_at = 0; // microseconds since 1970
  std::string boot;
  /// False from before the launch until the agent listened: to be undone, not adopted.
  bool started = false;
  /// Stopped by signals, on a machine without a freezer.
  bool stopped = false;
  std::string file_system;
  std::string network = "none";
  process_identity agent;    // first process of the sandbox
  process_identity launcher; // bubblewrap outside
  std::vector<cgroup_place> cgroups;
};

std::string write_record(const instance_record& record);
/// Nothing when malformed.
std::optional<instance_record> read_record(const std::string& text);

/// The handle that names an instance to this provider: `{"environment":"env_x","generation":7}`.
struct instance_handle {
  std::string environment;
  std::uint64_t generation = 0;
};
std::string write_handle(const instance_handle& handle);
/// By value, whatever the order of its keys (spec 2).
std::optional<instance_handle> read_handle(const std::string& text);

/// Ids become names of directories and cgroups.
bool is_valid_name(const std::string& id);

} // namespace holt::providers
