#include "runtime/providers/process_identity.hpp"

#include <dirent.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <map>
#include <sstream>
#include <thread>

#include "runtime/providers/fd.hpp"

namespace holt::providers {

namespace {

std::optional<process_stat> read_stat(pid_t pid) {
  const auto text = read_file("/proc/" + std::to_string(pid) + "/stat", 4096);
  return text ? parse_process_stat(*text) : std::nullopt;
}

/// A descriptor of that very process, which stays right whatever becomes of the pid.
unique_fd pin(const process_identity& process) {
  unique_fd pinned(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (!pinned || !is_alive(process))
    return {};
  return pinned;
}

} // namespace

std::optional<process_stat> parse_process_stat(const std::string& text) {
  // The name stands in parentheses and may hold anything, parentheses too.
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos)
    return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  process_stat result;
  long long parent = 0;
  if (!(fields >> result.state >> parent))
    return std::nullopt;
  result.parent = static_cast<pid_t>(parent);
  std::string skipped;
  for (int field = 5; field < 22; ++field)
    fields >> skipped;
  if (!(fields >> result.start_time))
    return std::nullopt;
  return result;
}

std::optional<process_identity> identify(pid_t pid) {
  const auto stat = read_stat(pid);
  if (!stat)
    return std::nullopt;
  return process_identity{pid, stat->start_time};
}

bool is_alive(const process_identity& process) {
  if (process.pid <= 0)
    return false;
  const auto stat = read_stat(process.pid);
  return stat && stat->start_time == process.start_time && stat->state != 'Z' && stat->state != 'X';
}

std::string boot_id() {
  auto text = read_file("/proc/sys/kernel/random/boot_id", 64).value_or("");
  while (!text.empty() && text.back() == '\n')
    text.pop_back();
  return text;
}

std::vector<pid_t> descendants(pid_t pid) {
  std::multimap<pid_t, pid_t> children;
  if (DIR* proc = ::opendir("/proc")) {
    while (const dirent* entry = ::readdir(proc)) {
      const auto found = static_cast<pid_t>(std::atoi(entry->d_name));
      if (found <= 0)
        continue;
      if (const auto stat = read_stat(found))
        children.emplace(stat->parent, found);
    }
    ::closedir(proc);
  }
  std::vector<pid_t> found{pid};
  for (std::size_t at = 0; at < found.size(); ++at) {
    const auto [first, last] = children.equal_range(found[at]);
    for (auto child = first; child != last; ++child)
      found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

bool send_signal(const process_identity& process, int signal) {
  const unique_fd pinned = pin(process);
  if (!pinned)
    return true;
  return ::syscall(SYS_pidfd_send_signal, pinned.get(), signal, nullptr, 0) == 0 || errno == ESRCH;
}

bool wait_gone(const process_identity& process, std::chrono::steady_clock::time_point deadline) {
  const unique_fd pinned = pin(process);
  if (!pinned)
    return true;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd poll{pinned.get(), POLLIN, 0};
    const int ready = ::poll(&poll, 1, static_cast<int>(std::clamp<long long>(left, 0, 60'000)));
    if (ready > 0)
      return true;
    if (ready == 0 && left <= 0)
      return false;
  }
}

} // namespace holt::providers
