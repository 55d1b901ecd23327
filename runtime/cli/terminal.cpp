#include "runtime/cli/terminal.hpp"

#include <cerrno>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>

#include "runtime/cli/local_file.hpp"

namespace holt::runtime::cli {

terminal_mode terminal_mode::raw(int fd) {
  termios before{};
  if (::tcgetattr(fd, &before) != 0)
    return {-1, before};
  auto mode = before;
  ::cfmakeraw(&mode);
  ::tcsetattr(fd, TCSADRAIN, &mode);
  return {fd, before};
}

terminal_mode terminal_mode::hidden(int fd) {
  termios before{};
  if (::tcgetattr(fd, &before) != 0)
    return {-1, before};
  auto mode = before;
  mode.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  mode.c_lflag |= ECHONL;
  ::tcsetattr(fd, TCSADRAIN, &mode);
  return {fd, before};
}

terminal_mode::terminal_mode(terminal_mode&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), before_(other.before_) {
}

terminal_mode::~terminal_mode() {
  if (fd_ >= 0)
    ::tcsetattr(fd_, TCSADRAIN, &before_);
}

window_size size_of_terminal(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {};
  return {size.ws_col, size.ws_row};
}

result<std::string> ask_line(const std::string& question, bool hidden) {
  (void)write_all(2, question);
  auto mode = hidden ? terminal_mode::hidden(0) : terminal_mode::hidden(-1);
  std::string line;
  for (char c = 0;;) { // by the byte: what follows the line stays for the next question
    auto n = ::read(0, &c, 1);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0 && line.empty())
      return fail(exit_usage, "nothing was entered");
    if (n <= 0 || c == '\n')
      return line;
    line += c;
    if (line.size() > 4096)
      return fail(exit_usage, "what was entered is too long");
  }
}

} // namespace holt::runtime::cli
