#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

namespace holt::agent {

/// What a new process is made of. Descriptors are the caller's; the child gets duplicates of in, out and err and no other.
struct spawn_plan {
  std::vector<std::string> argv; // not empty
  std::vector<std::string> env;  // "NAME=value"
  std::string search_path;       // of argv[0] without a slash
  int cwd = -1;                  // a directory
  int in = -1;
  int out = -1;
  int err = -1;
  /// `in` is a terminal, to be the controlling one.
  bool terminal = false;
  /// The shell that runs a text file without an interpreter line, as execvp does.
  const char* shell = "/bin/sh";
};

struct spawn_result {
  pid_t pid = -1;
  int error = 0; // errno of clone when pid is -1
};

/// Starts a process in a session of its own, with default signals, an oom_score_adj of 1000 and nothing inherited but
/// its three descriptors. A program that can't be run is a process all the same: it says so on its stderr in the shell's
/// words and exits with 127 (not found) or 126 (not executable) (spec 37).
///
/// By clone(CLONE_VM | CLONE_VFORK) on a stack of its own: the caller sleeps until the exec, no memory is copied, and
/// the child neither allocates nor locks. Main thread only.
spawn_result spawn(const spawn_plan& plan);

} // namespace holt::agent
