#pragma once

#include <map>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

/// The client as a process of its own, with its own stdin, stdout, stderr, signals and environment.
namespace holt::test {

class cli_process {
public:
  /// `stdin_open`: a pipe that write_stdin feeds; else /dev/null. Only the given variables and PATH are set.
  cli_process(std::vector<std::string> args, std::map<std::string, std::string> variables, bool stdin_open = false);
  ~cli_process();

  void write_stdin(const std::string& bytes);
  void close_stdin();
  void signal(int number);
  /// Waits for its end: the exit code, or 1000 + the signal.
  int wait();
  /// After wait().
  const std::string& out() const {
    return out_;
  }
  const std::string& err() const {
    return err_;
  }

private:
  pid_t pid_ = -1;
  int stdin_ = -1;
  int stdout_ = -1;
  int stderr_ = -1;
  std::string out_;
  std::string err_;
  std::thread out_reader_;
  std::thread err_reader_;
};

} // namespace holt::test
