#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Which process a recorded pid was: a pid alone is used again by others. Any thread.
namespace holt::providers {

struct process_identity {
  pid_t pid = 0;
  /// Clock ticks since boot (field 22 of /proc/PID/stat).
  std::uint64_t start_time = 0;
  friend bool operator==(const process_identity&, const process_identity&) = default;
};

/// What /proc/PID/stat says, as far as it is needed here. Pure.
struct process_stat {
  char state = '?';
  pid_t parent = 0;
  std::uint64_t start_time = 0;
};
std::optional<process_stat> parse_process_stat(const std::string& text);

std::optional<process_identity> identify(pid_t pid);

/// That very process exists and is not a zombie.
bool is_alive(const process_identity& process);

/// Random id of this boot of the machine (spec 6a); empty when it can't be read.
std::string boot_id();

/// All descendants of a process, nearest first. Of a sandbox's first process: everything in the sandbox, since orphans
/// become its children.
std::vector<pid_t> descendants(pid_t pid);

/// Sends a signal to that very process. True when it was sent, or the process is gone already.
bool send_signal(const process_identity& process, int signal);

/// Waits for the end of that very process (of any parent). False at the deadline.
bool wait_gone(const process_identity& process, std::chrono::steady_clock::time_point deadline);

} // namespace holt::providers
