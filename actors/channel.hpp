#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

/// What an agent session needs of the wire, and what the wire needs of whoever consumes an operation's bytes. Implemented
/// in runtime/transport on Asio; bytes never pass through an actor (architecture: bulk goes from wire to consumer).
namespace holt::actors {

/// Bytes of a frame, shared with the read buffer they arrived in.
struct shared_bytes {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
};

/// Receives one incoming stream of one operation. Called by the channel, in order, never two at once.
class stream_consumer {
public:
  virtual ~stream_consumer() = default;
  /// `offset` is the position of the first byte. Must not block: queue it, and grant credit once consumed.
  virtual void on_data(std::uint64_t offset, shared_bytes bytes, bool is_stderr, bool last) = 0;
  /// Bytes [from, to) will never come.
  virtual void on_gap(std::uint64_t from, std::uint64_t to) = 0;
  /// The channel closed: nothing more comes on this stream from it.
  virtual void on_closed() = 0;
};

/// One connection to an agent. Every method may be called from any thread.
class agent_channel {
public:
  virtual ~agent_channel() = default;

  /// One control message (a JSON object with `kind`), before queued data.
  virtual void send_control(std::string json) = 0;

  /// A new stream id of this connection; incoming frames with it go to `consumer` (which may be null for an outgoing
  /// stream). 0 when 64 streams are in use: answer environment.busy.
  virtual std::uint32_t open_stream(std::shared_ptr<stream_consumer> consumer) = 0;
  /// Frames with this id are dropped from now on, and the id is free again.
  virtual void close_stream(std::uint32_t stream) = 0;

  /// The peer may send up to the position `limit`; `consumed` was taken. Absolute, never shrinking.
  virtual void grant(std::uint32_t stream, std::uint64_t limit, std::uint64_t consumed) = 0;

  /// Sends bytes of an outgoing stream at its next position as credit allows. `done(false)` when the channel or the stream
  /// closed before all was written. One call outstanding a stream.
  virtual void send_data(std::uint32_t stream, shared_bytes bytes, bool last, std::function<void(bool)> done) = 0;

  virtual void close(std::string reason) = 0;
};

/// Whom a channel tells of control messages and its end: the agent session, through a bridge.
struct channel_events {
  std::function<void(std::string json)> on_control;
  std::function<void(std::string reason)> on_closed; // exactly once
};

/// Makes a channel of a connected unix socket (takes the descriptor). Reading starts at once.
using channel_factory = std::function<std::shared_ptr<agent_channel>(int socket, channel_events events)>;

} // namespace holt::actors
