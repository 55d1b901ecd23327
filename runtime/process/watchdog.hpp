#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace holt::runtime::process {

/// Ends the process when a stop takes too long, and says at which stage (spec 100). One a stop; main's thread.
class watchdog {
public:
  explicit watchdog(std::chrono::milliseconds limit);
  ~watchdog();
  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;

  /// A stage begins. `name` is a literal.
  void stage(const char* name) {
    stage_ = name;
  }

private:
  std::atomic<const char*> stage_{"begin"};
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;
};

} // namespace holt::runtime::process
