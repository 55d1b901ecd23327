#pragma once

#include <string>
#include <vector>

#include "runtime/cli/api.hpp"

/// `holt shell`: a terminal in an environment, over a WebSocket.
namespace holt::runtime::cli {

struct shell_options {
  std::string environment;
  std::vector<std::string> argv; // instead of the environment's shell
};

/// The words as a line for a shell, each quoted. Pure.
std::string shell_line(const std::vector<std::string>& words);

/// Puts the terminal into raw mode and gives it back as it was. The shell's exit code, or a failure. A lost connection
/// is made again and goes on at the last position, for a minute. Main thread.
result<int> shell_in_environment(api& server, const shell_options& options);

} // namespace holt::runtime::cli
