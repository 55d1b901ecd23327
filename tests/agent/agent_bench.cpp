// What a command costs through the agent, beside spawning it plainly: agent_bench [ROUNDS]. The path of a static program
// that does nothing may be given by HOLT_BENCH_TRUE.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/agent/agent_client.hpp"

extern char** environ;

using namespace holt::tests;
using bench_clock = std::chrono::steady_clock;

namespace {

double microseconds(bench_clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

/// posix_spawn, a pipe read to its end, wait.
double spawn_plainly(const char* program) {
  auto before = bench_clock::now();
  int out[2];
  if (::pipe2(out, O_CLOEXEC) != 0)
    std::abort();
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  char* argv[] = {const_cast<char*>(program), nullptr};
  pid_t pid;
  if (::posix_spawn(&pid, program, &actions, nullptr, argv, environ) != 0)
    std::abort();
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(out[1]);
  char byte;
  while (::read(out[0], &byte, 1) > 0) {
    // nop
  }
  ::close(out[0]);
  int status;
  ::waitpid(pid, &status, 0);
  return microseconds(bench_clock::now() - before);
}

void report(const char* name, std::vector<double>& times) {
  std::sort(times.begin(), times.end());
  std::printf("%-28s median %8.0f us   p99 %8.0f us\n", name, times[times.size() / 2], times[times.size() * 99 / 100]);
}

} // namespace

int main(int argc, char** argv) {
  auto rounds = argc > 1 ? std::atoi(argv[1]) : 1000;
  const char* program = std::getenv("HOLT_BENCH_TRUE");
  if (program == nullptr)
    program = "/bin/true";
  temporary_directory home;
  agent_process agent{home.path(), {HOLT_AGENT, "serve"}};
  agent_client client{agent.socket()};
  auto idle = agent.resident_kib();
  wire::process_start start;
  start.argv = {program};
  for (int i = 0; i < 100; ++i)
    client.run("warm" + std::to_string(i), start);
  std::printf("resident: idle %ld KiB, after 100 commands %ld KiB\n", idle, agent.resident_kib());
  // In turn, so that both meet the same machine.
  std::vector<double> floor, through;
  for (int i = 0; i < rounds; ++i) {
    floor.push_back(spawn_plainly(program));
    auto before = bench_clock::now();
    client.run("op" + std::to_string(i), start);
    through.push_back(microseconds(bench_clock::now() - before));
  }
  report("posix_spawn + pipe + wait", floor);
  report("agent over its socket", through);
  std::printf("ratio of medians %.2f\n", through[through.size() / 2] / floor[floor.size() / 2]);
  std::printf("resident after %d commands: %ld KiB\n", rounds, agent.resident_kib());

  // One GiB, thrown away by the client as it comes.
  constexpr std::uint64_t bytes = 1024ull * 1024 * 1024;
  client.discard = true;
  auto before = bench_clock::now();
  wire::process_start flood;
  flood.command = "head -c " + std::to_string(bytes) + " /dev/zero";
  auto end = client.run("flood", flood, seconds{60});
  auto took = std::chrono::duration<double>(bench_clock::now() - before).count();
  std::printf("1 GiB of output: %.0f MB/s, %llu bytes, resident %ld KiB\n", static_cast<double>(bytes) / took / 1e6,
              static_cast<unsigned long long>(end.result.finals.at(0).position), agent.resident_kib());
}
