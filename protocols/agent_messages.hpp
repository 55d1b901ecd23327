#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <boost/describe/class.hpp>

#include "protocols/json.hpp"

/// The control messages of the agent protocol, version 1, and the arguments and results of its operations.
///
/// Each control payload is one JSON object with `kind` (the `kind` constant of the struct; it is not a described member).
/// Unknown fields are ignored. Positions and sizes are bytes, durations carry `_ms`.
namespace holt::protocols::agent {

inline constexpr std::uint32_t protocol_version = 1;

/// A name that may hold any bytes: `"text"` when it is UTF-8, else `{"b64": "…"}`. Read and written by json_bytes.hpp.
struct raw_name {
  std::string bytes;
  friend auto operator<=>(const raw_name&, const raw_name&) = default;
};

// -- handshake ---------------------------------------------------------------------------------------------------------

struct version_range {
  std::uint32_t min = protocol_version;
  std::uint32_t max = protocol_version;
};
BOOST_DESCRIBE_STRUCT(version_range, (), (min, max))

/// Server → agent, first message.
struct challenge {
  static constexpr const char* kind = "challenge";
  std::string purpose; // "agent"
  std::string issuer;
  std::string nonce;
  std::int64_t server_time = 0; // microseconds since 1970
  version_range versions;
};
BOOST_DESCRIBE_STRUCT(challenge, (), (purpose, issuer, nonce, server_time, versions))

struct roots {
  std::string workspace;
  std::string skills;
  std::string tmp;
  friend bool operator==(const roots&, const roots&) = default;
};
BOOST_DESCRIBE_STRUCT(roots, (), (workspace, skills, tmp))

/// One operation that the agent still knows of a dropped session.
struct resumed_operation {
  std::string op_id;
  std::string state; // see ledger_state
};
BOOST_DESCRIBE_STRUCT(resumed_operation, (), (op_id, state))

/// Agent → server.
struct hello {
  static constexpr const char* kind = "hello";
  version_range versions;
  std::string process_id; // random id of this run of the agent
  std::string agent_version;
  std::string os;    // "linux"
  std::string shell; // "/bin/sh"
  protocols::agent::roots roots;
  std::vector<std::string> capabilities;
  std::optional<std::string> machine_id;
  std::optional<std::string> signature;
  std::optional<std::string> session_id; // of the session to resume
  std::optional<std::vector<resumed_operation>> operations;
};
BOOST_DESCRIBE_STRUCT(hello, (),
                      (versions, process_id, agent_version, os, shell, roots, capabilities, machine_id, signature,
                       session_id, operations))

/// Server → agent, ends the handshake.
struct welcome {
  static constexpr const char* kind = "welcome";
  std::string session_id;
  std::string incarnation; // of the database; epochs compare within one
  std::uint64_t epoch = 0; // the agent refuses one lower than it has seen in this incarnation
  bool resumed = false;
  std::uint32_t heartbeat_ms = 15000;
  std::uint32_t dead_ms = 40000;
};
BOOST_DESCRIBE_STRUCT(welcome, (), (session_id, incarnation, epoch, resumed, heartbeat_ms, dead_ms))

/// Either side, before it closes for a fault of the other: malformed frame, refused handshake, unknown kind.
struct protocol_error {
  static constexpr const char* kind = "error";
  std::string code; // "protocol.malformed", "protocol.version", "protocol.stale_epoch", "unsupported"
  std::string message;
};
BOOST_DESCRIBE_STRUCT(protocol_error, (), (code, message))

// -- operations --------------------------------------------------------------------------------------------------------

/// A stream of an operation. `stream` is chosen by the server, unique in the connection, never 0. Names: "output" and
/// "stdin" of a process, "body" of the others (in either direction).
struct stream_ref {
  std::string name;
  std::uint32_t stream = 0;
};
BOOST_DESCRIBE_STRUCT(stream_ref, (), (name, stream))

/// Server → agent. Answered by `op.accepted` then `op.result`, or by `op.result` alone (refused: never started; or done
/// long ago).
struct op_start {
  static constexpr const char* kind = "op.start";
  std::string op_id;
  std::string operation; // "process.start", "file.read", …
  json::value arguments; // of the operation's struct below
  std::string digest;    // SHA-256 (hex) of what the caller gave; same id, other digest → operation.conflict
  bool durable = false;  // the id came from a caller, who may ask again: the ledger is synced before the act
  std::vector<stream_ref> streams;
};
BOOST_DESCRIBE_STRUCT(op_start, (), (op_id, operation, arguments, digest, durable, streams))

/// Server → agent: streams of a running or ended process from a position of its log, and its result when it ends.
struct op_attach {
  static constexpr const char* kind = "op.attach";
  std::string op_id;
  std::uint64_t from = 0;
  bool follow = true; // false: only what is there now; then op.result with state "running" if it runs on
  std::vector<stream_ref> streams;
};
BOOST_DESCRIBE_STRUCT(op_attach, (), (op_id, from, follow, streams))

/// Server → agent: ends the operation. For a process: its whole tree. Answered by the operation's own op.result.
struct op_cancel {
  static constexpr const char* kind = "op.cancel";
  std::string op_id;
};
BOOST_DESCRIBE_STRUCT(op_cancel, (), (op_id))

/// Server → agent: takes this connection's streams off the operation, which goes on (spec 43). Not answered.
struct op_detach {
  static constexpr const char* kind = "op.detach";
  std::string op_id;
  std::vector<std::uint32_t> streams;
};
BOOST_DESCRIBE_STRUCT(op_detach, (), (op_id, streams))

/// Server → agent: drops a kept result's bytes; the id stays known. Not answered.
struct op_forget {
  static constexpr const char* kind = "op.forget";
  std::string op_id;
};
BOOST_DESCRIBE_STRUCT(op_forget, (), (op_id))

/// Server → agent: what is known of these ids. Answered by op_states.
struct op_query {
  static constexpr const char* kind = "op.query";
  std::string query_id;
  std::vector<std::string> op_ids;
};
BOOST_DESCRIBE_STRUCT(op_query, (), (query_id, op_ids))

/// "running", "done", "unknown" (started, no result, the agent's run ended), "expired", "never" (not in the ledger).
struct op_state {
  std::string op_id;
  std::string state;
};
BOOST_DESCRIBE_STRUCT(op_state, (), (op_id, state))

struct op_states {
  static constexpr const char* kind = "op.states";
  std::string query_id;
  std::vector<op_state> states;
};
BOOST_DESCRIBE_STRUCT(op_states, (), (query_id, states))

/// Agent → server: it is in the ledger, and happens now or ran already (attached to it).
struct op_accepted {
  static constexpr const char* kind = "op.accepted";
  std::string op_id;
  bool attached = false; // the id was known: nothing was started again
  std::optional<std::int64_t> pid;
  std::optional<std::uint64_t> input_position; // of a process: bytes of "stdin" streams that it has been given so far
};
BOOST_DESCRIBE_STRUCT(op_accepted, (), (op_id, attached, pid, input_position))

struct operation_error {
  std::string code;    // of the API: "file.not_found", "operation.conflict", …
  std::string message; // paths in it are the agent's own
  std::string retry = "never"; // "never", "after_change", "later"
  std::optional<json::value> details;
};
BOOST_DESCRIBE_STRUCT(operation_error, (), (code, message, retry, details))

struct stream_final {
  std::uint32_t stream = 0;
  std::uint64_t position = 0;
};
BOOST_DESCRIBE_STRUCT(stream_final, (), (stream, position))

/// Agent → server. The receiver delivers it once it has every stream up to `finals`, or the gap that explains them.
struct op_result {
  static constexpr const char* kind = "op.result";
  std::string op_id;
  std::string outcome; // "done", "not_started", "unknown"
  std::optional<json::value> result;
  std::optional<operation_error> error;
  std::vector<stream_final> finals;
};
BOOST_DESCRIBE_STRUCT(op_result, (), (op_id, outcome, result, error, finals))

/// Agent → server: bytes [from, to) of this stream will never come.
struct gap {
  static constexpr const char* kind = "gap";
  std::uint32_t stream = 0;
  std::uint64_t from = 0;
  std::uint64_t to = 0;
};
BOOST_DESCRIBE_STRUCT(gap, (), (stream, from, to))

// -- processes ---------------------------------------------------------------------------------------------------------

struct terminal_size {
  std::uint16_t cols = 80;
  std::uint16_t rows = 24;
};
BOOST_DESCRIBE_STRUCT(terminal_size, (), (cols, rows))

/// process.start. Exactly one of argv and command. Streams: "output" (optional: without it the process is detached and
/// its output goes to the log alone), "stdin" (with stdin = "pipe" or a terminal).
struct process_start {
  std::optional<std::vector<std::string>> argv;
  std::optional<std::string> command; // for shell -c
  std::optional<std::string> cwd;     // default: workspace; relative to it
  std::optional<std::map<std::string, std::string>> env;
  std::string stdin_mode = "none"; // "none" (/dev/null), "pipe"
  std::optional<terminal_size> terminal;
  bool background = false;
  std::optional<std::uint64_t> timeout_ms; // of running; stands still while the instance is frozen
  std::uint64_t grace_ms = 2000;           // from TERM to KILL
  std::uint64_t drain_ms = 100;            // how long output is awaited after the leader's end while a child holds the pipes
  std::uint64_t log_head_bytes = 8 * 1024 * 1024;
  std::uint64_t log_tail_bytes = 8 * 1024 * 1024;
};
BOOST_DESCRIBE_STRUCT(process_start, (),
                      (argv, command, cwd, env, stdin_mode, terminal, background, timeout_ms, grace_ms, drain_ms,
                       log_head_bytes, log_tail_bytes))

struct byte_range {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
};
BOOST_DESCRIBE_STRUCT(byte_range, (), (from, to))

/// The state of a process, and the result of process.start and op.attach once it ended (state is not "running" then).
struct process_state {
  std::string op_id;
  std::string state; // "running", "exited", "killed", "timed_out", "stopped", "unknown" (agent's run ended before it)
  bool background = false;
  bool terminal = false;
  std::optional<std::string> command; // as a person would write it
  std::optional<std::int64_t> pid;    // inside the instance
  std::optional<std::int32_t> exit_code;   // only of a reaped leader
  std::optional<std::string> signal;       // "SIGTERM": only of a reaped leader
  std::optional<std::string> reason;       // "out_of_memory", "process_limit": why, where the agent knows
  std::uint64_t output_bytes = 0;          // end of the log
  std::optional<byte_range> omitted;       // what the log doesn't keep
  bool output_open = false;                // a child still held the pipes when the answer was given
  std::optional<std::uint32_t> survivors;  // processes that a stop could not end
  std::uint64_t duration_ms = 0;
  std::int64_t started_at = 0; // microseconds since 1970
};
BOOST_DESCRIBE_STRUCT(process_state, (),
                      (op_id, state, background, terminal, command, pid, exit_code, signal, reason, output_bytes, omitted,
                       output_open, survivors, duration_ms, started_at))

struct process_list {
  std::vector<process_state> processes;
};
BOOST_DESCRIBE_STRUCT(process_list, (), (processes))

/// process.signal: to the process's group. `process` is its op_id. Result: process_state.
struct process_signal {
  std::string process;
  std::string signal; // "SIGINT"
};
BOOST_DESCRIBE_STRUCT(process_signal, (), (process, signal))

/// process.resize. Result: process_state.
struct process_resize {
  std::string process;
  terminal_size size;
};
BOOST_DESCRIBE_STRUCT(process_resize, (), (process, size))

/// process.stop: TERM to the whole tree, KILL after the grace; answers when no descendant lives. Also process.background
/// (only `process`) and process.get. Result: process_state.
struct process_ref {
  std::string process;
  std::uint64_t grace_ms = 2000;
};
BOOST_DESCRIBE_STRUCT(process_ref, (), (process, grace_ms))

/// process.stdin: appends the stream "body" to the process's standard input; `close` ends it. Result: process_state.
struct process_stdin {
  std::string process;
  bool close = false;
};
BOOST_DESCRIBE_STRUCT(process_stdin, (), (process, close))

/// process.read: what the log keeps of [from, from + max), as the stream "body" (frames marked for stderr).
struct process_read {
  std::string process;
  std::uint64_t from = 0;
  std::uint64_t max = 1024 * 1024;
  std::optional<std::string> only; // "stdout" or "stderr"
};
BOOST_DESCRIBE_STRUCT(process_read, (), (process, from, max, only))

struct process_read_result {
  std::uint64_t from = 0; // first position delivered
  std::uint64_t next = 0; // where to read on
  std::uint64_t end = 0;  // end of the log now
  bool running = false;
  std::optional<byte_range> omitted;
};
BOOST_DESCRIBE_STRUCT(process_read_result, (), (from, next, end, running, omitted))

// -- files -------------------------------------------------------------------------------------------------------------
// A path is absolute and inside a root, or relative to workspace. Symbolic links are followed while they stay inside.

struct file_entry {
  raw_name name; // the last component; the whole path below the asked directory when listing recursively
  std::string type; // "file", "directory", "symlink", "other"
  std::uint64_t size = 0;
  std::uint32_t mode = 0; // permission bits
  std::int64_t modified_at = 0; // microseconds since 1970
  std::optional<raw_name> target; // of a symlink
};

/// file.stat. Result: file_stat_result.
struct file_stat {
  raw_name path;
  bool follow = true;
  bool hash = false; // also the SHA-256 of a file
};
struct file_stat_result {
  raw_name path; // absolute
  file_entry entry;
  std::optional<std::string> sha256;
};

/// file.read: the stream "body". Result: file_read_result.
struct file_read {
  raw_name path;
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> length;
  std::optional<std::string> if_match; // SHA-256 the whole file must have
  bool hash = true;                    // false: no sha256 in the result, which spares half the work of a large read
};
struct file_read_result {
  std::uint64_t size = 0; // of the whole file
  std::uint64_t offset = 0;
  std::uint64_t length = 0; // sent
  std::uint32_t mode = 0;
  std::int64_t modified_at = 0;
  std::optional<std::string> sha256; // of the whole file, when the whole was read
};

/// file.write: the stream "body" into a temporary file beside, verified, synced, then renamed over. Result: file_write_result.
struct file_write {
  raw_name path;
  std::optional<std::uint64_t> size;
  std::optional<std::string> sha256;
  std::optional<std::string> if_match; // SHA-256 the present file must have; "" = there must be none
  std::optional<std::uint32_t> mode;   // of a new file, default 0644; an existing file keeps its own
  bool parents = true;                 // make missing directories
};
struct file_write_result {
  std::uint64_t size = 0;
  std::string sha256;
  bool created = false;
};

struct text_edit {
  std::string old_text;
  std::string new_text;
  bool all = false;
};
/// file.edit: all edits or none. Errors: edit.no_match, edit.several_matches, file.not_found, file.changed.
struct file_edit {
  raw_name path;
  std::vector<text_edit> edits;
  std::optional<std::string> if_match;
};
struct file_edit_result {
  std::uint32_t replacements = 0;
  std::uint64_t size = 0;
  std::string sha256;
};

/// file.list: the stream "body": one file_entry a line. Result: list_result.
struct file_list {
  raw_name path;
  bool recursive = false;
  std::uint64_t limit = 10000;
};
struct list_result {
  std::uint64_t count = 0;
  bool truncated = false;
};

/// file.mkdir (parents, mode); file.remove (recursive); file.move (from → to, replace). Results: file_stat_result, {} , file_stat_result.
struct file_mkdir {
  raw_name path;
  bool parents = true;
  std::optional<std::uint32_t> mode;
};
struct file_remove {
  raw_name path;
  bool recursive = false;
  std::optional<std::string> if_match;
};
struct file_move {
  raw_name from;
  raw_name to;
  bool replace = false;
};

/// file.watch: until cancelled, the stream "body": one watch_event a line.
struct file_watch {
  raw_name path;
  bool recursive = true;
};
struct watch_event {
  std::string event; // "created", "modified", "removed", "moved", "overflow"
  raw_name path;     // below the watched directory
  std::optional<raw_name> to;
};

/// search.glob: stream "body": one file_entry a line, by path. `**` crosses directories. Result: list_result.
struct search_glob {
  std::string pattern;
  std::optional<raw_name> path; // default: workspace
  bool ignore = false;          // respect .gitignore
  bool hidden = true;
  std::string order = "path"; // "path", "modified" (newest first)
  std::uint64_t limit = 1000;
};

/// search.grep: stream "body": one grep_record a line. Binary files are told, not printed.
struct search_grep {
  std::string pattern;
  bool literal = false;
  bool ignore_case = false;
  bool multiline = false;
  std::optional<raw_name> path;
  std::optional<std::vector<std::string>> globs; // "!x" excludes
  bool ignore = false;
  bool hidden = true;
  std::string output = "content"; // "content", "files", "count"
  std::uint32_t before = 0;
  std::uint32_t after = 0;
  std::uint64_t limit = 1000; // records
  std::uint32_t max_line_bytes = 2000;
};
struct grep_record {
  raw_name path;
  std::string type; // "match", "context", "file", "count", "binary", "skipped"
  std::optional<std::uint64_t> line;
  std::optional<std::uint64_t> column; // of the first match, bytes, from 1
  std::optional<std::string> text;     // repaired to UTF-8
  std::optional<bool> cut;             // the line was longer than max_line_bytes
  std::optional<std::uint64_t> count;
  std::optional<std::string> reason; // of "skipped"
};
struct grep_result {
  std::uint64_t matches = 0;
  std::uint64_t files_searched = 0;
  std::uint64_t files_matched = 0;
  bool truncated = false;
};

BOOST_DESCRIBE_STRUCT(file_entry, (), (name, type, size, mode, modified_at, target))
BOOST_DESCRIBE_STRUCT(file_stat, (), (path, follow, hash))
BOOST_DESCRIBE_STRUCT(file_stat_result, (), (path, entry, sha256))
BOOST_DESCRIBE_STRUCT(file_read, (), (path, offset, length, if_match, hash))
BOOST_DESCRIBE_STRUCT(file_read_result, (), (size, offset, length, mode, modified_at, sha256))
BOOST_DESCRIBE_STRUCT(file_write, (), (path, size, sha256, if_match, mode, parents))
BOOST_DESCRIBE_STRUCT(file_write_result, (), (size, sha256, created))
BOOST_DESCRIBE_STRUCT(text_edit, (), (old_text, new_text, all))
BOOST_DESCRIBE_STRUCT(file_edit, (), (path, edits, if_match))
BOOST_DESCRIBE_STRUCT(file_edit_result, (), (replacements, size, sha256))
BOOST_DESCRIBE_STRUCT(file_list, (), (path, recursive, limit))
BOOST_DESCRIBE_STRUCT(list_result, (), (count, truncated))
BOOST_DESCRIBE_STRUCT(file_mkdir, (), (path, parents, mode))
BOOST_DESCRIBE_STRUCT(file_remove, (), (path, recursive, if_match))
BOOST_DESCRIBE_STRUCT(file_move, (), (from, to, replace))
BOOST_DESCRIBE_STRUCT(file_watch, (), (path, recursive))
BOOST_DESCRIBE_STRUCT(watch_event, (), (event, path, to))
BOOST_DESCRIBE_STRUCT(search_glob, (), (pattern, path, ignore, hidden, order, limit))
BOOST_DESCRIBE_STRUCT(search_grep, (),
                      (pattern, literal, ignore_case, multiline, path, globs, ignore, hidden, output, before, after, limit,
                       max_line_bytes))
BOOST_DESCRIBE_STRUCT(grep_record, (), (path, type, line, column, text, cut, count, reason))
BOOST_DESCRIBE_STRUCT(grep_result, (), (matches, files_searched, files_matched, truncated))

} // namespace holt::protocols::agent
