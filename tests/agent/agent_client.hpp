#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/types.h>

#include "protocols/agent_messages.hpp"
#include "protocols/control.hpp"
#include "protocols/frame.hpp"

/// Drives the real agent program over its socket, as a server would. For tests: one thread, blocking, every wait bounded;
/// what can't go on throws.
namespace holt::tests {

namespace wire = protocols::agent;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// A directory of its own, removed at the end.
class temporary_directory {
public:
  temporary_directory();
  ~temporary_directory();
  temporary_directory(const temporary_directory&) = delete;
  const std::filesystem::path& path() const {
    return path_;
  }

private:
  std::filesystem::path path_;
};

/// One run of an agent program, killed at the end.
class agent_process {
public:
  /// `program` and `arguments` come before those that name socket, state and roots below `home`.
  agent_process(const std::filesystem::path& home, std::vector<std::string> program);
  ~agent_process();
  agent_process(const agent_process&) = delete;

  pid_t pid() const {
    return pid_;
  }
  std::string socket() const;
  std::filesystem::path workspace() const {
    return home_ / "workspace";
  }
  void kill(int signal);
  /// Kills and reaps. Returns the wait status.
  int end();
  /// VmRSS in KiB, of the agent itself.
  long resident_kib() const;
  /// Its standard input, for programs that take orders.
  void order(const std::string& line);

private:
  std::filesystem::path home_;
  pid_t pid_ = -1;
  int orders_ = -1;
};

struct received_piece {
  std::uint64_t at;
  bool is_stderr;
  std::string bytes;
};

/// A stream as it arrived.
struct received_stream {
  std::string all;
  std::vector<received_piece> pieces;
  std::vector<wire::gap> gaps;
  bool last = false;
  bool begun = false;
  std::uint64_t end = 0;
  std::uint64_t granted = 0;

  std::string of(bool is_stderr) const;
};

struct operation {
  std::string op_id;
  std::map<std::string, std::uint32_t> streams;
};

struct operation_end {
  std::optional<wire::op_accepted> accepted;
  wire::op_result result;
  received_stream output; // of "output", or "body"
  std::optional<wire::process_state> process;
  std::string error_code;
};

class agent_client {
public:
  explicit agent_client(const std::string& socket, std::uint64_t epoch = 1, std::string incarnation = "one");
  ~agent_client();
  agent_client(const agent_client&) = delete;
  agent_client(agent_client&& other) noexcept;

  /// Without the handshake.
  static agent_client raw(const std::string& socket);
  void handshake(std::uint64_t epoch, const std::string& incarnation);
  const wire::hello& hello() const {
    return hello_;
  }

  template <class T>
  void send(const T& message) {
    send_bytes(protocols::control_frame(protocols::json::write_control(message)));
  }
  void send_bytes(std::string_view bytes);
  void send_data(std::uint32_t stream, std::uint64_t at, std::string_view bytes, bool last);
  void grant(std::uint32_t stream, std::uint64_t limit, std::uint64_t consumed);

  /// Streams are given ids of this connection.
  template <class T>
  operation start(const std::string& op_id, const std::string& name, const T& arguments,
                  const std::vector<std::string>& streams, bool durable = false, const std::string& digest = "d") {
    return start_value(op_id, name, protocols::json::to_value(arguments), streams, durable, digest);
  }
  operation start_value(const std::string& op_id, const std::string& name, protocols::json::value arguments,
                        const std::vector<std::string>& streams, bool durable, const std::string& digest);
  operation attach(const std::string& op_id, std::uint64_t from, const std::vector<std::string>& streams,
                   bool follow = true);

  /// Credit that every stream from the agent is given beyond what has come.
  std::uint64_t credit = 4 * 1024 * 1024;
  /// Counts bytes of streams and keeps none.
  bool discard = false;

  /// Takes frames until the operation's result. Throws on a fault or after `patience`.
  operation_end finish(const operation& of, milliseconds patience = seconds{20});
  /// Takes frames until the operation is accepted (or ended).
  std::optional<wire::op_accepted> accepted(const operation& of, milliseconds patience = seconds{20});
  /// Takes frames until its stream holds this many bytes.
  void wait_output(const operation& of, std::uint64_t bytes, milliseconds patience = seconds{20});
  /// Takes frames for that long, or until the connection ends (then true).
  bool take_for(milliseconds time);
  /// Takes frames until the connection ends; false when it doesn't.
  bool wait_closed(milliseconds patience = seconds{20});
  /// Takes frames until there is a message of this kind.
  protocols::json::value wait_kind(std::string_view kind, milliseconds patience = seconds{20});

  received_stream& stream(std::uint32_t id) {
    return streams_[id];
  }
  std::uint64_t window(std::uint32_t id) const {
    auto found = windows_.find(id);
    return found == windows_.end() ? 64 * 1024 : found->second;
  }
  const std::vector<wire::protocol_error>& errors() const {
    return errors_;
  }

  /// Start to result.
  operation_end run(const std::string& op_id, const wire::process_start& start, milliseconds patience = seconds{20});
  operation_end shell(const std::string& op_id, const std::string& command);
  /// An operation on a process, without streams: its state.
  operation_end control(const std::string& name, const std::string& op_id, milliseconds patience = seconds{20});
  std::vector<wire::process_state> list();
  std::string state_of(const std::string& op_id);
  /// What the log keeps from a position on.
  std::pair<std::string, wire::process_read_result> read_log(const std::string& op_id, std::uint64_t from,
                                                              std::uint64_t max);

private:
  agent_client() = default;
  void connect(const std::string& socket);
  /// One frame; false at the deadline.
  bool take_one(std::chrono::steady_clock::time_point deadline);
  void handle(const protocols::frame& frame);

  int fd_ = -1;
  protocols::frame_decoder decoder_;
  std::vector<char> buffer_ = std::vector<char>(256 * 1024);
  bool closed_ = false;
  wire::hello hello_;
  bool greeted_ = false;
  std::uint32_t next_stream_ = 1;
  std::uint64_t next_id_ = 1;
  std::map<std::uint32_t, received_stream> streams_;
  std::map<std::uint32_t, std::uint64_t> windows_;
  std::map<std::string, wire::op_accepted> accepted_;
  std::map<std::string, std::vector<wire::op_result>> results_;
  std::vector<std::pair<std::string, protocols::json::value>> others_;
  std::vector<wire::protocol_error> errors_;
};

/// Waits until it holds, or for `patience`.
template <class F>
bool eventually(F holds, milliseconds patience = seconds{10}) {
  auto deadline = std::chrono::steady_clock::now() + patience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline)
      return false;
    timespec pause{0, 5'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return true;
}

/// Whether a process lives (and is no zombie).
bool alive(pid_t pid);

} // namespace holt::tests
