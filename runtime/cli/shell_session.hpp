#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/cli/settings.hpp"

/// One WebSocket connection of a terminal (api.md: GET …/terminal). Beast stays in the .cpp. Main thread.
///
/// Binary messages are the terminal's bytes both ways; text messages are JSON: {"resize": …} from here, {"started": …},
/// {"gap": …}, {"exit": …} and {"error": …} from there.
namespace holt::runtime::cli {

/// What is kept from one connection to the next.
struct shell_state {
  std::string op_id;
  std::uint64_t position = 0; // bytes of output written here so far
  bool started = false;
  std::optional<int> exit_status;    // the shell has ended
  std::optional<std::string> signal; // by this one
};

/// Connects, and carries bytes between descriptors 0 and 1 and the terminal until it ends. `target` holds path and
/// query. A success has an exit_status. exit_unavailable: the connection was lost, try again.
result<void> run_shell_session(const server_access& access, const std::string& target, shell_state& state);

} // namespace holt::runtime::cli
