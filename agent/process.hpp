#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "agent/loop.hpp"
#include "agent/output_log.hpp"
#include "agent/process_tree.hpp"
#include "agent/session.hpp"
#include "agent/spawn.hpp"
#include "protocols/agent_messages.hpp"

namespace holt::agent {

class process;

/// What a process needs of the agent around it.
class process_owner {
public:
  /// Its result stands (state() is final) and must be kept before anyone hears of it.
  virtual void on_process_result(process& ended) = 0;
  /// Nothing is left of it: no pipe, no reader. The owner destroys it, not from within this call.
  virtual void on_process_over(process& over) = 0;
  /// Whether another leader runs under this number now.
  virtual bool is_leader(pid_t pid, const process& but) const = 0;
  virtual int proc_directory() const = 0;

protected:
  ~process_owner() = default;
};

/// What one session was promised about a process: its output from a position (unless it asked for none), then its
/// result. Also serves logs of processes that have ended. Main thread.
class log_reader final : stream_source {
public:
  struct wishes {
    std::uint32_t stream = 0; // 0: the result only
    std::uint64_t from = 0;
    bool follow = true;
  };

  /// Sends the op.result of this op for these streams' finals. Called once.
  using answer = std::function<void(session&, const std::vector<protocols::agent::stream_final>&)>;

  /// `running` is null for an ended process.
  log_reader(std::string op_id, std::shared_ptr<output_log> log, process* running, session& to, wishes wishes, answer done);
  ~log_reader();

  /// There may be more to send.
  void poke();
  /// The end of the log is final (or the follower doesn't wait for it): answer when all is sent.
  void end_at(std::uint64_t position);
  /// Takes the stream off; the result is still sent.
  void detach(bool tell);

  bool attached() const {
    return attached_;
  }
  std::uint64_t position() const {
    return position_;
  }
  std::uint32_t stream() const {
    return wishes_.stream;
  }
  session& to() const {
    return session_;
  }
  const std::string& op_id() const {
    return op_id_;
  }
  bool answered() const {
    return answered_;
  }
  void process_gone() {
    process_ = nullptr;
  }
  void on_answered(std::function<void()> what) {
    answered_hook_ = std::move(what);
  }

private:
  chunk produce(char* buffer, std::size_t room) override;
  void after_chunk() override;
  void on_stalled() override;
  void maybe_answer();

  std::string op_id_;
  std::shared_ptr<output_log> log_;
  process* process_;
  session& session_;
  wishes wishes_;
  answer done_;
  std::function<void()> answered_hook_;
  std::uint64_t position_;
  std::optional<std::uint64_t> end_;
  bool attached_ = false;
  bool answered_ = false;
};

/// One command: its leader, its pipes, its log, its timeout, its readers (spec 37 to 43).
///
/// Owned by the agent; main thread only. Never blocks.
class process final {
public:
  struct plan {
    std::string op_id;
    spawn_plan spawn;
    protocols::agent::process_start start;
    std::string shown; // the command as a person would write it
      std::string digest;
    std::uint64_t log_id = 0;
  };

  process(loop& loop, process_owner& owner, std::shared_ptr<output_log> log, plan plan);
  ~process();
  process(const process&) = delete;
  process& operator=(const process&) = delete;

  /// Makes pipes or terminal, and the process. Returns 0, or the errno of what failed: then nothing has started.
  int launch();

  const std::string& op_id() const {
    return plan_.op_id;
  }
  const plan& about() const {
    return plan_;
  }
  pid_t pid() const {
    return pid_;
  }
  bool leader_alive() const {
    return pid_ > 0 && !reaped_;
  }
  bool ended() const {
    return ended_;
  }
  /// Nothing more happens to it: no pipe is open, and no stop of what it left behind goes on.
  bool over() const {
    return ended_ && out_.closed && err_.closed && (!stopping_ || tree_dead_) && when_stopped_.empty();
  }
  const std::shared_ptr<output_log>& log() const {
    return log_;
  }
  const std::string& result() const {
    return result_;
  }
  protocols::agent::process_state state() const;
  /// Whether the log grew after the result was made; then result() says so.
  bool refresh_result();

  /// From the agent's reaper: the leader's end (a waitid status).
  void on_leader_end(int code, int status);

  void add_reader(log_reader& reader);
  void remove_reader(log_reader& reader);
  /// Next output bytes straight from the pipe, into the log too. REQUIRES: the reader is at the log's end.
  stream_source::chunk pull(char* buffer, std::size_t room);
  void readers_changed();

  /// Standard input: waits in memory until the process reads it, so the sender's credit bounds it. What nobody reads any
  /// more is taken and dropped.
  void write_input(std::string_view bytes);
  /// After what was written before.
  void close_input();
  std::size_t input_waiting() const {
    return input_waiting_.size();
  }
  bool has_input() const {
    return static_cast<bool>(input_);
  }
  /// Called whenever waiting input got shorter.
  void on_input_taken(std::function<void()> what) {
    input_taken_ = std::move(what);
  }
  /// Bytes that came by streams named "stdin", over all sessions.
  std::uint64_t input_position = 0;

  enum class stop_reason { stopped, timed_out };
  /// TERM to the whole tree, KILL after the grace; `done` (may be empty) runs when no descendant lives.
  void stop(stop_reason reason, std::chrono::nanoseconds grace, std::function<void()> done);
  /// 0 or errno.
  int signal(int number);
  bool resize(protocols::agent::terminal_size size);
  void to_background();

private:
  /// One of the two output pipes, or the terminal.
  struct pipe final : loop::watcher {
    process* owner = nullptr;
    unique_fd fd;
    output_kind kind = output_kind::out;
    bool closed = true;
    bool readable = false;
    bool grown = false;
    std::uint64_t read = 0;
    /// What the pipe held when the leader ended: it may not be cut off.
    std::uint64_t must_read = 0;
    void on_ready(std::uint32_t events) override;
  };
  struct input_watch final : loop::watcher {
    process* owner = nullptr;
    void on_ready(std::uint32_t events) override;
  };

  int launch_on_pipes();
  int launch_on_terminal();
  void watch(pipe& pipe, int fd, output_kind kind);
  void close_pipe(pipe& pipe);
  /// Bytes read, 0 when the pipe is empty or at its end (then it is closed).
  std::size_t read_pipe(pipe& pipe, char* buffer, std::size_t room);
  pipe* next_readable();
  bool paced() const;
  void on_output_ready();
  void drain_to_log();
  void flush_input();
  void drop_input();
  void maybe_end();
  void end();
  void begin_kill();
  void check_tree();
  void ask_to_end();
  void answer_stops();
  tree_signs signs() const;
  void tree_is_dead();

  loop& loop_;
  process_owner& owner_;
  std::shared_ptr<output_log> log_;
  plan plan_;
  pid_t pid_ = -1;
  bool terminal_ = false;
  pipe out_, err_;
  bool err_first_ = false;
  unique_fd input_;
  input_watch input_watch_;
  bool input_watched_ = false;
  std::string input_waiting_;
  bool input_closing_ = false;
  std::function<void()> input_taken_;
  std::list<log_reader*> readers_;
  bool reaped_ = false;
  int exit_code_ = 0;
  int exit_signal_ = 0;
  running_time started_{0};
  running_time ended_at_{0};
  std::int64_t started_wall_ = 0;
  std::uint64_t started_ticks_ = 0;
  bool drained_ = false;
  bool ended_ = false;
  bool output_open_ = false;
  bool drain_scheduled_ = false;
  std::string final_state_;
  std::string result_;
  std::uint64_t result_end_ = 0;
  // Stopping.
  std::optional<stop_reason> stopping_;
  bool killing_ = false;
  bool tree_dead_ = false;
  int empty_passes_ = 0;
  std::chrono::nanoseconds check_every_{0};
  running_time kill_began_{0};
  std::unordered_set<pid_t> seen_;
  std::optional<std::uint32_t> survivors_;
  std::vector<std::function<void()>> when_stopped_;
  bool precise_ = false;
  loop::timer_id timeout_timer_ = loop::no_timer;
  loop::timer_id grace_timer_ = loop::no_timer;
  loop::timer_id check_timer_ = loop::no_timer;
  loop::timer_id drain_timer_ = loop::no_timer;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

/// "SIGTERM" and its number; 0 and "SIG<number>" for those without a name here.
int signal_number(std::string_view name);
std::string signal_name(int number);

} // namespace holt::agent
