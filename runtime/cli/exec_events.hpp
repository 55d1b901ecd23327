#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "protocols/sse.hpp"
#include "runtime/cli/failure.hpp"

/// The events of a command's stream, taken apart: `started`, `stdout`, `stderr`, `gap`, `exit`, `error`. Pure.
namespace holt::runtime::cli {

struct command_started {};

struct command_output {
  bool stderr_ = false; // `stderr` is a macro
  std::string bytes;
};

/// Bytes [from, to) of its output will never come.
struct output_gap {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
};

struct command_exit {
  std::optional<int> exit_code;
  std::optional<std::string> signal;
  std::string state;
  std::string reason; // "out_of_memory" …, or empty
  std::string json;   // the event's whole data
};

/// One of a later version, which this client may skip.
struct other_event {};

using exec_event = std::variant<command_started, command_output, output_gap, command_exit, other_event>;

/// An `error` event is the failure that it tells of; one whose data makes no sense is exit_bug.
result<exec_event> read_exec_event(const protocols::sse_event& event);

/// What `holt exec` returns: the command's exit code, 128+n for a signal. nullopt: it is not known how it ended.
std::optional<int> exit_status(const command_exit& ended);

/// "SIGTERM" → 15; 0: unknown.
int signal_number(std::string_view name);

} // namespace holt::runtime::cli
