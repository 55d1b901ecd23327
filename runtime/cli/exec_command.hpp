#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cli/api.hpp"

/// `holt exec`: runs a command in an environment as if it ran here (spec 38, 39, 43, 44).
///
/// Output comes out as it arrives, byte for byte. A lost connection is made again and goes on at the last position; by
/// its op_id the command is never run a second time. Ctrl-C goes to the command, a second one stops its whole tree.
namespace holt::runtime::cli {

struct exec_options {
  std::string environment; // name or id
  std::vector<std::string> argv;
  std::optional<std::string> command; // instead of argv, for the shell
  std::optional<std::string> cwd;
  std::map<std::string, std::string> env;
  std::optional<std::uint64_t> timeout_ms;
  std::optional<std::string> op_id;
  bool interactive = false; // pass stdin on although it is a terminal
  bool no_stdin = false;
  bool json = false; // one object at the end, instead of the output as it comes
};

/// The exit code for the process: the command's own, or a failure. Uses descriptors 0, 1 and 2. Call from the main
/// thread before any other thread exists: it blocks SIGINT and SIGTERM.
result<int> exec_in_environment(api& server, const exec_options& options);

} // namespace holt::runtime::cli
