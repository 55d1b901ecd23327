#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

/// What the programs of bench/ share: a server of their own on loopback, a client that costs next to nothing, plain
/// spawning, and statistics. Everything that fails ends the program with a line that says what, and leaves nothing
/// running.
namespace holt::bench {

/// Throws; run() prints it once what was started has been stopped.
[[noreturn]] void give_up(const std::string& what);
/// The body of main(): its exit code.
int run(const std::function<void()>& bench);

using clock_type = std::chrono::steady_clock;
double ms_since(clock_type::time_point start);

/// A temporary directory that goes with everything in it.
class scratch_directory {
public:
  scratch_directory();
  ~scratch_directory();
  const std::filesystem::path& path() const {
    return path_;
  }

private:
  std::filesystem::path path_;
};

/// `holt serve` with a data directory of its own; stopped, with its sandboxes, at the end. The program is $HOLT, or the
/// one that was built beside this bench.
class bench_server {
public:
  explicit bench_server(std::vector<std::string> flags = {});
  ~bench_server();
  pid_t pid() const {
    return pid_;
  }
  std::uint16_t port() const {
    return port_;
  }
  const std::string& key() const {
    return key_;
  }
  std::filesystem::path data() const {
    return scratch_.path() / "data";
  }

private:
  void start(std::vector<std::string> flags);
  void end() noexcept;
  std::string program_;
  scratch_directory scratch_;
  pid_t pid_ = -1;
  std::uint16_t port_ = 0;
  std::string key_;
};

struct reply {
  int status = 0;
  std::string body;
  std::uint64_t body_bytes = 0;
};

/// One keep-alive connection over a blocking socket.
class raw_client {
public:
  raw_client(std::uint16_t port, std::string key);
  explicit raw_client(const bench_server& server) : raw_client(server.port(), server.key()) {
  }
  ~raw_client();
  raw_client(raw_client&& other) noexcept;
  raw_client& operator=(raw_client&&) = delete;

  /// The bytes of a request, to be sent many times.
  std::string prepare(std::string_view method, std::string_view target, std::string_view body = {},
                      std::string_view more_headers = {}) const;
  reply ask(const std::string& prepared);
  /// As ask(), and ends the program unless the status is 2xx.
  reply must(std::string_view method, std::string_view target, std::string_view body = {},
             std::string_view more_headers = {});
  /// Reads an answer whose body is only counted, through a buffer of 64 KiB.
  reply ask_and_count(const std::string& prepared);
  /// Sends a head, then `bytes` of body from `fill`, then reads the answer.
  reply upload(std::string_view target, std::uint64_t bytes,
               const std::function<std::size_t(char*, std::size_t)>& fill);

  int fd() const {
    return fd_;
  }
  /// For event loops: takes what arrived; a whole answer if it is complete.
  std::optional<reply> take();
  void send(std::string_view bytes);

private:
  bool receive();
  std::optional<reply> parse(bool keep_body);
  int fd_ = -1;
  std::string key_;
  std::string buffer_;
};

/// "env_…" of a new environment.
std::string create_environment(raw_client& client);
void delete_environment(raw_client& client, const std::string& id);
/// Puts a file of this machine into an environment, executable.
void put_program(raw_client& client, const std::string& environment, const std::string& local, const std::string& path);

/// posix_spawn of a static program with a pipe on its stdout, read to its end, and waited for. `words[0]` is a path.
void spawn_and_wait(const std::vector<std::string>& words, const std::vector<std::pair<int, int>>& more_fds = {});
/// The program static_true that was built beside this one.
std::string static_true();

struct summary {
  double p50 = 0;
  double p99 = 0;
};
summary summarise(std::vector<double> values);

struct memory_kib {
  long resident = 0;
  long own = 0; // private
};
memory_kib memory_of(pid_t pid);

/// "1234 kB/s"-like lines in one place: name, p50, p99.
void print_row(const char* name, const summary& values, const char* unit);
int argument(int argc, char** argv, int index, int usual);

} // namespace holt::bench
