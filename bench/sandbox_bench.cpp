/// create → connected beside a one-shot bubblewrap of the same profile, in turn, and the private memory of sandboxes
/// that stay: sandbox_bench [ROUNDS] [LIVE] [PREPARED]. As root. Prints medians, and ratios taken round by round.

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "runtime/providers/bubblewrap.hpp"
#include "runtime/providers/embedded.hpp"
#include "runtime/providers/instance_record.hpp"
#include "runtime/providers/sandbox_profile.hpp"
#include "runtime/providers/seccomp_filter.hpp"
#include "runtime/providers/system_etc.hpp"

namespace {

using namespace holt;
using clock_type = std::chrono::steady_clock;

double milliseconds_since(clock_type::time_point start) {
  return std::chrono::duration<double, std::milli>(clock_type::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run(const std::vector<std::string>& words, int seccomp) {
  std::vector<char*> argv;
  for (const auto& word : words)
    argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> environment{nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 6, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, seccomp, 7);
  pid_t pid = 0;
  int status = 0;
  if (::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environment.data()) != 0
      || ::waitpid(pid, &status, 0) != pid || status != 0)
    std::fprintf(stderr, "one shot failed: %d\n", status);
  posix_spawn_file_actions_destroy(&actions);
}

struct memory {
  long resident = 0;
  long own = 0;
};
memory memory_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps_rollup");
  memory sum;
  for (std::string line; std::getline(file, line);) {
    const auto value = std::atol(line.c_str() + line.find(':') + 1);
    if (line.rfind("Private_", 0) == 0)
      sum.own += value;
    if (line.rfind("Rss:", 0) == 0)
      sum.resident += value;
  }
  return sum;
}

} // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 60;
  const int live = argc > 2 ? std::atoi(argv[2]) : 50;
  // On another file system by TMPDIR: on a busy disk the flushes of a claim are most of it.
  const char* place = std::getenv("TMPDIR");
  std::string name = std::string(place != nullptr ? place : "/tmp") + "/holt-bench-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr)
    return 1;
  const std::filesystem::path data = name;
  std::filesystem::permissions(data, std::filesystem::perms(0755));

  const auto programs = providers::install_embedded_programs(data);
  providers::bubblewrap_options options;
  options.data_dir = data;
  options.agent = programs->agent;
  options.launcher = programs->launcher;
  // Where the time of a create goes: the end of each step, since its beginning.
  clock_type::time_point step_start;
  std::map<std::string, std::vector<double>> steps;
  options.cut = [&](std::string_view step) {
    steps[std::string(step)].push_back(milliseconds_since(step_start));
    return false;
  };
  auto made = providers::make_bubblewrap(options);
  if (!made || !(*made)->report().available) {
    std::fprintf(stderr, "no sandboxes here\n");
    return 1;
  }
  auto& provider = **made;

  const auto seccomp = providers::build_seccomp_filter();
  providers::sandbox_profile profile;
  profile.bwrap = options.bwrap;
  profile.system = providers::find_system_directories();
  profile.etc = *providers::build_etc(data / "etc", false);
  profile.workspace = profile.skills = data / "one-shot";
  profile.agent = programs->launcher;
  profile.tmp_bytes = options.tmp_bytes;
  profile.shm_bytes = options.shm_bytes;
  profile.seccomp_fd = 7;
  profile.info_fd = 6;
  profile.arguments = {"--self-test"};
  std::filesystem::create_directories(data / "one-shot");
  if (::chown((data / "one-shot").c_str(), 699'999, 699'999) != 0)
    return 1;
  const auto plain = providers::bwrap_arguments(profile);
  std::vector<std::string> launched{programs->launcher, "--last-fd", "7", "--uid", "699999", "--gid", "699999", "--"};
  std::vector<std::string> dropped{"/usr/bin/setpriv", "--reuid=699999", "--regid=699999", "--clear-groups",
                                   "--no-new-privs"};
  launched.insert(launched.end(), plain.begin(), plain.end());
  dropped.insert(dropped.end(), plain.begin(), plain.end());

  std::vector<double> created, one_shot, with_setpriv, ratio, setpriv_ratio, destroyed;
  for (int round = 0; round < rounds; ++round) {
    const auto time = [&](const std::vector<std::string>& words) {
      const auto filter = providers::reopen(seccomp->get());
      const auto start = clock_type::now();
      run(words, filter.get());
      return milliseconds_since(start);
    };
    const auto create = [&] {
      actors::instance_spec spec;
      spec.environment_id = "env_" + std::to_string(round);
      spec.file_system_id = "fs";
      spec.new_files = true;
      step_start = clock_type::now();
      const auto instance = provider.create(spec);
      const auto connection = instance ? provider.open(instance->handle) : tl::unexpected(instance.error());
      created.push_back(milliseconds_since(step_start));
      if (!connection) {
        std::fprintf(stderr, "create failed: %s\n", connection.error().detail.c_str());
        std::exit(1);
      }
      ::close(*connection);
      const auto start = clock_type::now();
      (void)provider.destroy(spec.environment_id, "", ~0ULL);
      destroyed.push_back(milliseconds_since(start));
      (void)provider.destroy_files(spec.environment_id, "fs");
      (void)provider.forget(spec.environment_id);
    };
    // What one leaves to the kernel (namespaces are torn down later) slows the next: each comes first in turn.
    for (int turn = 0; turn < 3; ++turn) {
      switch ((round + turn) % 3) {
      case 0:
        one_shot.push_back(time(launched));
        break;
      case 1:
        with_setpriv.push_back(time(dropped));
        break;
      default:
        create();
      }
    }
    ratio.push_back(created.back() / one_shot.back());
    setpriv_ratio.push_back(created.back() / with_setpriv.back());
  }
  std::printf("one-shot bwrap, same profile, dropped by holt-launch  %6.2f ms\n", median(one_shot));
  std::printf("one-shot bwrap, same profile, dropped by setpriv      %6.2f ms\n", median(with_setpriv));
  std::printf("create of a new environment and connect               %6.2f ms  = %.2f and %.2f of these\n",
              median(created), median(ratio), median(setpriv_ratio));
  std::printf("destroy                                               %6.2f ms\n", median(destroyed));

  for (const auto* step :
       {"directories", "uid", "files", "intent", "cgroups", "socket", "launched", "listening", "recorded"})
    std::printf("  %-12s at %6.2f ms\n", step, median(steps[step]));

  const auto before = memory_of(::getpid());
  std::vector<pid_t> agents, launchers;
  for (int at = 0; at < live; ++at) {
    actors::instance_spec spec;
    spec.environment_id = "env_live_" + std::to_string(at);
    spec.file_system_id = "fs";
    spec.new_files = true;
    if (!provider.create(spec))
      return 1;
    std::ifstream file(data / "envs" / spec.environment_id / "run/instance.json");
    const auto record = providers::read_record(std::string(std::istreambuf_iterator<char>(file), {}));
    agents.push_back(record->agent.pid);
    launchers.push_back(record->launcher.pid);
  }
  const auto after = memory_of(::getpid());
  const auto sum = [](const std::vector<pid_t>& pids) {
    memory total;
    for (const auto pid : pids) {
      const auto one = memory_of(pid);
      total.own += one.own;
      total.resident += one.resident;
    }
    return total;
  };
  const auto agent = sum(agents);
  const auto launcher = sum(launchers);
  std::printf("%d live sandboxes, KiB each: private %ld (agent %ld, bwrap %ld, server %ld), resident %ld (agent %ld, "
              "bwrap %ld)\n",
              live, (agent.own + launcher.own + after.own - before.own) / live, agent.own / live, launcher.own / live,
              (after.own - before.own) / live, (agent.resident + launcher.resident) / live, agent.resident / live,
              launcher.resident / live);
  for (int at = 0; at < live; ++at)
    (void)provider.destroy("env_live_" + std::to_string(at), "", ~0ULL);

  if (argc > 3 && std::atoi(argv[3]) > 0) {
    // A claim of a prepared sandbox beside posix_spawn of a static program that does nothing.
    made->reset();
    options.prepared = static_cast<std::size_t>(std::atoi(argv[3]));
    made = providers::make_bubblewrap(options);
    std::vector<double> claimed, spawned, claims;
    for (int round = 0; round < rounds; ++round) {
      // Until spares are there again: otherwise their making would be measured.
      std::this_thread::sleep_for(std::chrono::milliseconds(round == 0 ? 2000 : 200));
      const auto filter = providers::reopen(seccomp->get());
      auto start = clock_type::now();
      run({programs->launcher, "--self-test"}, filter.get());
      spawned.push_back(milliseconds_since(start));
      actors::instance_spec spec;
      spec.environment_id = "env_claim_" + std::to_string(round);
      spec.file_system_id = "fs";
      spec.new_files = true;
      start = clock_type::now();
      const auto instance = (*made)->create(spec);
      const auto connection = instance ? (*made)->open(instance->handle) : tl::unexpected(instance.error());
      claimed.push_back(milliseconds_since(start));
      claims.push_back(claimed.back() / spawned.back());
      if (connection)
        ::close(*connection);
      (void)(*made)->destroy(spec.environment_id, "", ~0ULL);
    }
    std::printf("posix_spawn of a static program                       %6.2f ms\n", median(spawned));
    std::printf("claim of a prepared sandbox and connect               %6.2f ms  = %.2f of it\n", median(claimed),
                median(claims));
  }
  made->reset();
  std::error_code error;
  std::filesystem::remove_all(data, error);
}
