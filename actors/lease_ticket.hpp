#pragma once

#include <cstddef>
#include <cstdint>

namespace holt::actors {

/// How an environment is to be used (spec 7, 8).
enum class lease_mode : std::uint8_t {
  /// Beside others, up to the cap: a command.
  shared,
  /// Beside others, not counted: a file operation, a look at a process.
  uncounted,
  /// Alone: create, resume, suspend, destroy.
  exclusive,
};

/// Names one lease, from the asking to its end. Chosen by the user, at random, so that it can take back what was not
/// answered yet.
enum class lease_ticket : std::uint64_t {};

struct lease_limits {
  /// Counted shared leases at a time. Higher lets one environment take more of the machine.
  std::uint32_t max_shared = 8;
  /// Users that may wait. Beyond it a user is refused at once, rather than timed out later.
  std::uint32_t max_waiting = 256;
};

} // namespace holt::actors
