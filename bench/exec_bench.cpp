/// exec of a static `true` on a warm environment over HTTP keep-alive, in turn with the floor (posix_spawn, pipe, wait
/// of the same binary) and with a one-shot bubblewrap of the same profile; then 64 clients over 16 environments beside
/// two processes that plainly spawn:   exec_bench [ROUNDS] [SECONDS]
#include <cstdio>
#include <vector>

#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/harness.hpp"
#include "bench/one_shot.hpp"

using namespace holt::bench;

namespace {

constexpr int clients = 64;
constexpr int environments = 16;

std::string exec_of(const raw_client& client, const std::string& environment) {
  return client.prepare("POST", "/v1/environments/" + environment + "/exec", R"({"argv":["/workspace/static_true"]})");
}

void check(const reply& answer) {
  if (answer.status != 200 || answer.body.find("\"exit_code\":0") == std::string::npos)
    give_up("exec answered " + std::to_string(answer.status) + ": " + answer.body);
}

std::string ready_environment(raw_client& client) {
  auto id = create_environment(client);
  put_program(client, id, static_true(), "/workspace/static_true");
  check(client.ask(exec_of(client, id)));
  return id;
}

void one_after_another(const bench_server& server, int rounds) {
  raw_client client(server);
  auto prepared = exec_of(client, ready_environment(client));
  scratch_directory scratch;
  one_shot_sandbox one_shot(scratch, static_true());
  std::vector<double> floor, exec, bwrap, nothing;
  auto idle = client.prepare("GET", "/v1/server");
  auto time = [](std::vector<double>& into, auto&& act) {
    auto start = clock_type::now();
    act();
    into.push_back(ms_since(start));
  };
  for (int i = -20; i < rounds; ++i) {
    if (i == 0)
      floor.clear(), exec.clear(), bwrap.clear(), nothing.clear();
    // Each comes first in turn: what one leaves to the kernel slows the next.
    for (int turn = 0; turn < 3; ++turn) {
      switch ((i + turn + 60) % 3) {
      case 0:
        time(floor, [&] { spawn_and_wait({static_true()}); });
        break;
      case 1:
        time(exec, [&] { check(client.ask(prepared)); });
        break;
      default:
        time(nothing, [&] { client.ask(idle); });
      }
    }
    if (i % 10 == 0)
      time(bwrap, [&] { one_shot.run(); });
  }
  auto f = summarise(floor), e = summarise(exec), b = summarise(bwrap);
  print_row("floor: posix_spawn + pipe + wait of static true", f, "ms");
  print_row("exec over HTTP keep-alive, warm environment", e, "ms");
  print_row("one-shot bwrap, same profile", b, "ms");
  print_row("HTTP alone (GET /v1/server)", summarise(nothing), "ms");
  std::printf("exec / floor: p50 %.2fx (at most 1.25), p99 %.2fx;  exec / one-shot bwrap: p50 %.3fx (at most 0.2)\n",
              e.p50 / f.p50, e.p99 / f.p99, e.p50 / b.p50);
}

/// Executions a second, of two processes that do nothing else.
double plain_rate(double seconds) {
  int out[2];
  if (::pipe(out) != 0)
    give_up("no pipe");
  auto start = clock_type::now();
  pid_t children[2];
  for (auto& child : children) {
    child = ::fork();
    if (child == 0) {
      long count = 0;
      while (ms_since(start) < seconds * 1000) {
        spawn_and_wait({static_true()});
        ++count;
      }
      [[maybe_unused]] auto n = ::write(out[1], &count, sizeof count);
      ::_exit(0);
    }
  }
  ::close(out[1]);
  long total = 0, count = 0;
  while (::read(out[0], &count, sizeof count) == sizeof count)
    total += count;
  auto elapsed = ms_since(start) / 1000;
  ::close(out[0]);
  for (auto child : children)
    ::waitpid(child, nullptr, 0);
  return static_cast<double>(total) / elapsed;
}

double exec_rate(std::vector<raw_client>& connections, const std::vector<std::string>& prepared, double seconds,
                 std::vector<double>& latencies) {
  int poll = ::epoll_create1(EPOLL_CLOEXEC);
  std::vector<clock_type::time_point> asked(connections.size());
  for (std::size_t i = 0; i < connections.size(); ++i) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};
    ::epoll_ctl(poll, EPOLL_CTL_ADD, connections[i].fd(), &event);
    asked[i] = clock_type::now();
    connections[i].send(prepared[i]);
  }
  auto start = clock_type::now();
  long done = 0;
  double elapsed = 0;
  std::size_t open = connections.size();
  while (open > 0) {
    epoll_event events[clients];
    int n = ::epoll_wait(poll, events, clients, 10000);
    if (n <= 0)
      give_up("no answer for 10 s");
    for (int e = 0; e < n; ++e) {
      auto i = events[e].data.u64;
      auto answer = connections[i].take();
      if (!answer)
        continue;
      check(*answer);
      latencies.push_back(ms_since(asked[i]));
      bool goes_on = ms_since(start) < seconds * 1000;
      if (goes_on || elapsed == 0) {
        ++done;
        elapsed = goes_on ? 0 : ms_since(start) / 1000;
      }
      if (goes_on) {
        asked[i] = clock_type::now();
        connections[i].send(prepared[i]);
      } else {
        --open;
      }
    }
  }
  ::close(poll);
  return static_cast<double>(done) / elapsed;
}

void many_at_once(const bench_server& server, double seconds) {
  raw_client first(server);
  std::vector<std::string> ids;
  for (int i = 0; i < environments; ++i)
    ids.push_back(ready_environment(first));
  std::vector<raw_client> connections;
  std::vector<std::string> prepared;
  for (int i = 0; i < clients; ++i) {
    connections.emplace_back(server);
    prepared.push_back(exec_of(connections.back(), ids[static_cast<std::size_t>(i % environments)]));
  }
  std::vector<double> plain, exec, latencies;
  for (int round = 0; round < 5; ++round) {
    plain.push_back(plain_rate(seconds));
    exec.push_back(exec_rate(connections, prepared, seconds, latencies));
  }
  auto p = summarise(plain).p50, e = summarise(exec).p50;
  std::printf(
      "two processes that plainly spawn: %.0f/s;  64 clients over 16 environments: %.0f/s = %.2fx (at least 0.85)\n", p,
      e, e / p);
  print_row("latency of one of 64", summarise(latencies), "ms");
}

} // namespace

int main(int argc, char** argv) {
  return run([&] {
    bench_server server;
    one_after_another(server, argument(argc, argv, 1, 1500));
    many_at_once(server, argument(argc, argv, 2, 3));
  });
}
