#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <tl/expected.hpp>

/// The static programs that this binary carries: `holt-agent` and `holt-launch` (spec 96).
namespace holt::providers {

struct installed_programs {
  std::filesystem::path agent;
  std::filesystem::path launcher;
};

/// The bytes of an embedded program.
std::string_view embedded_agent();
std::string_view embedded_launcher();

/// Writes both below `data_dir`/bin/HASH/ when they aren't there, each in one step: sandboxes of an older server keep
/// the program they were started with. Call once at start; blocking.
tl::expected<installed_programs, std::string> install_embedded_programs(const std::filesystem::path& data_dir);

} // namespace holt::providers
