/// 1 GiB of stdout, and of a file each way, over HTTP, in turn with a small copier of the same bytes (pipe or file to
/// loopback TCP and back, buffers of 64 KiB), and the server's memory meanwhile:   bytes_bench [MIB] [ROUNDS]
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/harness.hpp"

extern char** environ;
using namespace holt::bench;

namespace {

constexpr std::size_t piece = 64 * 1024;

/// Two ends of a TCP connection over loopback.
std::pair<int, int> tcp_pair() {
  int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  int one = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener, 1) != 0
      || ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0
      || ::connect(one, reinterpret_cast<sockaddr*>(&address), size) != 0)
    give_up("no loopback connection");
  int two = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  ::close(listener);
  return {one, two};
}

/// The copier: everything from one descriptor to the other.
std::uint64_t copy(int from, int to) {
  std::vector<char> buffer(piece);
  std::uint64_t total = 0;
  for (;;) {
    auto n = ::read(from, buffer.data(), buffer.size());
    if (n <= 0)
      return total;
    for (ssize_t done = 0; done < n;) {
      auto m = to < 0 ? n - done : ::write(to, buffer.data() + done, static_cast<std::size_t>(n - done));
      if (m <= 0)
        give_up("the copier could not write");
      done += m;
    }
    total += static_cast<std::uint64_t>(n);
  }
}

/// In a process of its own, as the server is one.
template <class Act>
pid_t in_process(Act act) {
  pid_t pid = ::fork();
  if (pid == 0) {
    act();
    ::_exit(0);
  }
  return pid;
}

double megabytes_per_second(std::uint64_t bytes, clock_type::time_point start) {
  return static_cast<double>(bytes) / 1e6 / (ms_since(start) / 1000);
}

void expect(std::uint64_t wanted, std::uint64_t got) {
  if (wanted != got)
    give_up("bytes were lost: " + std::to_string(got) + " of " + std::to_string(wanted));
}

double floor_pipe_to_tcp(std::uint64_t bytes) {
  auto start = clock_type::now();
  int out[2];
  if (::pipe2(out, O_CLOEXEC) != 0)
    give_up("no pipe");
  auto text = std::to_string(bytes);
  const char* argv[] = {"head", "-c", text.c_str(), "/dev/zero", nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  pid_t producer = -1;
  if (::posix_spawnp(&producer, "head", &actions, nullptr, const_cast<char**>(argv), environ) != 0)
    give_up("cannot run head");
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(out[1]);
  auto [one, two] = tcp_pair();
  auto copier = in_process([&, one = one, two = two] {
    ::close(two);
    copy(out[0], one);
  });
  ::close(out[0]);
  ::close(one);
  expect(bytes, copy(two, -1));
  ::close(two);
  ::waitpid(copier, nullptr, 0);
  ::waitpid(producer, nullptr, 0);
  return megabytes_per_second(bytes, start);
}

double floor_file_to_tcp(const std::string& path, std::uint64_t bytes) {
  auto start = clock_type::now();
  auto [one, two] = tcp_pair();
  auto copier = in_process([&, one = one, two = two] {
    ::close(two);
    copy(::open(path.c_str(), O_RDONLY | O_CLOEXEC), one);
  });
  ::close(one);
  expect(bytes, copy(two, -1));
  ::close(two);
  ::waitpid(copier, nullptr, 0);
  return megabytes_per_second(bytes, start);
}

double floor_tcp_to_file(const std::string& source, const std::string& path, std::uint64_t bytes, bool sync) {
  auto start = clock_type::now();
  auto [one, two] = tcp_pair();
  auto copier = in_process([&, one = one, two = two] {
    ::close(one);
    int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    copy(two, file);
    if (sync && ::fdatasync(file) != 0)
      give_up("cannot sync");
  });
  ::close(two);
  int from = ::open(source.c_str(), O_RDONLY | O_CLOEXEC);
  expect(bytes, copy(from, one));
  ::close(from);
  ::close(one);
  ::waitpid(copier, nullptr, 0);
  ::unlink(path.c_str());
  return megabytes_per_second(bytes, start);
}

/// The highest resident memory of a process while this lives.
class memory_watch {
public:
  explicit memory_watch(pid_t pid)
      : thread_([this, pid] {
          while (!stop_) {
            peak_ = std::max(peak_.load(), memory_of(pid).resident);
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
          }
        }) {
  }
  ~memory_watch() {
    stop_ = true;
    thread_.join();
  }
  long peak() const {
    return peak_;
  }

private:
  std::atomic<bool> stop_ = false;
  std::atomic<long> peak_ = 0;
  std::thread thread_;
};

void print(const char* what, const std::vector<double>& floor, const std::vector<double>& ours) {
  auto f = summarise(floor).p50, o = summarise(ours).p50;
  std::printf("%-34s copier %7.0f MB/s   holt %7.0f MB/s = %.2fx (at least 0.8)\n", what, f, o, o / f);
}

} // namespace

int main(int argc, char** argv) {
  return run([&] {
    std::uint64_t bytes = static_cast<std::uint64_t>(argument(argc, argv, 1, 1024)) << 20;
    int rounds = argument(argc, argv, 2, 5);
    bench_server server({"--sandbox.file_size_bytes", std::to_string(bytes * 2)});
    scratch_directory scratch;
    auto source = (scratch.path() / "source").string();
    {
      int file = ::open(source.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
      std::vector<char> block(1 << 20);
      unsigned seed = 1;
      for (auto& c : block)
        c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
      for (std::uint64_t done = 0; done < bytes; done += block.size())
        if (::write(file, block.data(), block.size()) != static_cast<ssize_t>(block.size()))
          give_up("no room for a file of that size");
      ::fsync(file);
      ::close(file);
    }
    raw_client client(server);
    auto id = create_environment(client);
    client.must("POST", "/v1/environments/" + id + "/exec", R"({"argv":["true"]})");
    auto before = memory_of(server.pid());

    auto exec = client.prepare("POST", "/v1/environments/" + id + "/exec",
                               R"({"argv":["head","-c",")" + std::to_string(bytes) + R"(","/dev/zero"]})",
                               "Accept: application/octet-stream\r\n");
    auto get = client.prepare("GET", "/v1/environments/" + id + "/files/workspace/big");
    std::vector<double> pipe_floor, out, file_floor, down, up_floor, synced_floor, up;
    long out_peak = 0, file_peak = 0;
    {
      memory_watch watch(server.pid());
      for (int round = 0; round < rounds; ++round) {
        pipe_floor.push_back(floor_pipe_to_tcp(bytes));
        auto start = clock_type::now();
        expect(bytes, client.ask_and_count(exec).body_bytes);
        out.push_back(megabytes_per_second(bytes, start));
      }
      out_peak = watch.peak();
    }
    {
      memory_watch watch(server.pid());
      for (int round = 0; round < rounds; ++round) {
        auto there = (scratch.path() / "copy").string();
        up_floor.push_back(floor_tcp_to_file(source, there, bytes, false));
        synced_floor.push_back(floor_tcp_to_file(source, there, bytes, true));
        int file = ::open(source.c_str(), O_RDONLY | O_CLOEXEC);
        auto start = clock_type::now();
        client.upload("/v1/environments/" + id + "/files/workspace/big", bytes, [file](char* buffer, std::size_t size) {
          return static_cast<std::size_t>(std::max<ssize_t>(::read(file, buffer, size), 0));
        });
        up.push_back(megabytes_per_second(bytes, start));
        ::close(file);
        file_floor.push_back(floor_file_to_tcp(source, bytes));
        start = clock_type::now();
        expect(bytes, client.ask_and_count(get).body_bytes);
        down.push_back(megabytes_per_second(bytes, start));
      }
      file_peak = watch.peak();
    }
    std::printf("%llu MiB, median of %d\n", static_cast<unsigned long long>(bytes >> 20), rounds);
    print("stdout of a command", pipe_floor, out);
    print("file, GET", file_floor, down);
    print("file, PUT (synced, hashed)", up_floor, up);
    print("  beside a copier that syncs", synced_floor, up);
    std::printf("server resident, MiB: before %.1f, at most %.1f with stdout and %.1f with files (at most 16 more), "
                "after %.1f\n",
                static_cast<double>(before.resident) / 1024, static_cast<double>(out_peak) / 1024,
                static_cast<double>(file_peak) / 1024, static_cast<double>(memory_of(server.pid()).resident) / 1024);
  });
}
