/// create + first exec of a new environment, in turn with a one-shot bubblewrap of the same profile and uid drop, plus
/// two durable commits (a write and an fdatasync each), and with plain spawning:   create_bench [ROUNDS] [FLAG OF holt
/// serve …]
#include <cstdio>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "bench/harness.hpp"
#include "bench/one_shot.hpp"

using namespace holt::bench;

int main(int argc, char** argv) {
  return run([&] {
    int rounds = argument(argc, argv, 1, 100);
    bench_server server(std::vector<std::string>(argv + std::min(argc, 2), argv + argc));
    raw_client client(server);
    scratch_directory scratch;
    one_shot_sandbox one_shot(scratch, "/usr/bin/true");
    int file = ::open((scratch.path() / "commits").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
      give_up("cannot make a file");
    char page[4096] = {};
    off_t at = 0;

    std::vector<double> spawn, floor, create, first_exec, ratio;
    for (int round = -3; round < rounds; ++round) {
      if (round == 0)
        spawn.clear(), floor.clear(), create.clear(), first_exec.clear(), ratio.clear();
      for (int turn = 0; turn < 3; ++turn) {
        auto start = clock_type::now();
        switch ((round + turn + 30) % 3) {
        case 0:
          spawn_and_wait({"/usr/bin/true"});
          spawn.push_back(ms_since(start));
          break;
        case 1:
          one_shot.run();
          for (int commit = 0; commit < 2; ++commit, at += sizeof page)
            if (::pwrite(file, page, sizeof page, at) != sizeof page || ::fdatasync(file) != 0)
              give_up("cannot write");
          floor.push_back(ms_since(start));
          break;
        default: {
          auto id = create_environment(client);
          auto created = clock_type::now();
          auto answer = client.must("POST", "/v1/environments/" + id + "/exec", R"({"argv":["/usr/bin/true"]})");
          create.push_back(ms_since(start));
          first_exec.push_back(ms_since(created));
          if (answer.body.find("\"exit_code\":0") == std::string::npos)
            give_up("exec answered " + answer.body);
          delete_environment(client, id);
        }
        }
      }
      ratio.push_back(create.back() / floor.back());
    }
    auto f = summarise(floor), c = summarise(create), s = summarise(spawn);
    print_row("posix_spawn + pipe + wait of true", s, "ms");
    print_row("one-shot bwrap, uid drop, two durable commits", f, "ms");
    print_row("create + first exec over HTTP", c, "ms");
    print_row("  of it the first exec, which makes the sandbox", summarise(first_exec), "ms");
    std::printf(
        "create + first exec / one-shot: p50 %.2fx (at most 1.3), of the rounds' ratios %.2fx;  / posix_spawn: %.2fx\n",
        c.p50 / f.p50, summarise(ratio).p50, c.p50 / s.p50);
  });
}
