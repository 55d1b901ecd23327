#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

#include "runtime/providers/fd.hpp"

/// Control groups of sandboxes: limits on memory, processes and cpu, and the freezer (spec 33). Knows version 2,
/// version 1, and machines that have some controllers in each. Blocking file calls; any thread, one environment by one
/// caller.
namespace holt::providers {

/// One line of /proc/self/mountinfo that mounts a cgroup hierarchy. Pure.
struct cgroup_mount {
  bool unified = false;                 // version 2
  std::string root;                     // which part of the hierarchy is mounted
  std::string point;                    // where
  std::vector<std::string> controllers; // of version 1
};
std::vector<cgroup_mount> parse_cgroup_mounts(std::string_view mountinfo);

/// The own group in the hierarchy of a controller ("" for version 2), from /proc/self/cgroup. Pure.
std::optional<std::string> parse_own_cgroup(std::string_view text, std::string_view controller);

/// A group made for one sandbox. Recorded with the instance, since a later server may itself run in another group.
struct cgroup_place {
  std::string kind; // "v2", or "v1:" and the controllers used there: "v1:memory"
  std::string path;
  friend bool operator==(const cgroup_place&, const cgroup_place&) = default;
};

struct cgroup_limits {
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint64_t> processes;
  std::optional<double> cpus;
};

struct cgroup_features {
  bool memory = false;
  bool processes = false;
  bool cpu = false;
  bool freezer = false;
};

class cgroups {
public:
  /// Looks for what this process may use, and makes the group `name` beneath its own one that all sandboxes go into.
  static cgroups detect(const std::string& name);
  /// None: everything that is asked for falls to rlimits and signals.
  static cgroups none() {
    return {};
  }

  const cgroup_features& features() const {
    return features_;
  }
  /// Why something is missing, in words for an operator.
  const std::vector<std::string>& notes() const {
    return notes_;
  }

  struct placed {
    std::vector<cgroup_place> places;
    /// Open files; a process that writes "0" into each has entered. Close-on-exec.
    std::vector<unique_fd> joins;
  };
  /// Where `create` would put that environment: known beforehand, so that it can be recorded first.
  std::vector<cgroup_place> places(const std::string& environment_id) const;
  tl::expected<placed, std::string> create(const std::string& environment_id, const cgroup_limits& limits) const;

  /// Takes the common group away when no sandbox is left in it; `create` makes it anew.
  void remove_if_empty() const;

private:
  struct base {
    std::string kind;
    std::string path;
  };
  std::vector<base> bases_;
  cgroup_features features_;
  std::vector<std::string> notes_;

  void detect_unified(const std::string& own, const std::string& name, bool only_freezer);
};

/// The following work on recorded places, whichever server made them.

/// Freezes or thaws; waits until it is so. False at the deadline or where no place has a freezer.
bool set_frozen(const std::vector<cgroup_place>& places, bool frozen, std::chrono::steady_clock::time_point deadline);
bool has_freezer(const std::vector<cgroup_place>& places);
bool is_frozen(const std::vector<cgroup_place>& places);
/// Kills whatever is in them, also when frozen, and waits until they are empty. False at the deadline.
bool kill_all(const std::vector<cgroup_place>& places, std::chrono::steady_clock::time_point deadline);
bool remove(const std::vector<cgroup_place>& places, std::chrono::steady_clock::time_point deadline);

} // namespace holt::providers
