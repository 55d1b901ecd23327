#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>

namespace holt::actors {

/// What an actor's request can fail with. Each code has one meaning, one API code and one answer to "try again?".
/// What the caller reads is made of it in one place, answers.cpp.
enum class ec : std::uint8_t {
  none,
  /// The queue of users is full, or the wait for a lease took too long (spec 7). Try again later.
  busy,
  /// The lease ended while its user worked, or the fence moved on (spec 11): what was produced must not be written.
  lease_lost,
  /// The caller took its own request back.
  cancelled,
  /// The id is in use already.
  conflict,
  /// Missing, deleted, or of another org: the same answer, so that ids can't be probed (spec 4).
  not_found,
  /// Only a running instance would do, and there is none (spec 19).
  not_running,
  /// The kept files are gone; nothing works until a reset (spec 16, 17).
  files_lost,
  /// The files are kept by a provider that isn't the current one (spec 21). Again when it is back.
  environment_unavailable,
  /// No provider, or it doesn't answer, or the instance's host is away (spec 6a, 21, 22). Try again later.
  sandbox_unavailable,
  /// The provider refuses: a limit, or something that this machine can't give (spec 32).
  sandbox_refused,
  /// The provider failed.
  sandbox_failed,
  /// The instance was found gone: once inside holt, twice for the caller (spec 15).
  instance_gone,
  /// The command may have run or not. Never retried by holt itself (spec 44).
  outcome_unknown,
  /// The id is known, its result is no longer kept (spec 44).
  expired,
  /// Goes on without this connection (spec 43): a suspended environment's command, for one.
  detached,
  /// The process is on its way out. Try again, elsewhere or later.
  stopping,
  /// The database can't be reached or is full. Try again later.
  store_unavailable,
  /// A bug of ours, or a damaged database.
  internal,
  /// Last value, for checks only.
  count,
};

/// The codes of the API.
inline constexpr std::string_view ec_names[] = {"none",
                                                "environment.busy",
                                                "lease.lost",
                                                "operation.cancelled",
                                                "operation.conflict",
                                                "environment.not_found",
                                                "environment.not_running",
                                                "environment.files_lost",
                                                "environment.unavailable",
                                                "sandbox.unavailable",
                                                "sandbox.refused",
                                                "sandbox.failed",
                                                "instance.gone",
                                                "operation.outcome_unknown",
                                                "operation.expired",
                                                "operation.detached",
                                                "server.stopping",
                                                "storage.unavailable",
                                                "server.internal"};
static_assert(std::size(ec_names) == static_cast<std::size_t>(ec::count), "every code needs its name");

constexpr std::string_view to_string(ec code) {
  return ec_names[static_cast<std::size_t>(code)];
}

} // namespace holt::actors
