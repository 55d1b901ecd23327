#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "storage/sqlite/connection.hpp"

namespace holt::storage {

/// The one thread that writes to a SQLite database. Takes what has gathered while the last commit was flushed, and
/// commits it as one: many calls, one flush. Each call stands in a savepoint, so that a failing one is undone alone;
/// replies come after the commit.
class group_writer {
public:
  struct limits {
    /// Calls that may wait. Beyond it a call is refused as `unavailable`.
    std::size_t max_queued = 4096;
    /// Calls of one commit. Higher serves more at once and lets the first wait longer.
    std::size_t max_group = 256;
    /// How long a lazy write may wait.
    std::chrono::milliseconds lazy_delay{1000};
    /// Lazy writes waiting that make the thread carry them out before their time.
    std::size_t max_lazy = 1024;
  };

  struct counters {
    std::uint64_t calls = 0;   // carried out, lazy ones included
    std::uint64_t commits = 0; // connection::commits()
  };

  group_writer(connection with, const limits& how);
  ~group_writer();

  /// False: the queue is full or stopped, and `reply` was left as it was.
  bool write(unit&& work, unit_reply& reply);
  void write_lazily(std::string key, std::int64_t order, unit work);

  /// Finishes the queue and the lazy writes, then ends the thread and closes the connection. Idempotent.
  void stop();

  counters count() const;

private:
  struct call {
    unit work;
    unit_reply reply; // empty for a lazy one
  };
  struct lazy_call {
    std::int64_t order;
    unit work;
  };
  using clock = std::chrono::steady_clock;

  void loop();
  std::vector<call> next_group(std::unique_lock<std::mutex>& lock);
  bool lazy_is_due() const;
  void carry_out(std::vector<call> group);
  bool commit_together(const std::vector<call>& group, std::vector<store_result<unit_result>>& results);

  connection connection_; // of the thread alone
  const limits limits_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<call> queue_;
  std::map<std::string, lazy_call> lazy_;
  clock::time_point lazy_due_{};
  bool stopping_ = false;
  counters counters_;

  std::thread thread_; // last: starts with everything else made
};

} // namespace holt::storage
