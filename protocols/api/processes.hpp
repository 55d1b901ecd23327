#pragma once

#include <map>

#include "protocols/api/common.hpp"
#include "protocols/ids.hpp"

/// Commands and processes as the API shows and takes them (spec 37 to 44). Pure.
namespace holt::protocols::api {

inline constexpr std::uint64_t max_output_limit = 32 * 1024 * 1024;

namespace rules_of {
inline constexpr json::field_rule argv{.name = "argv",
                                       .doc = "Program and arguments; no shell. Either this or `command`.",
                                       .max_length = 131072,
                                       .min_items = 1,
                                       .max_items = 4096,
                                       .no_nul = true};
inline constexpr json::field_rule command{.name = "command",
                                          .doc = "For the environment's shell. Either this or `argv`.",
                                          .min_length = 1,
                                          .max_length = 131072,
                                          .no_nul = true};
inline constexpr json::field_rule cwd{.name = "cwd",
                                      .doc = "Directory; default: the workspace, which relative ones start at.",
                                      .min_length = 1,
                                      .max_length = 4096,
                                      .no_nul = true};
inline constexpr json::field_rule env{.name = "env",
                                      .doc = "Environment variables beside the instance's own.",
                                      .max_length = 131072,
                                      .max_items = 1024,
                                      .no_nul = true};
inline constexpr json::field_rule timeout_ms{.name = "timeout_ms",
                                             .doc = "Time of running after which the whole process tree is ended.",
                                             .min = 1,
                                             .max = std::int64_t{30} * 24 * 3600 * 1000};
inline constexpr json::field_rule op_id{.name = "op_id",
                                        .doc = "The caller's id of this operation, the same as Idempotency-Key. Asked again "
                                               "with equal arguments, it attaches and runs nothing twice.",
                                        .min_length = 1,
                                        .max_length = 128,
                                        .pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]*$",
                                        .check = is_op_id,
                                        .expected = "1 to 128 letters, digits, _, - and ., beginning with a letter or digit"};
inline constexpr json::field_rule holder{.name = "holder",
                                         .doc = "Conversation or client that uses the environment; it is told `restarted` "
                                                "when its processes are gone.",
                                         .min_length = 1,
                                         .max_length = 128,
                                         .no_nul = true};
inline constexpr json::field_rule output_encoding{.name = "output_encoding",
                                                  .doc = "`base64` gives the exact bytes; `utf-8` is repaired and marked `lossy`.",
                                                  .one_of = "utf-8|base64"};
inline constexpr json::field_rule max_output{.name = "max_output_bytes",
                                             .doc = "Bytes of stdout and of stderr in the answer; the log has the rest.",
                                             .min = 0,
                                             .max = static_cast<std::int64_t>(max_output_limit)};
} // namespace rules_of

struct exec_request {
  std::optional<std::string> command;
  std::optional<std::vector<std::string>> argv;
  std::optional<std::string> cwd;
  std::optional<std::map<std::string, std::string>> env;
  std::optional<api::bytes> stdin; // also a macro of <cstdio>, which names itself
  bool keep_stdin_open = false;
  std::optional<std::uint64_t> timeout_ms;
  std::optional<std::string> op_id;
  std::optional<std::string> holder;
  std::string output_encoding = "utf-8";
  std::uint64_t max_output_bytes = 1024 * 1024;
  static constexpr std::array rules{rules_of::command, rules_of::argv, rules_of::cwd, rules_of::env, rules_of::timeout_ms,
                                    rules_of::op_id, rules_of::holder, rules_of::output_encoding, rules_of::max_output,
                                    json::field_rule{.name = "stdin", .doc = "Standard input; without it, it is empty."},
                                    json::field_rule{.name = "keep_stdin_open",
                                                     .doc = "Standard input is a pipe that `…/stdin` writes to, instead of "
                                                            "`stdin`. For event streams: a client that waits for the whole "
                                                            "answer can't write."}};
};
BOOST_DESCRIBE_STRUCT(exec_request, (),
                      (command, argv, cwd, env, stdin, keep_stdin_open, timeout_ms, op_id, holder, output_encoding,
                       max_output_bytes))

struct exec_result {
  std::string op_id;
  std::string state; // "exited", "killed", "timed_out", "stopped", "unknown"
  std::optional<std::int32_t> exit_code;
  std::optional<std::string> signal;
  std::optional<std::string> reason;
  bool timed_out = false;
  std::string output_encoding;
  std::string stdout;
  std::string stderr;
  bool lossy = false;
  bool truncated = false;
  std::uint64_t stdout_bytes = 0;
  std::uint64_t stderr_bytes = 0;
  std::optional<std::vector<missing_range>> missing;
  bool output_open = false;
  std::optional<std::uint32_t> survivors;
  bool restarted = false;
  std::uint64_t duration_ms = 0;
  static constexpr std::array required{"op_id",  "state",     "timed_out",    "output_encoding", "stdout",    "stderr",
                                       "lossy",  "truncated", "stdout_bytes", "stderr_bytes",    "restarted", "duration_ms"};
  static constexpr std::array rules{
    json::field_rule{.name = "state",
                     .doc = "How it ended; `unknown`: the agent's run ended before the process did.",
                     .one_of = "exited|killed|timed_out|stopped|unknown|running"},
    json::field_rule{.name = "exit_code", .doc = "Only of a process that was reaped."},
    json::field_rule{.name = "signal", .doc = "That ended it, as `SIGTERM`."},
    json::field_rule{.name = "reason", .doc = "`out_of_memory`, `process_limit`: why, where it is known."},
    rules_of::output_encoding,
    json::field_rule{.name = "lossy", .doc = "Output was not UTF-8 and has been repaired."},
    json::field_rule{.name = "truncated", .doc = "There was more than `max_output_bytes`: see `…/processes/{op_id}/log`."},
    json::field_rule{.name = "stdout_bytes", .doc = "How much the process wrote in all."},
    json::field_rule{.name = "stderr_bytes", .doc = "How much the process wrote in all."},
    json::field_rule{.name = "missing", .doc = "Ranges of the log that did not arrive."},
    json::field_rule{.name = "output_open", .doc = "A child still held the output when the process ended."},
    json::field_rule{.name = "survivors", .doc = "Processes that a stop could not end."},
    json::field_rule{.name = "restarted", .doc = "The instance was replaced since this holder's last use: processes are gone."}};
};
BOOST_DESCRIBE_STRUCT(exec_result, (),
                      (op_id, state, exit_code, signal, reason, timed_out, output_encoding, stdout, stderr, lossy, truncated,
                       stdout_bytes, stderr_bytes, missing, output_open, survivors, restarted, duration_ms))

/// POST …/processes: in the background.
struct start_process {
  std::optional<std::string> command;
  std::optional<std::vector<std::string>> argv;
  std::optional<std::string> cwd;
  std::optional<std::map<std::string, std::string>> env;
  bool keep_stdin_open = false;
  std::optional<std::uint64_t> timeout_ms;
  std::optional<std::string> op_id;
  std::optional<std::string> holder;
  static constexpr std::array rules{
    rules_of::command, rules_of::argv, rules_of::cwd, rules_of::env, rules_of::timeout_ms, rules_of::op_id, rules_of::holder,
    json::field_rule{.name = "keep_stdin_open", .doc = "Standard input is a pipe that `…/stdin` writes to; else it is empty."}};
};
BOOST_DESCRIBE_STRUCT(start_process, (), (command, argv, cwd, env, keep_stdin_open, timeout_ms, op_id, holder))

struct process_started {
  std::string op_id;
  std::string state;
  bool attached = false;
  std::optional<std::int64_t> pid;
  bool restarted = false;
  static constexpr std::array required{"op_id", "state", "attached", "restarted"};
  static constexpr std::array rules{
    json::field_rule{.name = "attached", .doc = "The id was known: nothing was started again."},
    json::field_rule{.name = "pid", .doc = "Inside the instance."}};
};
BOOST_DESCRIBE_STRUCT(process_started, (), (op_id, state, attached, pid, restarted))

struct process_view {
  std::string op_id;
  std::string state;
  bool background = false;
  bool terminal = false;
  std::optional<std::string> command;
  std::optional<std::int64_t> pid;
  std::optional<std::int32_t> exit_code;
  std::optional<std::string> signal;
  std::optional<std::string> reason;
  std::uint64_t output_bytes = 0;
  std::optional<missing_range> omitted;
  bool output_open = false;
  std::optional<std::uint32_t> survivors;
  std::uint64_t duration_ms = 0;
  std::string started_at;
  static constexpr std::array required{"op_id",        "state",       "background",  "terminal",
                                       "output_bytes", "output_open", "duration_ms", "started_at"};
  static constexpr std::array rules{
    json::field_rule{.name = "state",
                     .doc = "`unknown`: the agent's run ended before the process did.",
                     .one_of = "running|exited|killed|timed_out|stopped|unknown"},
    json::field_rule{.name = "output_bytes", .doc = "End of its log."},
    json::field_rule{.name = "omitted", .doc = "What the log doesn't keep."},
    json::field_rule{.name = "output_open", .doc = "A child still held the output when the process ended."},
    json::field_rule{.name = "survivors", .doc = "Processes that a stop could not end."}};
};
BOOST_DESCRIBE_STRUCT(process_view, (),
                      (op_id, state, background, terminal, command, pid, exit_code, signal, reason, output_bytes, omitted,
                       output_open, survivors, duration_ms, started_at))

struct process_views {
  std::vector<process_view> items;
  static constexpr std::array required{"items"};
};
BOOST_DESCRIBE_STRUCT(process_views, (), (items))

struct log_piece {
  std::string stream; // "stdout", "stderr"
  std::uint64_t offset = 0;
  std::string data;
  static constexpr std::array required{"stream", "offset", "data"};
};
BOOST_DESCRIBE_STRUCT(log_piece, (), (stream, offset, data))

struct log_view {
  std::uint64_t from = 0;
  std::uint64_t next = 0;
  std::uint64_t end = 0;
  bool running = false;
  std::string output_encoding;
  bool lossy = false;
  std::optional<missing_range> omitted;
  std::vector<log_piece> pieces;
  static constexpr std::array required{"from", "next", "end", "running", "output_encoding", "lossy", "pieces"};
  static constexpr std::array rules{json::field_rule{.name = "next", .doc = "Where to read on."},
                                    json::field_rule{.name = "end", .doc = "End of the log now."}};
};
BOOST_DESCRIBE_STRUCT(log_view, (), (from, next, end, running, output_encoding, lossy, omitted, pieces))

struct signal_request {
  std::string signal;
  static constexpr std::array required{"signal"};
  static constexpr std::array rules{json::field_rule{.name = "signal",
                                                     .doc = "To the process's group.",
                                                     .min_length = 4,
                                                     .max_length = 16,
                                                     .pattern = "^SIG[A-Z0-9]+$"}};
};
BOOST_DESCRIBE_STRUCT(signal_request, (), (signal))

struct stop_request {
  std::uint64_t grace_ms = 2000;
  static constexpr std::array rules{
    json::field_rule{.name = "grace_ms", .doc = "From TERM to KILL.", .min = 0, .max = 600000}};
};
BOOST_DESCRIBE_STRUCT(stop_request, (), (grace_ms))

struct resize_request {
  std::uint16_t cols = 80;
  std::uint16_t rows = 24;
  static constexpr std::array required{"cols", "rows"};
  static constexpr std::array rules{json::field_rule{.name = "cols", .doc = "Columns.", .min = 1, .max = 4096},
                                    json::field_rule{.name = "rows", .doc = "Lines.", .min = 1, .max = 4096}};
};
BOOST_DESCRIBE_STRUCT(resize_request, (), (cols, rows))

struct stdin_answer {
  std::uint64_t written_bytes = 0;
  bool closed = false;
  std::string state;
  static constexpr std::array required{"written_bytes", "closed", "state"};
};
BOOST_DESCRIBE_STRUCT(stdin_answer, (), (written_bytes, closed, state))

} // namespace holt::protocols::api
