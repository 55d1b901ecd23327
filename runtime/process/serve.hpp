#pragma once

#include <span>
#include <string>

namespace holt::runtime::process {

/// `holt serve …`: everything from settings to the staged stop. Returns the process's exit code.
int serve(std::span<const std::string> args);

/// `holt admin …`: work on a data directory that no server uses. `stop-instances` ends every sandbox; files stay.
int admin(std::span<const std::string> args);

} // namespace holt::runtime::process
