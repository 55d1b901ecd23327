#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <sys/types.h>

namespace holt::agent {

/// One line of /proc, as far as trees need it.
struct process_entry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  bool zombie = false;
  std::uint64_t started = 0; // ticks of 10 ms since boot
};

/// The contents of /proc/PID/stat. Pure; the name in it may hold anything.
std::optional<process_entry> parse_stat(std::string_view text);

/// By which signs a process belongs to a command (spec 41).
struct tree_signs {
  /// "HOLT_OP=<op_id>" in its environment.
  std::string cookie;
  /// The leader, while it isn't reaped: its descendants belong.
  pid_t leader = 0;
  /// Processes that were once seen to belong: theirs do, too.
  std::unordered_set<pid_t> seen;
  /// The session and group that the leader made; 0 when their number may belong to another by now.
  pid_t session = 0;
  /// What started before the leader did isn't asked for its environment: on a person's machine that is nearly everything.
  std::uint64_t since = 0;
};

/// Now, as process_entry::started counts; a little early rather than late.
std::uint64_t ticks_now();

/// Whose members are those of the signs, given every process: closes over parents, sessions and groups. Pure.
/// `has_cookie` is asked only for those that no other sign names.
std::vector<pid_t> members(const std::vector<process_entry>& all, const tree_signs& signs, pid_t self,
                           const std::function<bool(pid_t)>& has_cookie);

/// Living processes of the command, from /proc. `proc` is a descriptor of /proc. Main thread.
std::vector<pid_t> find_members(int proc, const tree_signs& signs);

} // namespace holt::agent
