#include "runtime/providers/cgroups.hpp"

#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <thread>

namespace holt::providers {

namespace {

using steady = std::chrono::steady_clock;

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::string part;
  std::istringstream stream{std::string(text)};
  while (std::getline(stream, part, separator)) {
    if (!part.empty())
      parts.push_back(part);
  }
  return parts;
}

/// mountinfo writes space, tab, newline and backslash as octal.
std::string unescape(const std::string& text) {
  std::string result;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\' && at + 3 < text.size()) {
      result += static_cast<char>(std::stoi(text.substr(at + 1, 3), nullptr, 8));
      at += 3;
    } else {
      result += text[at];
    }
  }
  return result;
}

bool contains(const std::string& text, std::string_view word) {
  const auto words = split(text, ' ');
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string read_line(const std::string& path) {
  auto text = read_file(path).value_or("");
  while (!text.empty() && text.back() == '\n')
    text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

bool is_directory(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

/// The directory of the own group in a mounted hierarchy.
std::string own_directory(const cgroup_mount& mount, const std::string& group) {
  std::string below = group;
  if (mount.root != "/" && below.compare(0, mount.root.size(), mount.root) == 0)
    below.erase(0, mount.root.size());
  auto path = mount.point + (below == "/" ? "" : below);
  return is_directory(path) ? path : mount.point;
}

/// Makes the group and finds out whether processes may be put into it.
bool usable(const std::string& path, const char* join_file) {
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST)
    return false;
  return ::access((path + "/" + join_file).c_str(), W_OK) == 0 && ::access(path.c_str(), W_OK) == 0;
}

// `tasks` takes the one thread of the launcher without the global lock that cgroup.procs takes.
const char* join_file(const std::string& kind) {
  return kind == "v2" ? "cgroup.procs" : "tasks";
}

bool is_v1(const cgroup_place& place, std::string_view controller) {
  return place.kind == "v1:" + std::string(controller);
}

constexpr std::chrono::microseconds first_pause{200};
constexpr std::chrono::microseconds longest_pause{20'000};

template <class Done>
bool wait_until(steady::time_point deadline, Done done) {
  for (auto pause = first_pause;; pause = std::min(pause * 2, longest_pause)) {
    if (done())
      return true;
    if (steady::now() >= deadline)
      return false;
    std::this_thread::sleep_for(pause);
  }
}

bool thaw_v1(const cgroup_place& place) {
  return write_existing(place.path + "/freezer.state", "THAWED");
}

} // namespace

std::vector<cgroup_mount> parse_cgroup_mounts(std::string_view mountinfo) {
  std::vector<cgroup_mount> mounts;
  for (const auto& line : split(mountinfo, '\n')) {
    const auto separator = line.find(" - ");
    if (separator == std::string::npos)
      continue;
    const auto before = split(line.substr(0, separator), ' ');
    const auto after = split(line.substr(separator + 3), ' ');
    if (before.size() < 5 || after.size() < 3 || (after[0] != "cgroup" && after[0] != "cgroup2"))
      continue;
    cgroup_mount mount;
    mount.unified = after[0] == "cgroup2";
    mount.root = unescape(before[3]);
    mount.point = unescape(before[4]);
    if (!mount.unified)
      mount.controllers = split(after[2], ',');
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

std::optional<std::string> parse_own_cgroup(std::string_view text, std::string_view controller) {
  for (const auto& line : split(text, '\n')) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos)
      continue;
    const auto names = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? !names.empty() : false)
      continue;
    const auto list = split(names, ',');
    if (controller.empty() || std::find(list.begin(), list.end(), controller) != list.end())
      return line.substr(second + 1);
  }
  return std::nullopt;
}

cgroups cgroups::detect(const std::string& name) {
  cgroups result;
  const auto mounts = parse_cgroup_mounts(read_file("/proc/self/mountinfo", 4 * 1024 * 1024).value_or(""));
  const auto own = read_file("/proc/self/cgroup").value_or("");

  std::string unified;
  for (const auto& mount : mounts) {
    if (mount.unified) {
      if (const auto group = parse_own_cgroup(own, ""))
        unified = own_directory(mount, *group);
    }
  }
  const bool unified_limits = !unified.empty() && contains(read_line(unified + "/cgroup.controllers"), "memory");
  if (unified_limits)
    result.detect_unified(unified, name, false);

  const std::pair<const char*, bool cgroup_features::*> wanted[] = {{"memory", &cgroup_features::memory},
                                                                    {"pids", &cgroup_features::processes},
                                                                    {"cpu", &cgroup_features::cpu},
                                                                    {"freezer", &cgroup_features::freezer}};
  for (const auto& [controller, feature] : wanted) {
    if (result.features_.*feature)
      continue;
    bool mounted = false;
    for (const auto& mount : mounts) {
      if (mount.unified
          || std::find(mount.controllers.begin(), mount.controllers.end(), controller) == mount.controllers.end())
        continue;
      mounted = true;
      const auto group = parse_own_cgroup(own, controller);
      const auto path = own_directory(mount, group.value_or("/")) + "/" + name;
      if (!usable(path, "tasks"))
        continue;
      result.bases_.push_back({"v1:" + std::string(controller), path});
      result.features_.*feature = true;
      break;
    }
    if (!(result.features_.*feature) && mounted)
      result.notes_.push_back("the cgroup controller " + std::string(controller)
                              + " is there, but not writable for this user");
  }
  if (!result.features_.freezer && !unified.empty() && !unified_limits)
    result.detect_unified(unified, name, true);
  return result;
}

void cgroups::detect_unified(const std::string& own, const std::string& name, bool only_freezer) {
  const auto path = own + "/" + name;
  if (!usable(path, "cgroup.procs")) {
    notes_.push_back("cgroup version 2 is mounted, but " + own
                     + " is not writable for this user (systemd: Delegate=yes)");
    return;
  }
  if (!only_freezer) {
    const auto available = read_line(own + "/cgroup.controllers");
    for (const char* controller : {"memory", "pids", "cpu"}) {
      if (!contains(available, controller))
        continue;
      const auto enable = "+" + std::string(controller);
      bool enabled = write_existing(own + "/cgroup.subtree_control", enable);
      if (!enabled && errno == EBUSY) {
        // A group with processes can't hand controllers down: the server moves into a leaf of its own.
        const auto leaf = own + "/" + name + "-server";
        ::mkdir(leaf.c_str(), 0755);
        enabled =
            write_existing(leaf + "/cgroup.procs", "0") && write_existing(own + "/cgroup.subtree_control", enable);
      }
      enabled = enabled && write_existing(path + "/cgroup.subtree_control", enable);
      if (!enabled) {
        notes_.push_back(errno_text("the cgroup controller " + std::string(controller) + " can't be handed down"));
        continue;
      }
      if (enable == "+memory")
        features_.memory = true;
      else if (enable == "+pids")
        features_.processes = true;
      else
        features_.cpu = true;
    }
  }
  // Read from the group itself: a kernel before 5.2 has no freezer there.
  features_.freezer = ::access((path + "/cgroup.freeze").c_str(), W_OK) == 0;
  bases_.push_back({"v2", path});
}

std::vector<cgroup_place> cgroups::places(const std::string& environment_id) const {
  std::vector<cgroup_place> result;
  for (const auto& base : bases_)
    result.push_back({base.kind, base.path + "/" + environment_id});
  return result;
}

tl::expected<cgroups::placed, std::string> cgroups::create(const std::string& environment_id,
                                                           const cgroup_limits& limits) const {
  placed result;
  result.places = places(environment_id);
  constexpr int cpu_period = 100'000;
  const auto quota = limits.cpus ? std::max(1000LL, std::llround(*limits.cpus * cpu_period)) : 0LL;
  for (const auto& place : result.places) {
    bool made = ::mkdir(place.path.c_str(), 0755) == 0 || errno == EEXIST;
    if (!made && errno == ENOENT) {
      // Somebody tidied the common group away while it was empty.
      ::mkdir(std::filesystem::path(place.path).parent_path().c_str(), 0755);
      made = ::mkdir(place.path.c_str(), 0755) == 0;
    }
    if (!made)
      return tl::unexpected(errno_text("making " + place.path));
    const auto set = [&](const char* file, const std::string& value) {
      return write_existing(place.path + "/" + file, value);
    };
    const bool v2 = place.kind == "v2";
    bool done = true;
    if (limits.memory_bytes && (v2 ? features_.memory : is_v1(place, "memory"))) {
      const auto bytes = std::to_string(*limits.memory_bytes);
      if (v2) {
        done = set("memory.max", bytes);
        set("memory.swap.max", "0"); // absent where swap isn't accounted
      } else {
        done = set("memory.limit_in_bytes", bytes);
        set("memory.memsw.limit_in_bytes", bytes);
      }
    }
    if (done && limits.processes && (v2 ? features_.processes : is_v1(place, "pids")))
      done = set("pids.max", std::to_string(*limits.processes));
    if (done && limits.cpus && (v2 ? features_.cpu : is_v1(place, "cpu"))) {
      if (v2)
        done = set("cpu.max", std::to_string(quota) + " " + std::to_string(cpu_period));
      else
        done = set("cpu.cfs_period_us", std::to_string(cpu_period)) && set("cpu.cfs_quota_us", std::to_string(quota));
    }
    if (!done)
      return tl::unexpected(errno_text("limits of " + place.path));
    unique_fd join(::open((place.path + "/" + join_file(place.kind)).c_str(), O_WRONLY | O_CLOEXEC));
    if (!join)
      return tl::unexpected(errno_text("entering " + place.path));
    result.joins.push_back(std::move(join));
  }
  return result;
}

void cgroups::remove_if_empty() const {
  for (const auto& base : bases_)
    ::rmdir(base.path.c_str());
}

bool has_freezer(const std::vector<cgroup_place>& places) {
  return std::any_of(places.begin(), places.end(), [](const cgroup_place& place) {
    return is_v1(place, "freezer")
           || (place.kind == "v2" && ::access((place.path + "/cgroup.freeze").c_str(), W_OK) == 0);
  });
}

bool is_frozen(const std::vector<cgroup_place>& places) {
  return std::any_of(places.begin(), places.end(), [](const cgroup_place& place) {
    if (is_v1(place, "freezer"))
      return read_line(place.path + "/freezer.state") != "THAWED" && is_directory(place.path);
    return place.kind == "v2" && read_line(place.path + "/cgroup.freeze") == "1";
  });
}

bool set_frozen(const std::vector<cgroup_place>& places, bool frozen, steady::time_point deadline) {
  for (const auto& place : places) {
    if (is_v1(place, "freezer")) {
      const std::string wanted = frozen ? "FROZEN" : "THAWED";
      // Written again each time: a process that was being made when the first write came may have slipped through.
      return wait_until(deadline, [&] {
        return write_existing(place.path + "/freezer.state", wanted)
               && read_line(place.path + "/freezer.state") == wanted;
      });
    }
    if (place.kind == "v2" && ::access((place.path + "/cgroup.freeze").c_str(), W_OK) == 0) {
      if (!write_existing(place.path + "/cgroup.freeze", frozen ? "1" : "0"))
        return false;
      const std::string wanted = frozen ? "frozen 1" : "frozen 0";
      return wait_until(deadline,
                        [&] { return read_line(place.path + "/cgroup.events").find(wanted) != std::string::npos; });
    }
  }
  return false;
}

bool kill_all(const std::vector<cgroup_place>& places, steady::time_point deadline) {
  return wait_until(deadline, [&] {
    bool empty = true;
    for (const auto& place : places) {
      if (place.kind == "v2")
        write_existing(place.path + "/cgroup.kill", "1");
      const auto procs = read_file(place.path + "/cgroup.procs", 1024 * 1024).value_or("");
      for (const auto& line : split(procs, '\n')) {
        const auto pid = static_cast<pid_t>(std::atoi(line.c_str()));
        // A pid read from the group a moment ago is still in it, or dead: at worst the signal finds nobody.
        if (pid > 1 && pid != ::getpid())
          ::kill(pid, SIGKILL);
        empty = false;
      }
      // A frozen process dies only once it is thawed.
      if (is_v1(place, "freezer"))
        thaw_v1(place);
    }
    return empty;
  });
}

bool remove(const std::vector<cgroup_place>& places, steady::time_point deadline) {
  return wait_until(deadline, [&] {
    bool gone = true;
    for (const auto& place : places)
      gone = (::rmdir(place.path.c_str()) == 0 || errno == ENOENT) && gone;
    return gone;
  });
}

} // namespace holt::providers
