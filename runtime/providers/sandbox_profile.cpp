#include "runtime/providers/sandbox_profile.hpp"

#include <system_error>

namespace holt::providers {

std::vector<std::string> bwrap_arguments(const sandbox_profile& profile) {
  std::vector<std::string> result;
  const auto add = [&](std::initializer_list<std::string> words) { result.insert(result.end(), words); };

  add({profile.bwrap, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup"});
  if (!profile.host_network)
    add({"--unshare-net"});
  add({"--uid", "1000", "--gid", "1000", "--cap-drop", "ALL", "--as-pid-1", "--hostname", "holt"});
  add({"--seccomp", std::to_string(profile.seccomp_fd), "--info-fd", std::to_string(profile.info_fd)});

  add({"--ro-bind", "/usr", "/usr"});
  for (const auto& directory : profile.system) {
    if (directory.link)
      add({"--symlink", *directory.link, directory.path});
    else
      add({"--ro-bind", directory.path, directory.path});
  }
  add({"--ro-bind", profile.etc.string(), "/etc"});
  add({"--proc", "/proc", "--dev", "/dev"});
  add({"--perms", "1777", "--size", std::to_string(profile.shm_bytes), "--tmpfs", "/dev/shm"});
  add({"--perms", "1777", "--size", std::to_string(profile.tmp_bytes), "--tmpfs", "/tmp"});
  add({"--perms", "0755", "--dir", "/run", "--perms", "0755", "--dir", "/run/holt", "--perms", "0755", "--dir",
       "/var"});
  add({"--symlink", "/tmp", "/var/tmp"});
  add({"--bind", profile.workspace.string(), "/workspace"});
  add({"--ro-bind", profile.skills.string(), "/skills"});
  add({"--ro-bind", profile.agent.string(), agent_path_inside});
  // bubblewrap's own root and /dev are memory that belongs to the sandbox's user: closed once everything is mounted.
  add({"--remount-ro", "/dev", "--remount-ro", "/"});
  add({"--chdir", "/workspace", "--", agent_path_inside});
  result.insert(result.end(), profile.arguments.begin(), profile.arguments.end());
  return result;
}

std::vector<std::string> sandbox_environment() {
  return {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
          "HOME=/workspace",
          "USER=holt",
          "LOGNAME=holt",
          "SHELL=/bin/sh",
          "LANG=C.UTF-8",
          "TMPDIR=/tmp"};
}

std::vector<system_directory> find_system_directories() {
  namespace fs = std::filesystem;
  std::vector<system_directory> result;
  for (const char* path : {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}) {
    std::error_code error;
    const auto status = fs::symlink_status(path, error);
    if (fs::is_symlink(status))
      result.push_back({path, fs::read_symlink(path, error).string()});
    else if (fs::is_directory(status))
      result.push_back({path, std::nullopt});
  }
  return result;
}

} // namespace holt::providers
