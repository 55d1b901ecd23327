#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "agent/body.hpp"
#include "agent/session.hpp"
#include "protocols/agent_messages.hpp"

namespace holt::agent {

class job;

/// What a job's work answers: its result as JSON, or an error.
struct job_answer {
  std::string result;
  std::optional<protocols::agent::operation_error> error;
  /// Only when nothing was changed, proven: the id may be used again.
  bool not_started = false;
};

/// One file or search operation on a worker thread, and the bridge between that thread and the session's streams. The
/// worker waits while the receiver's credit, or the sender's bytes, are used up; it never touches the session.
///
/// Made and destroyed by the main thread, which calls everything but `body()` and `source()`; those are the worker's.
class job final : public std::enable_shared_from_this<job> {
public:
  using work = std::function<job_answer(job&)>;

  struct streams {
    std::uint32_t out = 0; // 0: none
    std::uint32_t in = 0;
  };

  /// `wake` tells the main thread, from any thread, that look() has something to do.
  job(std::string op_id, work what, std::function<void()> wake);
  ~job();

  // The worker's side.
  body_sink& body();
  body_source& source();
  std::stop_token stop_token() const {
    return stop_.get_token();
  }
  /// Runs the work; once.
  void run();

  // The main thread's side.
  const std::string& op_id() const {
    return op_id_;
  }
  void attach(session& to, streams streams);
  session* to() const {
    return session_;
  }
  /// The session is gone, or took its streams off: a body that isn't whole by now never will be.
  void detach();
  void cancel();
  /// Carries over what the worker did since: more to send, room for more input. True once it is finished, and all that
  /// it sent has left (or nobody is there to receive it).
  bool look();
  const job_answer& answer() const {
    return answer_;
  }
  std::vector<protocols::agent::stream_final> finals() const;
  bool has_output_stream() const {
    return streams_.out != 0;
  }
  const streams& stream_ids() const {
    return streams_;
  }

  /// Kept by the agent for its own use: how the operation was asked for.
  std::string digest;
  std::string operation;
  bool ledgered = false;
  /// Further sessions (or repeats) that want the result.
  std::vector<session*> waiting;

private:
  class sink;
  class input;

  std::string op_id_;
  work work_;
  std::function<void()> wake_;
  std::stop_source stop_;
  std::unique_ptr<sink> sink_;
  std::unique_ptr<input> input_;
  session* session_ = nullptr;
  streams streams_;
  std::atomic<bool> finished_{false};
  job_answer answer_;
};

/// A few threads, started when first needed. Jobs that wait all day (watches) get a thread of their own.
class worker_pool {
public:
  explicit worker_pool(std::size_t threads) : most_(threads) {
    // nop
  }
  ~worker_pool();

  void submit(std::shared_ptr<job> what);
  /// Beside the pool.
  void submit_apart(std::shared_ptr<job> what);
  /// Threads given to submit_apart that still run.
  std::size_t apart() const {
    return *apart_;
  }

private:
  bool start_thread();

  std::size_t most_;
  std::size_t started_ = 0;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::shared_ptr<job>> waiting_;
  std::size_t idle_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
  std::shared_ptr<std::atomic<std::size_t>> apart_ = std::make_shared<std::atomic<std::size_t>>(0);
};

} // namespace holt::agent
