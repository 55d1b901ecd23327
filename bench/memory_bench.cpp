/// The server's memory without and with many environments that are not in use, then the memory of live sandboxes
/// (server, agent, bubblewrap):   memory_bench [ROWS] [LIVE]
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "bench/harness.hpp"
#include "runtime/providers/instance_record.hpp"

using namespace holt::bench;

namespace {

double mib(long kib) {
  return static_cast<double>(kib) / 1024;
}

} // namespace

int main(int argc, char** argv) {
  return run([&] {
    int rows = argument(argc, argv, 1, 10000);
    int live = argument(argc, argv, 2, 200);
    bench_server server;
    raw_client client(server);
    auto create = client.prepare("POST", "/v1/environments", "{}");
    // Warm: what the first requests allocate once is not what rows cost.
    for (int i = 0; i < 200; ++i)
      client.ask(create);
    auto none = memory_of(server.pid());
    auto start = clock_type::now();
    for (int i = 0; i < rows; ++i)
      if (auto answer = client.ask(create); answer.status != 201)
        give_up("create answered " + answer.body);
    auto full = memory_of(server.pid());
    std::printf("rows: %d in %.1f s;  server resident %.1f -> %.1f MiB, private %.1f -> %.1f MiB\n", rows,
                ms_since(start) / 1000, mib(none.resident), mib(full.resident), mib(none.own), mib(full.own));

    auto before = memory_of(server.pid());
    std::vector<std::string> ids;
    for (int i = 0; i < live; ++i) {
      ids.push_back(create_environment(client));
      client.must("POST", "/v1/environments/" + ids.back() + "/exec", R"({"argv":["/usr/bin/true"]})");
    }
    auto after = memory_of(server.pid());
    memory_kib agents, launchers;
    for (const auto& id : ids) {
      std::ifstream file(server.data() / "sandboxes/envs" / id / "run/instance.json");
      if (!file)
        file.open(server.data() / "envs" / id / "run/instance.json");
      auto record = holt::providers::read_record(std::string(std::istreambuf_iterator<char>(file), {}));
      if (!record)
        give_up("no record of the sandbox of " + id);
      auto agent = memory_of(record->agent.pid);
      auto launcher = memory_of(record->launcher.pid);
      agents.own += agent.own;
      agents.resident += agent.resident;
      launchers.own += launcher.own;
      launchers.resident += launcher.resident;
    }
    long server_own = after.own - before.own;
    std::printf("live: %d sandboxes, KiB each: private %ld (at most 400; agent %ld, bwrap %ld, server %ld), resident "
                "%ld (at most 4096; agent "
                "%ld, bwrap %ld, server %ld)\n",
                live, (agents.own + launchers.own + server_own) / live, agents.own / live, launchers.own / live,
                server_own / live, (agents.resident + launchers.resident + after.resident - before.resident) / live,
                agents.resident / live, launchers.resident / live, (after.resident - before.resident) / live);
  });
}
