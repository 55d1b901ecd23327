#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace holt::tests {

/// A process whose standard output is read by lines, and which is killed at the latest with this object.
class child_process {
public:
  explicit child_process(std::vector<std::string> command) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      throw std::runtime_error("no pipe");
    }
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    std::vector<char*> argv;
    for (auto& each : command) {
      argv.push_back(each.data());
    }
    argv.push_back(nullptr);
    int failed = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    output_ = ends[0];
    if (failed != 0) {
      ::close(output_);
      throw std::runtime_error("can't start " + command[0]);
    }
  }
  child_process(const child_process&) = delete;
  child_process& operator=(const child_process&) = delete;
  ~child_process() {
    kill_and_wait();
    ::close(output_);
  }

  /// The next whole line, without its end. False: the output has ended.
  bool read_line(std::string& line) {
    for (;;) {
      if (auto end = held_.find('\n'); end != std::string::npos) {
        line = held_.substr(0, end);
        held_.erase(0, end + 1);
        return true;
      }
      char bytes[4096];
      auto got = ::read(output_, bytes, sizeof bytes);
      if (got <= 0) {
        return false;
      }
      held_.append(bytes, static_cast<std::size_t>(got));
    }
  }

  void kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
    }
  }

  /// The wait status. Only once.
  int wait() {
    int status = -1;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

private:
  void kill_and_wait() {
    if (pid_ > 0) {
      kill();
      wait();
    }
  }

  pid_t pid_ = -1;
  int output_ = -1;
  std::string held_;
};

} // namespace holt::tests
