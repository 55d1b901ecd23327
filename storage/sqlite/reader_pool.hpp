#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "storage/sqlite/connection.hpp"

namespace holt::storage {

/// Threads that read from a SQLite database, each on a connection of its own, beside the writer. Also answers what was
/// refused, so that replies come from a thread of the database.
class reader_pool {
public:
  /// One thread a connection. `max_queued`: reads that may wait; beyond it a read is refused.
  reader_pool(std::vector<connection> with, std::size_t max_queued);
  ~reader_pool();

  /// A read; refused as `unavailable` when the queue is full. False: stopped, and `reply` was left as it was.
  bool read(unit&& work, unit_reply& reply);
  /// Only answers. False: stopped, and `reply` was left as it was.
  bool refuse(unit_reply& reply, store_error why);

  /// Finishes the queue, then ends the threads. Idempotent.
  void stop();

private:
  struct call {
    unit work;
    unit_reply reply;
    std::optional<store_error> refused;
  };

  void loop(connection with);

  const std::size_t max_queued_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<call> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

} // namespace holt::storage
