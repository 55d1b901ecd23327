#include "runtime/process/watchdog.hpp"

#include <unistd.h>

#include <cstdio>

namespace holt::runtime::process {

watchdog::watchdog(std::chrono::milliseconds limit) {
  thread_ = std::thread{[this, limit] {
    std::unique_lock guard{mutex_};
    if (ended_.wait_for(guard, limit, [this] { return done_; }))
      return;
    std::fprintf(stderr, "holt: the stop hung at stage '%s' for over %lld ms; ending at once\n", stage_.load(),
                 static_cast<long long>(limit.count()));
    ::_exit(70);
  }};
}

watchdog::~watchdog() {
  {
    std::lock_guard guard{mutex_};
    done_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

} // namespace holt::runtime::process
