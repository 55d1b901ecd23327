#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

/// The frames of the agent protocol: a header of 20 bytes in network order, then the payload. On a byte stream frames
/// follow each other; on a WebSocket one binary message is one frame.
///
/// What arrives is hostile input (spec 46): whatever breaks a rule is refused, and the connection is then closed. Pure:
/// any thread; a frame_decoder belongs to one connection.
namespace holt::protocols {

inline constexpr std::size_t max_payload = 65536;
inline constexpr std::size_t frame_header_size = 20;
/// Positions stay below this, so that adding a length never wraps.
inline constexpr std::uint64_t max_position = (std::uint64_t{1} << 63) - 1;

enum class frame_type : std::uint8_t { control = 1, data = 2, window = 3, ping = 4, pong = 5 };

/// Flags, of data frames only.
inline constexpr std::uint8_t frame_last = 1;   // the stream ends with this frame
inline constexpr std::uint8_t frame_stderr = 2; // these bytes are stderr

struct frame_header {
  std::uint32_t length = 0; // of the payload, bytes
  frame_type type = frame_type::control;
  std::uint8_t flags = 0;
  std::uint32_t stream = 0;
  /// Data: position of the first payload byte. Window: the position up to which the sender may send.
  std::uint64_t offset = 0;

  bool last() const {
    return (flags & frame_last) != 0;
  }
  bool is_stderr() const {
    return (flags & frame_stderr) != 0;
  }
  friend bool operator==(const frame_header&, const frame_header&) = default;
};

/// Why a frame was refused. `to_string` gives the reason that is told to the other side.
enum class frame_ec : std::uint8_t {
  payload_too_long = 1,
  unknown_type,
  unknown_flags,
  reserved_not_zero,
  stream_missing,    // data or window on stream 0
  stream_unexpected, // control, ping or pong on another stream than 0
  window_malformed,  // its payload is not 8 bytes, or more is consumed than was allowed
  position_too_large,
  message_size, // a WebSocket message that is not exactly one frame
};
std::string_view to_string(frame_ec code);

struct frame {
  frame_header header;
  std::span<const std::byte> payload;

  std::string_view text() const {
    return {reinterpret_cast<const char*>(payload.data()), payload.size()};
  }
};

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

/// REQUIRES: header.length ≤ max_payload.
std::array<std::byte, frame_header_size> encode(const frame_header& header);

tl::expected<frame_header, frame_ec> decode_header(std::span<const std::byte, frame_header_size> bytes);

/// One WebSocket message as one frame. The payload points into `message`.
tl::expected<frame, frame_ec> decode_message(std::span<const std::byte> message);

/// Appends a whole frame; `header.length` is taken from the payload. REQUIRES: payload.size() ≤ max_payload.
void append_frame(std::string& out, frame_header header, std::string_view payload);

/// Whole frames. REQUIRES: payload.size() ≤ max_payload.
std::string control_frame(std::string_view json);
std::string ping_frame(std::string_view payload = {});
std::string pong_frame(std::string_view payload = {});

inline constexpr std::size_t window_frame_size = frame_header_size + 8;
/// "Send up to `limit`; I have consumed up to `consumed`." REQUIRES: consumed ≤ limit.
std::array<std::byte, window_frame_size> window_frame(std::uint32_t stream, std::uint64_t limit,
                                                      std::uint64_t consumed);

/// The consumed position in a window frame's payload. REQUIRES: a frame that was decoded here.
std::uint64_t window_consumed(const frame& window);

/// Frames out of a byte stream that arrives in pieces of any size.
///
///     decoder.feed(piece);
///     while (true) {
///       const auto next = decoder.next();
///       if (!next) → close the connection with to_string(next.error());
///       if (!*next) break;   // needs another piece
///       handle(**next);
///     }
///
/// A frame that lies whole in the piece is not copied: its payload points into the piece. One that is cut is put
/// together in a buffer of the decoder. Either way it is valid until the next call.
class frame_decoder {
public:
  /// The next piece; it must stay until next() has said that it needs another. REQUIRES: that it has (or the first
  /// call).
  void feed(std::span<const std::byte> piece);

  /// The next frame, or nullopt when it needs another piece. After an error the stream is unusable, and every further
  /// call gives the same error.
  tl::expected<std::optional<frame>, frame_ec> next();

  /// Bytes that wait for the rest of their frame.
  std::size_t pending() const {
    return carried_.size();
  }

  /// Gives the buffer back when nothing waits in it: for connections that rest.
  void trim();

private:
  tl::expected<std::optional<frame>, frame_ec> fail(frame_ec code);
  /// Moves bytes of the piece into the buffer until it has `wanted`; whether it has.
  bool carry(std::size_t wanted);

  std::span<const std::byte> piece_;
  std::vector<std::byte> carried_;
  bool clear_carried_ = false;
  std::optional<frame_ec> failed_;
};

} // namespace holt::protocols
