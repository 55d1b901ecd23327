#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/files/path_locks.hpp"
#include "agent/files/root_table.hpp"
#include "agent/ledger.hpp"
#include "agent/loop.hpp"
#include "agent/process.hpp"
#include "agent/session.hpp"
#include "agent/worker.hpp"
#include "protocols/agent_messages.hpp"

namespace holt::agent {

struct agent_options {
  /// A listening unix socket.
  unique_fd listener;
  /// Where the ledger and the logs live; no command can see it.
  unique_fd state;
  protocols::agent::roots roots{"/workspace", "/skills", "/tmp"};
  std::string shell = "/bin/sh";
  std::string search_path = "/usr/local/bin:/usr/bin:/bin";
  session_limits session;
  ledger_limits ledger;
  std::size_t workers = 2;
  /// Told when nothing has run for a while: the time to give memory back.
  std::function<void()> on_rest;
  /// Processes that may run at a time (each holds up to five descriptors).
  std::size_t processes = 1000;
};

/// The program inside an environment (spec 36): accepts the server's connection, carries out its operations, keeps the
/// ledger, and as PID 1 of a sandbox is its init. One object a program; main thread only.
class agent final : process_owner, session::owner, loop::watcher {
public:
  explicit agent(agent_options options);
  ~agent();

  /// Empty, or what can't be worked with.
  const std::string& problem() const {
    return problem_;
  }

  /// Until stop(), which as PID 1 nothing calls.
  void run() {
    loop_.run();
  }

  /// For tests, which move its clock.
  loop& events() {
    return loop_;
  }

private:
  class input_feed;
  class body_reader;

  // loop::watcher, session::owner, process_owner
  void on_ready(std::uint32_t events) override;
  void on_message(session& from, std::string_view kind, const protocols::json::value& message) override;
  void on_closed(session& from) override;
  void on_process_result(process& ended) override;
  void on_process_over(process& over) override;
  bool is_leader(pid_t pid, const process& but) const override;
  int proc_directory() const override {
    return proc_.get();
  }

  class signal_watch final : public loop::watcher {
  public:
    explicit signal_watch(agent& owner) : owner_(owner) {
      // nop
    }
    void on_ready(std::uint32_t) override {
      owner_.on_signal();
    }

  private:
    agent& owner_;
  };

  bool open_roots();
  void on_signal();
  void reap();
  void accept_connection();
  void handle(session& from, std::string_view kind, const protocols::json::value& message);
  void challenged(session& from, const protocols::agent::challenge& message);
  void welcomed(session& from, const protocols::agent::welcome& message);

  void rest_later();
  void started(session& from, const protocols::agent::op_start& start);
  bool streams_usable(session& from, const std::string& op_id, const std::vector<protocols::agent::stream_ref>& streams);
  /// Whether the id is known, and was answered.
  bool known_before(session& from, const protocols::agent::op_start& start);
  void start_process(session& from, const protocols::agent::op_start& start);
  void start_job(session& from, const protocols::agent::op_start& start, bool ledgered);
  void control_process(session& from, const protocols::agent::op_start& start);
  void list_processes(session& from, const std::string& op_id);
  void read_log(session& from, const protocols::agent::op_start& start);
  void feed_input(session& from, const protocols::agent::op_start& start);

  void attached(session& from, const protocols::agent::op_attach& attach);
  void cancelled(const protocols::agent::op_cancel& message);
  void detached(session& from, const protocols::agent::op_detach& message);
  void queried(session& from, const protocols::agent::op_query& message);
  std::string state_of(const std::string& op_id) const;

  void follow_process(process& what, session& to, const std::vector<protocols::agent::stream_ref>& streams,
                      std::uint64_t from, bool follow);
  void replay_process(const std::string& op_id, const ledger::entry& kept, session& to,
                      const std::vector<protocols::agent::stream_ref>& streams, std::uint64_t from);
  void add_reader(std::unique_ptr<log_reader> reader, process* of);
  void sweep_readers();
  void look_at_jobs();
  void finish_job(job& what);
  void add_feed(session& from, process& to, const std::string& op_id, std::uint32_t stream, bool is_operation,
                bool close);
  void finish_feed(input_feed& done);
  void keep_result(process& ended);
  void stop_remains(session& from, const std::string& op_id, const std::string& id);

  void answer(session& to, const std::string& op_id, std::string_view outcome, std::string_view result,
              const std::vector<protocols::agent::stream_final>& finals = {});
  void refuse(session& to, const std::string& op_id, std::string code, std::string message,
              std::string_view retry = "never", std::string_view outcome = "not_started",
              std::optional<protocols::json::value> details = {});
  void answer_kept(session& to, const std::string& op_id, const ledger::entry& kept,
                   const std::vector<protocols::agent::stream_final>& finals);
  /// The state of a process that runs or ended, as JSON; empty when there is none.
  std::string process_json(const std::string& op_id);

  agent_options options_;
  std::string problem_;
  loop loop_;
  std::unique_ptr<ledger> ledger_;
  std::string run_id_;
  bool init_ = false;
  unique_fd proc_;
  unique_fd signals_;
  signal_watch signal_watch_{*this};
  std::vector<unique_fd> root_fds_;
  std::unique_ptr<files::root_table> roots_;
  files::path_locks locks_;

  std::list<std::unique_ptr<session>> sessions_;
  session* active_ = nullptr;
  std::map<std::string, std::unique_ptr<process>, std::less<>> processes_;
  std::map<pid_t, process*> leaders_;
  std::list<std::unique_ptr<log_reader>> readers_;
  /// "stdin" streams, and process.stdin operations with their digests.
  std::list<std::unique_ptr<input_feed>> feeds_;
  std::map<std::string, std::string, std::less<>> input_digests_;
  std::list<std::unique_ptr<body_reader>> bodies_;
  std::map<std::string, std::shared_ptr<job>, std::less<>> jobs_;
  std::unique_ptr<worker_pool> workers_;
  bool sweeping_ = false;
  loop::timer_id rest_timer_ = loop::no_timer;
  bool active_since_rest_ = false;
};

} // namespace holt::agent
