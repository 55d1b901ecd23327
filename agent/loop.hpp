#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "agent/unique_fd.hpp"

namespace holt::agent {

/// Time that the agent has been running, without the time in which it was frozen (spec 37).
using running_time = std::chrono::nanoseconds;

/// Subtracts the time in which nothing here ran: if the gap between two looks at the clock exceeds what was asked for by
/// more than `tolerance`, the instance was frozen. Pure.
class running_clock {
public:
  static constexpr std::chrono::nanoseconds tolerance = std::chrono::milliseconds{700};

  /// `monotonic`: CLOCK_MONOTONIC now. `asked`: how long this look was expected to take at most. Returns the time now.
  running_time look(std::chrono::nanoseconds monotonic, std::chrono::nanoseconds asked);

private:
  std::chrono::nanoseconds last_{-1};
  running_time now_{0};
};

/// The main thread's epoll loop with timers. Only that thread calls it, except wake().
class loop {
public:
  /// What waits for a descriptor. Must be removed before it dies; events already fetched for it are then skipped.
  class watcher {
  public:
    virtual void on_ready(std::uint32_t events) = 0;

  protected:
    ~watcher() = default;
  };

  using timer_id = std::pair<running_time, std::uint64_t>;
  static constexpr timer_id no_timer{running_time{-1}, 0};

  loop();

  /// False when the kernel refuses (no memory for the watch).
  bool add(int fd, std::uint32_t events, watcher& who);
  void modify(int fd, std::uint32_t events);
  void remove(int fd);

  running_time now() const {
    return now_;
  }

  timer_id after(std::chrono::nanoseconds delay, std::function<void()> what);
  /// Also fine for a timer that has run, and for no_timer. Sets `id` to no_timer.
  void cancel(timer_id& id);

  /// While any is held, freezes are noticed to a second, at one wake-up a second.
  void hold_precise() {
    ++precise_;
  }
  void release_precise() {
    --precise_;
  }

  /// Runs `what` once at the end of this turn, or in the next.
  void soon(std::function<void()> what);

  /// Makes the loop take a turn and run the given handler. Any thread.
  void wake();
  void on_wake(std::function<void()> what) {
    woken_ = std::move(what);
  }

  void run();
  void stop() {
    stopped_ = true;
  }

  /// For tests: every later timer and limit counts as this much closer.
  void skip_ahead(std::chrono::nanoseconds by) {
    now_ += by;
    skipped_ += by;
  }

private:
  struct slot {
    watcher* who = nullptr;
    std::uint32_t generation = 0;
  };

  void turn();
  void update_clock(std::chrono::nanoseconds asked);
  int wait_ms() const;

  unique_fd epoll_;
  unique_fd event_;
  std::vector<slot> slots_;
  std::map<timer_id, std::function<void()>> timers_;
  std::vector<std::function<void()>> soon_;
  std::function<void()> woken_;
  std::uint64_t next_timer_ = 1;
  running_clock clock_;
  running_time now_{0};
  std::chrono::nanoseconds skipped_{0};
  int precise_ = 0;
  bool stopped_ = false;
};

} // namespace holt::agent
