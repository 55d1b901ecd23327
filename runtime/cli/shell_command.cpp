#include "runtime/cli/shell_command.hpp"

#include <algorithm>
#include <chrono>

#include <poll.h>
#include <unistd.h>

#include "runtime/cli/local_file.hpp"
#include "runtime/cli/shell_session.hpp"
#include "runtime/cli/terminal.hpp"

namespace holt::runtime::cli {

using namespace std::chrono_literals;

namespace {

constexpr auto longest_outage = 60s;

/// Waits between two tries. False: the person pressed Ctrl-C, which is only a byte in raw mode.
bool pause_unless_given_up(std::chrono::milliseconds pause) {
  pollfd keyboard{0, POLLIN, 0};
  auto end = std::chrono::steady_clock::now() + pause;
  for (;;) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left <= 0ms)
      return true;
    if (::poll(&keyboard, 1, static_cast<int>(left.count())) <= 0)
      continue;
    char c = 0;
    if (::read(0, &c, 1) <= 0 || c == '\x03')
      return false;
  }
}

} // namespace

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const auto& word : words) {
    line += line.empty() ? "'" : " '";
    for (char c : word)
      line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

result<int> shell_in_environment(api& server, const shell_options& options) {
  if (!::isatty(0) || !::isatty(1))
    return fail(exit_usage,
                "a shell needs a terminal on stdin and stdout; for a command without one: holt exec ENV -- CMD");
  auto environment_id = server.find_environment(options.environment);
  if (!environment_id)
    return tl::unexpected(environment_id.error());

  shell_state state;
  auto size = size_of_terminal(0);
  auto target = "/v1/environments/" + *environment_id + "/terminal?cols=" + std::to_string(size.cols)
                + "&rows=" + std::to_string(size.rows);
  auto first = options.argv.empty() ? std::string{} : "&command=" + percent_encode(shell_line(options.argv), false);

  auto mode = terminal_mode::raw(0);
  auto lost_since = std::chrono::steady_clock::now();
  auto pause = std::chrono::milliseconds(200);
  for (;;) {
    auto position = state.position;
    auto was_started = state.started;
    auto how = state.started
                   ? "&op_id=" + percent_encode(state.op_id, false) + "&from=" + std::to_string(state.position)
                   : first;
    auto outcome = run_shell_session(server.client().access(), target + how, state);
    if (state.exit_status)
      return *state.exit_status;
    if (outcome)
      return fail(exit_bug, "the terminal ended without a word; the server's log may say why");
    if (outcome.error().code != exit_unavailable || !state.started
        || outcome.error().problem == "operation.outcome_unknown")
      return tl::unexpected(outcome.error());
    auto now = std::chrono::steady_clock::now();
    if (state.position != position || !was_started) {
      lost_since = now;
      pause = 200ms;
    }
    if (now - lost_since > longest_outage || !pause_unless_given_up(pause))
      return tl::unexpected(outcome.error());
    pause = std::min<std::chrono::milliseconds>(pause * 2, 5s);
  }
}

} // namespace holt::runtime::cli
