#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tl/expected.hpp>

/// Everything that `holt serve` can be told, from a file, the environment and flags (spec 97, 98). Each key is declared once,
/// in settings.cpp: type, default, bounds, unit, documentation, flag, environment variable and the page docs/configuration.md
/// come from there.
namespace holt::runtime::process {

struct settings {
  std::string listen = "127.0.0.1:7117";
  std::string data_dir;
  std::vector<std::string> roles{"all"};
  std::uint32_t threads = 0;

  std::vector<std::string> allowed_hosts;
  std::vector<std::string> trusted_origins;

  std::string log_level = "info";
  std::string log_format = "json";

  std::uint64_t max_connections = 10000;
  std::uint64_t max_header_bytes = 16 * 1024;
  std::uint64_t max_body_bytes = 1024 * 1024;
  std::uint64_t max_file_bytes = 16ull * 1024 * 1024 * 1024;
  std::uint32_t max_json_depth = 32;
  std::uint64_t header_timeout_ms = 10'000;
  std::uint64_t idle_timeout_ms = 75'000;
  std::uint64_t api_per_second = 0;

  std::string sandbox_provider = "bubblewrap";
  std::uint32_t max_concurrent_commands = 8;
  std::uint32_t max_waiting = 256;
  std::uint64_t memory_bytes = 2ull * 1024 * 1024 * 1024;
  std::uint64_t processes = 512;
  double cpus = 0;
  std::uint64_t open_files = 4096;
  std::uint64_t file_size_bytes = 0;
  std::uint64_t tmp_bytes = 512ull * 1024 * 1024;
  std::uint64_t suspend_after_ms = 30ull * 60 * 1000;
  std::uint64_t destroy_after_ms = 7ull * 24 * 60 * 60 * 1000;
  std::uint64_t passivate_after_ms = 2ull * 60 * 1000;
  std::uint64_t create_timeout_ms = 30'000;
  std::vector<std::string> require;
  std::uint32_t prepared = 0;
  std::uint32_t uid_first = 700'000;
  std::uint32_t uid_count = 100'000;

  std::uint64_t lease_wait_ms = 30'000;
  std::uint64_t shutdown_grace_ms = 3'000;
};

/// What `parse` ended with instead of settings: help or documentation asked for (status 0), or a mistake (64).
struct parse_end {
  int status = 0;
  std::string text; // for stdout when status is 0, else one line for stderr
};

/// `args` without the program's name and "serve". Reads the file named by --config (TOML) and HOLT_… variables; a flag wins over
/// a variable, a variable over the file. Unknown keys are refused with the nearest name.
tl::expected<settings, parse_end> parse_settings(std::span<const std::string> args);

/// The page docs/configuration.md.
std::string settings_page();

} // namespace holt::runtime::process
