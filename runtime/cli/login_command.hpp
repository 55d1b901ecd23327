#pragma once

#include "runtime/cli/settings.hpp"

/// `holt login`: asks for a server and a key, tries them, and keeps them for later commands.
namespace holt::runtime::cli {

/// Options and variables answer in place of the person. Nothing is kept unless the server takes the key.
result<int> log_in(const server_options& options, bool json);

} // namespace holt::runtime::cli
