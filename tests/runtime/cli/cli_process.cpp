#include "tests/runtime/cli/cli_process.hpp"

#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace holt::test {

namespace {
void read_to_end(int fd, std::string& into) {
  char buffer[65536];
  for (;;) {
    auto n = ::read(fd, buffer, sizeof buffer);
    if (n <= 0)
      return;
    into.append(buffer, static_cast<std::size_t>(n));
  }
}
} // namespace

cli_process::cli_process(std::vector<std::string> args, std::map<std::string, std::string> variables, bool stdin_open) {
  int in[2] = {-1, -1};
  int out[2];
  int err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0 || (stdin_open && ::pipe2(in, O_CLOEXEC) != 0))
    std::abort();
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  if (stdin_open)
    ::posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  else
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  ::posix_spawn_file_actions_adddup2(&actions, err[1], 2);
  args.insert(args.begin(), HOLT_CLI_PROGRAM);
  std::vector<char*> argv;
  for (auto& word : args)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  variables.emplace("PATH", "/usr/local/bin:/usr/bin:/bin");
  std::vector<std::string> pairs;
  for (const auto& [name, value] : variables)
    pairs.push_back(name + '=' + value);
  std::vector<char*> envp;
  for (auto& pair : pairs)
    envp.push_back(pair.data());
  envp.push_back(nullptr);
  if (::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), envp.data()) != 0)
    std::abort();
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(out[1]);
  ::close(err[1]);
  if (stdin_open)
    ::close(in[0]);
  stdin_ = in[1];
  stdout_ = out[0];
  stderr_ = err[0];
  out_reader_ = std::thread([this] { read_to_end(stdout_, out_); });
  err_reader_ = std::thread([this] { read_to_end(stderr_, err_); });
}

cli_process::~cli_process() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    wait();
  }
  close_stdin();
  ::close(stdout_);
  ::close(stderr_);
}

void cli_process::write_stdin(const std::string& bytes) {
  if (::write(stdin_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    std::abort();
}

void cli_process::close_stdin() {
  if (stdin_ >= 0)
    ::close(stdin_);
  stdin_ = -1;
}

void cli_process::signal(int number) {
  ::kill(pid_, number);
}

int cli_process::wait() {
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  if (out_reader_.joinable())
    out_reader_.join();
  if (err_reader_.joinable())
    err_reader_.join();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

} // namespace holt::test
