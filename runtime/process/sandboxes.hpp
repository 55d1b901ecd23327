#pragma once

#include <memory>
#include <string>

#include <tl/expected.hpp>

#include "actors/provider_backend.hpp"
#include "runtime/process/settings.hpp"

namespace holt::runtime::process {

/// The provider of cloud environments as the settings name it, with the programs that this binary carries installed. Blocks.
tl::expected<std::shared_ptr<actors::provider_backend>, std::string> open_sandboxes(const settings& settings,
                                                                                   const std::string& data_dir);

} // namespace holt::runtime::process
