#pragma once

#include <cstdint>

#include "actors/ec.hpp"

namespace holt::actors::logic {

/// How one attempt at an operation ended, where it didn't end with the agent's own result.
enum class attempt_end : std::uint8_t {
  /// The provider says that the instance is gone (spec 15).
  gone,
  /// The provider says that the files are gone (spec 16).
  files_gone,
  /// Nobody answers: nothing is known of the instance (spec 22).
  unreachable,
  /// The agent's ledger says: started, no result, that run of the agent ended.
  unknown,
  /// The agent's ledger knows the id, and keeps no result.
  expired,
};

struct attempt {
  attempt_end end = attempt_end::gone;
  /// It was sent, and nothing proves that it was not begun.
  bool may_have_run = true;
  /// Reads: may be run again though they may have run before.
  bool safe_to_repeat = false;
  /// How often this use has met a gone instance, this time included.
  std::uint32_t times_gone = 1;
};

struct use_decision {
  /// Rebuild, and run the operation once more with restarted: true.
  bool again = false;
  /// Else what the caller is told.
  ec error = ec::none;
};

/// When an operation may be run again (spec 15, 22, 44): only after a gone instance, only once, and only if it did not
/// start or is safe to repeat.
constexpr use_decision decide_use(const attempt& attempt) {
  bool repeatable = !attempt.may_have_run || attempt.safe_to_repeat;
  switch (attempt.end) {
    case attempt_end::gone:
      if (!repeatable)
        return {false, ec::outcome_unknown};
      return attempt.times_gone < 2 ? use_decision{true, ec::none} : use_decision{false, ec::instance_gone};
    case attempt_end::files_gone:
      return {false, repeatable ? ec::files_lost : ec::outcome_unknown};
    case attempt_end::unreachable:
      return {false, repeatable ? ec::sandbox_unavailable : ec::outcome_unknown};
    case attempt_end::unknown:
      return {false, ec::outcome_unknown};
    case attempt_end::expired:
      return {false, ec::expired};
  }
  return {false, ec::internal};
}

} // namespace holt::actors::logic
