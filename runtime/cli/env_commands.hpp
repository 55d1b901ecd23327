#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "runtime/cli/api.hpp"

/// `holt env …`: environments, and the files in them. Each writes to stdout: a table or lines for people, with `json`
/// the API's own answer in one line.
namespace holt::runtime::cli {

struct create_options {
  std::optional<std::string> name;
  std::optional<std::string> kind;
  std::optional<std::string> image;
  std::optional<std::string> network;
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint64_t> disk_bytes;
  std::optional<std::uint64_t> processes;
  std::optional<double> cpus;
  std::optional<std::uint64_t> suspend_after_ms;
  std::optional<std::uint64_t> destroy_after_ms;
  std::map<std::string, std::string> labels;
};

result<int> create_environment(api& server, const create_options& options, bool json);
result<int> list_environments(api& server, const std::map<std::string, std::string>& labels, bool json);
result<int> show_environment(api& server, const std::string& environment, bool json);
/// Waits until files and rows are gone, unless told not to.
result<int> delete_environment(api& server, const std::string& environment, bool wait, bool json);
/// `action`: "suspend", "resume", "reset".
result<int> change_environment(api& server, const std::string& environment, const std::string& action, bool json);

/// `place`: ENV:/path, ENV:path below the workspace, or ENV alone for the workspace.
result<int> list_files(api& server, const std::string& place, bool details, bool json);
result<int> print_files(api& server, const std::vector<std::string>& places);
result<int> remove_files(api& server, const std::vector<std::string>& places, bool recursive, bool json);

} // namespace holt::runtime::cli
