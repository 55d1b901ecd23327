#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace holt::actors::logic {

struct retry_policy {
  /// The delay before the first retry lies between 0 and this, doubled for each further one.
  std::chrono::milliseconds base{50};
  std::chrono::milliseconds cap{2000};
  /// Retries in all. Beyond it the caller gives up.
  std::uint32_t max_retries = 4;
};

/// How long to wait before trying again, and when to give up: exponential with full jitter, so that those who failed
/// together don't come back together. Pure: randomness is given.
class retry_budget {
public:
  explicit retry_budget(retry_policy policy = {}) : policy_(policy) {
    // nop
  }

  /// The next delay, or nothing when the budget is spent. `random` is in [0, 1).
  std::optional<std::chrono::milliseconds> next(double random) {
    if (used_ >= policy_.max_retries)
      return std::nullopt;
    auto ceiling = policy_.base * (std::int64_t{1} << std::min<std::uint32_t>(used_, 20));
    ++used_;
    return std::chrono::milliseconds{
        static_cast<std::int64_t>(static_cast<double>(std::min(ceiling, policy_.cap).count()) * random)};
  }

  /// A success makes the budget whole again.
  void succeeded() {
    used_ = 0;
  }

  std::uint32_t used() const {
    return used_;
  }

private:
  retry_policy policy_;
  std::uint32_t used_ = 0;
};

/// How often something may happen: `burst` at once, then one every `interval`. Bounds rebuilds of an instance that keeps
/// vanishing. Pure: the clock is the caller's.
class rate_budget {
public:
  rate_budget(std::uint32_t burst, std::chrono::nanoseconds interval) : burst_(burst), interval_(interval) {
    // nop
  }

  /// Takes one, or says how long to wait for it.
  std::optional<std::chrono::nanoseconds> take(std::chrono::nanoseconds now) {
    full_at_ = std::max(full_at_, now);
    auto over = full_at_ + interval_ - now - interval_ * burst_;
    if (over.count() > 0)
      return over;
    full_at_ += interval_;
    return std::nullopt;
  }

private:
  std::uint32_t burst_;
  std::chrono::nanoseconds interval_;
  std::chrono::nanoseconds full_at_{0};
};

} // namespace holt::actors::logic
