#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace holt::actors::logic {

/// Whether an environment actor that nobody uses may go (architecture: environments not in use have no actor).
struct passivation_view {
  std::chrono::nanoseconds now{0};       // monotonic
  std::chrono::nanoseconds last_used{0}; // monotonic
  std::chrono::nanoseconds after{0};
  std::size_t uses = 0;     // in flight or waiting
  bool working = false;     // a lifecycle step is under way or waits
};

enum class passivation : std::uint8_t { stay, wait, go };

constexpr passivation decide_passivation(const passivation_view& view) {
  if (view.uses > 0 || view.working)
    return passivation::stay;
  return view.now - view.last_used >= view.after ? passivation::go : passivation::wait;
}

/// What a sweep does with an instance, from stored times alone (spec 23, 24, 26, 29). Whether something still runs in it is
/// asked under the exclusive lease.
struct sweep_view {
  std::string_view status;
  std::string_view row_provider;     // that made the instance
  std::string_view current_provider; // of this environment now
  bool deleted = false;              // the environment, or its org
  std::chrono::microseconds now{0};       // since 1970
  std::chrono::microseconds last_used{0}; // since 1970
  std::chrono::milliseconds suspend_after{0}; // 0: never
  std::chrono::milliseconds destroy_after{0}; // 0: never
};

enum class sweep_action : std::uint8_t { leave, suspend, destroy, remove };

constexpr sweep_action decide_sweep(const sweep_view& view) {
  if (view.deleted)
    return sweep_action::remove;
  bool cloud = view.row_provider.empty() || view.row_provider.front() != '@';
  if (!cloud)
    return sweep_action::leave;
  auto idle = view.now - view.last_used;
  bool exists = view.status == "running" || view.status == "suspended" || view.status == "creating";
  if (exists && view.destroy_after.count() > 0 && idle >= view.destroy_after)
    return sweep_action::destroy;
  if (view.status == "running" && view.row_provider == view.current_provider && view.suspend_after.count() > 0
      && idle >= view.suspend_after)
    return sweep_action::suspend;
  return sweep_action::leave;
}

/// Whether a status is one that a crash left in the middle of something (spec 6).
constexpr bool is_intermediate(std::string_view status) {
  return status == "creating" || status == "suspending" || status == "resuming" || status == "destroying"
         || status == "resetting";
}

} // namespace holt::actors::logic
