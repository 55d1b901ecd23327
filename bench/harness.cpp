#include "bench/harness.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace holt::bench {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t piece = 64 * 1024;

fs::path own_folder() {
  return fs::read_symlink("/proc/self/exe").parent_path();
}

pid_t spawn(const std::vector<std::string>& words, const std::vector<std::pair<int, int>>& fds) {
  std::vector<char*> argv;
  for (const auto& word : words)
    argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (auto [from, to] : fds)
    ::posix_spawn_file_actions_adddup2(&actions, from, to);
  pid_t pid = -1;
  int wrong = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (wrong != 0)
    give_up("cannot run " + words[0] + ": " + std::strerror(wrong));
  return pid;
}

std::string_view header_value(std::string_view head, std::string_view name) {
  for (std::size_t at = 0; (at = head.find("\r\n", at)) != std::string_view::npos;) {
    at += 2;
    if (head.size() - at > name.size() && ::strncasecmp(head.data() + at, name.data(), name.size()) == 0
        && head[at + name.size()] == ':') {
      auto value = head.substr(at + name.size() + 1);
      value = value.substr(0, value.find("\r\n"));
      value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
      return value;
    }
  }
  return {};
}

} // namespace

void give_up(const std::string& what) {
  throw std::runtime_error(what);
}

int run(const std::function<void()>& bench) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    bench();
    return 0;
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "bench: %s\n", failed.what());
    return 1;
  }
}

double ms_since(clock_type::time_point start) {
  return std::chrono::duration<double, std::milli>(clock_type::now() - start).count();
}

int argument(int argc, char** argv, int index, int usual) {
  return argc > index ? std::atoi(argv[index]) : usual;
}

scratch_directory::scratch_directory() {
  std::string name = (fs::temp_directory_path() / "holt-bench-XXXXXX").string();
  if (!::mkdtemp(name.data()))
    give_up("cannot make a temporary directory");
  path_ = name;
  fs::permissions(path_, fs::perms(0755)); // the environments' own uids pass through
}

scratch_directory::~scratch_directory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

bench_server::bench_server(std::vector<std::string> flags) {
  try {
    start(std::move(flags));
  } catch (...) {
    end();
    throw;
  }
}

void bench_server::start(std::vector<std::string> flags) {
  const char* named = std::getenv("HOLT");
  program_ = named ? named : (own_folder().parent_path() / "runtime/process/holt").string();
  std::vector<std::string> words{program_,     "serve",         "--listen",     "127.0.0.1:0",
                                 "--data-dir", data().string(), "--log.format", "text"};
  words.insert(words.end(), flags.begin(), flags.end());
  int out[2];
  if (::pipe2(out, O_CLOEXEC) != 0)
    give_up("no pipe");
  int log = ::open((scratch_.path() / "log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  pid_ = spawn(words, {{nothing, 0}, {out[1], 1}, {log, 2}});
  ::close(out[1]);
  ::close(log);
  ::close(nothing);
  std::string said;
  char buffer[4096];
  const std::string mark = "holt serves on http://127.0.0.1:";
  auto begun = clock_type::now();
  for (;;) {
    if (auto at = said.find(mark); at != std::string::npos && said.find('\n', at) != std::string::npos) {
      std::from_chars(said.data() + at + mark.size(), said.data() + said.size(), port_);
      break;
    }
    pollfd ready{out[0], POLLIN, 0};
    if (ms_since(begun) > 20000 || ::poll(&ready, 1, 20000) <= 0)
      give_up("the server did not start within 20 s");
    auto n = ::read(out[0], buffer, sizeof buffer);
    if (n <= 0) {
      std::ifstream log_text(scratch_.path() / "log");
      give_up("the server ended at its start: " + std::string(std::istreambuf_iterator<char>(log_text), {}));
    }
    said.append(buffer, static_cast<std::size_t>(n));
  }
  // out[0] stays open: the server may print more.
  std::ifstream key(data() / "first-key");
  std::getline(key, key_);
  if (key_.empty())
    give_up("the server left no first key");
}

bench_server::~bench_server() {
  end();
}

void bench_server::end() noexcept {
  int status = 0;
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, &status, 0);
    int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    auto pid =
        spawn({program_, "admin", "stop-instances", "--data-dir", data().string()}, {{nothing, 1}, {nothing, 2}});
    ::waitpid(pid, &status, 0);
    ::close(nothing);
  }
  pid_ = -1;
}

raw_client::raw_client(std::uint16_t port, std::string key)
    : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), key_(std::move(key)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int on = 1;
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0
      || ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
    give_up("cannot connect to the server");
}

raw_client::raw_client(raw_client&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), key_(std::move(other.key_)), buffer_(std::move(other.buffer_)) {
}

raw_client::~raw_client() {
  if (fd_ >= 0)
    ::close(fd_);
}

std::string raw_client::prepare(std::string_view method, std::string_view target, std::string_view body,
                                std::string_view more_headers) const {
  std::string text;
  text.append(method)
      .append(" ")
      .append(target)
      .append(" HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ")
      .append(key_)
      .append("\r\n");
  if (!body.empty())
    text.append("Content-Type: application/json\r\n");
  if (!body.empty() || method == "POST")
    text.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n");
  return text.append(more_headers).append("\r\n").append(body);
}

void raw_client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    auto n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0)
      give_up(std::string("the connection broke while sending: ") + std::strerror(errno));
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

bool raw_client::receive() {
  auto have = buffer_.size();
  buffer_.resize(have + piece);
  auto n = ::recv(fd_, buffer_.data() + have, piece, 0);
  buffer_.resize(have + (n > 0 ? static_cast<std::size_t>(n) : 0));
  return n > 0;
}

std::optional<reply> raw_client::parse(bool keep_body) {
  auto end = buffer_.find("\r\n\r\n");
  if (end == std::string::npos)
    return std::nullopt;
  std::string_view head(buffer_.data(), end + 2);
  auto length = header_value(head, "Content-Length");
  std::size_t size = 0;
  std::from_chars(length.data(), length.data() + length.size(), size);
  if (buffer_.size() < end + 4 + size)
    return std::nullopt;
  reply answer;
  std::from_chars(buffer_.data() + 9, buffer_.data() + 12, answer.status);
  answer.body_bytes = size;
  if (keep_body)
    answer.body = buffer_.substr(end + 4, size);
  buffer_.erase(0, end + 4 + size);
  return answer;
}

std::optional<reply> raw_client::take() {
  if (!receive())
    give_up("the server closed a connection");
  return parse(true);
}

reply raw_client::ask(const std::string& prepared) {
  send(prepared);
  for (;;)
    if (auto answer = take())
      return std::move(*answer);
}

reply raw_client::must(std::string_view method, std::string_view target, std::string_view body,
                       std::string_view more_headers) {
  auto answer = ask(prepare(method, target, body, more_headers));
  if (answer.status / 100 != 2)
    give_up(std::string(method) + ' ' + std::string(target) + " answered " + std::to_string(answer.status) + ": "
            + answer.body);
  return answer;
}

reply raw_client::ask_and_count(const std::string& prepared) {
  send(prepared);
  std::size_t end = 0;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos)
    if (!receive())
      give_up("the server closed a connection");
  reply answer;
  std::from_chars(buffer_.data() + 9, buffer_.data() + 12, answer.status);
  std::string head = buffer_.substr(0, end + 2);
  std::string rest = buffer_.substr(end + 4);
  buffer_.clear();
  if (answer.status / 100 != 2)
    give_up("the answer was " + head + rest);
  std::vector<char> buffer(piece);
  auto more = [&]() -> std::string_view {
    if (!rest.empty()) {
      std::copy(rest.begin(), rest.end(), buffer.begin());
      std::string_view view(buffer.data(), rest.size());
      rest.clear();
      return view;
    }
    auto n = ::recv(fd_, buffer.data(), buffer.size(), 0);
    if (n <= 0)
      give_up("an answer was cut short after " + std::to_string(answer.body_bytes) + " bytes");
    return {buffer.data(), static_cast<std::size_t>(n)};
  };
  if (auto length = header_value(head, "Content-Length"); !length.empty()) {
    std::uint64_t size = 0;
    std::from_chars(length.data(), length.data() + length.size(), size);
    while (answer.body_bytes < size)
      answer.body_bytes += more().size();
    return answer;
  }
  // Chunked: sizes are read, contents skipped over in place.
  enum { in_size, in_content, after_content, in_trailer } state = in_size;
  std::uint64_t left = 0;
  std::string line;
  for (;;) {
    auto bytes = more();
    while (!bytes.empty()) {
      if (state == in_content) {
        auto n = std::min<std::uint64_t>(left, bytes.size());
        answer.body_bytes += n;
        left -= n;
        bytes.remove_prefix(n);
        if (left == 0)
          state = after_content;
        continue;
      }
      auto newline = bytes.find('\n');
      line.append(bytes.substr(0, newline));
      if (newline == std::string_view::npos)
        break;
      bytes.remove_prefix(newline + 1);
      if (!line.empty() && line.back() == '\r')
        line.pop_back();
      if (state == in_size) {
        std::from_chars(line.data(), line.data() + line.size(), left, 16);
        state = left == 0 ? in_trailer : in_content;
      } else if (state == after_content) {
        state = in_size;
      } else if (line.empty()) {
        return answer;
      }
      line.clear();
    }
  }
}

reply raw_client::upload(std::string_view target, std::uint64_t bytes,
                         const std::function<std::size_t(char*, std::size_t)>& fill) {
  send("PUT " + std::string(target) + " HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + key_
       + "\r\nContent-Type: application/octet-stream\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n");
  std::vector<char> buffer(piece);
  while (bytes > 0) {
    auto n = fill(buffer.data(), std::min<std::uint64_t>(buffer.size(), bytes));
    if (n == 0)
      give_up("the source of an upload ended early");
    send({buffer.data(), n});
    bytes -= n;
  }
  for (;;)
    if (auto answer = take()) {
      if (answer->status / 100 != 2)
        give_up("an upload answered " + std::to_string(answer->status) + ": " + answer->body);
      return std::move(*answer);
    }
}

std::string create_environment(raw_client& client) {
  auto answer = client.must("POST", "/v1/environments", "{}");
  auto at = answer.body.find("\"id\":\"");
  if (at == std::string::npos)
    give_up("the new environment has no id: " + answer.body);
  at += 6;
  return answer.body.substr(at, answer.body.find('"', at) - at);
}

void delete_environment(raw_client& client, const std::string& id) {
  client.must("DELETE", "/v1/environments/" + id);
}

void put_program(raw_client& client, const std::string& environment, const std::string& local,
                 const std::string& path) {
  int fd = ::open(local.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    give_up("cannot read " + local);
  client.upload("/v1/environments/" + environment + "/files" + path + "?mode=0755", fs::file_size(local),
                [fd](char* buffer, std::size_t size) {
                  return static_cast<std::size_t>(std::max<ssize_t>(::read(fd, buffer, size), 0));
                });
  ::close(fd);
}

void spawn_and_wait(const std::vector<std::string>& words, const std::vector<std::pair<int, int>>& more_fds) {
  int out[2];
  if (::pipe2(out, O_CLOEXEC) != 0)
    give_up("no pipe");
  auto fds = more_fds;
  fds.emplace_back(out[1], 1);
  auto pid = spawn(words, fds);
  ::close(out[1]);
  char buffer[4096];
  while (::read(out[0], buffer, sizeof buffer) > 0) {
  }
  ::close(out[0]);
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid || status != 0)
    give_up(words[0] + " ended with status " + std::to_string(status));
}

std::string static_true() {
  return (own_folder() / "static_true").string();
}

summary summarise(std::vector<double> values) {
  if (values.empty())
    return {};
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values[std::min(values.size() - 1, values.size() * 99 / 100)]};
}

memory_kib memory_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps_rollup");
  memory_kib sum;
  for (std::string line; std::getline(file, line);) {
    auto value = std::atol(line.c_str() + line.find(':') + 1);
    if (line.starts_with("Private_"))
      sum.own += value;
    if (line.starts_with("Rss:"))
      sum.resident += value;
  }
  return sum;
}

void print_row(const char* name, const summary& values, const char* unit) {
  std::printf("%-58s p50 %9.3f  p99 %9.3f %s\n", name, values.p50, values.p99, unit);
}

} // namespace holt::bench
