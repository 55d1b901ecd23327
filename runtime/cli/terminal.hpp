#pragma once

#include <cstdint>
#include <string>

#include <termios.h>

#include "runtime/cli/failure.hpp"

/// The terminal that the client was started on. Main thread.
namespace holt::runtime::cli {

/// Changes a terminal's mode and gives it back as it was, however the scope is left (except by SIGKILL).
class terminal_mode {
public:
  /// Every key goes through as it is typed: no echo, no lines, no signals.
  static terminal_mode raw(int fd);
  /// Lines as usual, but not shown: for keys.
  static terminal_mode hidden(int fd);
  terminal_mode(terminal_mode&& other) noexcept;
  terminal_mode& operator=(terminal_mode&&) = delete;
  ~terminal_mode();

private:
  terminal_mode(int fd, const termios& before) : fd_(fd), before_(before) {
  }
  int fd_ = -1;
  termios before_{};
};

struct window_size {
  std::uint16_t cols = 80;
  std::uint16_t rows = 24;
};
window_size size_of_terminal(int fd);

/// Asks on the terminal (stderr) and reads a line of stdin.
result<std::string> ask_line(const std::string& question, bool hidden);

} // namespace holt::runtime::cli
