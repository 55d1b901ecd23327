#pragma once

#include <filesystem>
#include <string>

#include <tl/expected.hpp>

/// The /etc that sandboxes see (spec 33): accounts of holt's own making, and copies of the few machine-wide files that
/// programs need to run at all. Nothing that could hold a secret of the machine. Blocking; any thread.
namespace holt::providers {

/// A name that changes when what would be built changes (packages installed, resolver changed). A few stat calls.
std::string etc_version(bool host_network);

/// Builds that version below `parent` when it isn't there yet and returns its directory. A finished one never changes.
tl::expected<std::filesystem::path, std::string> build_etc(const std::filesystem::path& parent, bool host_network);

} // namespace holt::providers
