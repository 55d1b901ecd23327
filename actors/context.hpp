#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <caf/typed_actor.hpp>

#include "actors/front.hpp"
#include "actors/interfaces.hpp"
#include "actors/logic/retry.hpp"
#include "actors/node.hpp"

namespace holt::actors {

/// The named constants of this folder.
namespace defaults {

/// The longest that a request to the store waits.
inline constexpr std::chrono::seconds store_timeout{15};
/// From an agent's connection to its welcome.
inline constexpr std::chrono::seconds handshake_timeout{10};
/// Exclusive leases: by hand and for uses, for a deletion (spec 27), for a sweep (it comes again).
inline constexpr std::chrono::seconds exclusive_wait{60};
inline constexpr std::chrono::minutes remove_wait{10};
inline constexpr std::chrono::seconds sweep_wait{5};
/// last_used_at is written at most this often for one environment.
inline constexpr std::chrono::seconds touch_interval{10};
/// The seen record of a holder is asked of the store again after this long (spec 18: it is kept a day longer than needed).
inline constexpr std::chrono::hours seen_refresh{1};
inline constexpr std::size_t max_seen_cached = 1024;
/// Wishes of one environment's lifecycle that may wait.
inline constexpr std::size_t max_waiting_changes = 16;
/// How often one use goes from its lease to waiting for the instance.
inline constexpr std::uint32_t max_times_blocked = 4;
/// Rebuilds of one environment: so many at once, then one in this time.
inline constexpr std::uint32_t rebuild_burst = 5;
inline constexpr std::chrono::seconds rebuild_interval{10};
/// Environment actors of one replica, and uses in flight.
inline constexpr std::size_t max_environments = 4096;
inline constexpr std::size_t max_uses = 8192;
/// Calls of one provider that may wait for their turn.
inline constexpr std::size_t max_waiting_calls = 1024;
/// Changes that a sweep asks for at a time.
inline constexpr std::size_t sweep_parallel = 4;

} // namespace defaults

/// What all actors of a node share: settings and ways out. Made once, never changed, apart from the counters.
struct context {
  node_settings settings;
  std::shared_ptr<storage::store> store; // only for what needs no answer: touch_instance
  channel_factory open_channel;
  std::function<void(const char* level, const char* event, std::string fields)> log;
  /// Microseconds since 1970.
  std::function<std::int64_t()> wall_clock;
  /// 64 random bits. Any thread.
  std::function<std::uint64_t()> random;
  /// This process is the only writer of instance rows (embedded default): a row that an environment actor read or wrote
  /// stays true until a write of its own is fenced. Otherwise it is read again under each shared lease (spec 10).
  bool sole_writer = true;
  /// sandbox.max_concurrent_commands, read at every use (spec 7).
  mutable std::atomic<std::uint32_t> max_concurrent_commands{8};
  logic::retry_policy reconnect{};
};

/// The actors that an environment talks to. They don't know it, so there is no cycle.
struct peers {
  std::shared_ptr<const context> shared;
  store_actor store;
  schedule_actor schedule;
  std::map<std::string, provider_actor> providers;
};

/// In [0, 1).
double fraction_of(std::uint64_t bits);

} // namespace holt::actors
