#pragma once

#include <memory>

#include <boost/asio/any_io_executor.hpp>

#include "actors/channel.hpp"

/// The wire to an agent over a connected stream socket (spec 36, agent-protocol.md).
namespace holt::runtime::transport {

struct channel_limits {
  /// Frames of each side begin with this much credit a stream.
  std::uint64_t initial_credit = 64 * 1024;
  /// Streams open at a time.
  std::uint32_t max_streams = 64;
  /// A ping goes out after this long without a frame, and the peer is dead after `dead_ms` without one (spec 53).
  std::uint32_t heartbeat_ms = 15000;
  std::uint32_t dead_ms = 40000;
  /// Control messages waiting to be written, in bytes: a peer that doesn't read is dead, not a reason to grow.
  std::size_t max_queued_bytes = 8 * 1024 * 1024;
};

/// Takes `socket` (a connected, blocking or non-blocking stream socket) and reads from it at once on `executor`.
///
/// A frame that breaks the protocol closes the channel with a reason; it never throws. The channel keeps itself alive
/// until it closes; `events` are let go of then.
std::shared_ptr<actors::agent_channel> open_socket_channel(boost::asio::any_io_executor executor, int socket,
                                                           actors::channel_events events, channel_limits limits = {});

} // namespace holt::runtime::transport
