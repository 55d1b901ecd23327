#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// What a bubblewrap sandbox consists of, as an argument list. Pure.
namespace holt::providers {

/// A top directory of the machine that is a link into /usr (bin → usr/bin), or a directory that must be shown itself.
struct system_directory {
  std::string path;
  std::optional<std::string> link;
};

struct sandbox_profile {
  std::string bwrap;
  std::vector<system_directory> system;
  std::filesystem::path etc;
  std::filesystem::path workspace;
  std::filesystem::path skills;
  std::filesystem::path agent; // the program, as seen from the machine
  std::uint64_t tmp_bytes = 0;
  std::uint64_t shm_bytes = 0;
  bool host_network = false;
  int seccomp_fd = -1;
  int info_fd = -1;
  std::vector<std::string> arguments; // of the agent
};

/// Where the agent's program stands inside.
inline constexpr const char* agent_path_inside = "/run/holt/agent";

std::vector<std::string> bwrap_arguments(const sandbox_profile& profile);

/// The whole environment that the agent starts with: nothing of the server's.
std::vector<std::string> sandbox_environment();

/// /bin, /lib, … as this machine has them. Reads the file system.
std::vector<system_directory> find_system_directories();

} // namespace holt::providers
