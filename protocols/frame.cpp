#include "protocols/frame.hpp"

#include <algorithm>
#include <cassert>

namespace holt::protocols {
namespace {

template <class Number>
void put(std::byte* out, Number number) {
  for (std::size_t i = sizeof(Number); i-- > 0; number = static_cast<Number>(number >> (sizeof(Number) > 1 ? 8 : 0))) {
    out[i] = static_cast<std::byte>(number & 0xFF);
  }
}

template <class Number>
Number get(const std::byte* in) {
  Number number = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    number = static_cast<Number>(number << 8 | std::to_integer<Number>(in[i]));
  }
  return number;
}

/// The rule that needs the payload.
std::optional<frame_ec> check_payload(const frame_header& header, const std::byte* payload) {
  if (header.type == frame_type::window && get<std::uint64_t>(payload) > header.offset) {
    return frame_ec::window_malformed;
  }
  return std::nullopt;
}

std::string whole_frame(frame_type type, std::string_view payload) {
  std::string out;
  append_frame(out, {.type = type}, payload);
  return out;
}

} // namespace

std::string_view to_string(frame_ec code) {
  switch (code) {
  case frame_ec::payload_too_long:
    return "a frame's payload is over 65536 bytes";
  case frame_ec::unknown_type:
    return "a frame has an unknown type";
  case frame_ec::unknown_flags:
    return "a frame has flags that it may not have";
  case frame_ec::reserved_not_zero:
    return "a frame's reserved field is not 0";
  case frame_ec::stream_missing:
    return "a data or window frame names stream 0";
  case frame_ec::stream_unexpected:
    return "a control, ping or pong frame names a stream";
  case frame_ec::window_malformed:
    return "a window frame's payload is not a consumed position of 8 bytes, at most its limit";
  case frame_ec::position_too_large:
    return "a frame's position is over 2^63 - 1";
  case frame_ec::message_size:
    return "a message is not exactly one frame";
  }
  return "a malformed frame";
}

std::array<std::byte, frame_header_size> encode(const frame_header& header) {
  assert(header.length <= max_payload);
  std::array<std::byte, frame_header_size> out{};
  put(&out[0], header.length);
  out[4] = static_cast<std::byte>(header.type);
  out[5] = static_cast<std::byte>(header.flags);
  put(&out[8], header.stream);
  put(&out[12], header.offset);
  return out;
}

tl::expected<frame_header, frame_ec> decode_header(std::span<const std::byte, frame_header_size> bytes) {
  frame_header header;
  header.length = get<std::uint32_t>(&bytes[0]);
  const auto type = std::to_integer<std::uint8_t>(bytes[4]);
  header.flags = std::to_integer<std::uint8_t>(bytes[5]);
  header.stream = get<std::uint32_t>(&bytes[8]);
  header.offset = get<std::uint64_t>(&bytes[12]);
  if (header.length > max_payload) {
    return tl::unexpected(frame_ec::payload_too_long);
  }
  if (type < 1 || type > 5) {
    return tl::unexpected(frame_ec::unknown_type);
  }
  header.type = static_cast<frame_type>(type);
  if (get<std::uint16_t>(&bytes[6]) != 0) {
    return tl::unexpected(frame_ec::reserved_not_zero);
  }
  const std::uint8_t allowed = header.type == frame_type::data ? frame_last | frame_stderr : 0;
  if ((header.flags & ~allowed) != 0) {
    return tl::unexpected(frame_ec::unknown_flags);
  }
  const bool on_stream = header.type == frame_type::data || header.type == frame_type::window;
  if (on_stream != (header.stream != 0)) {
    return tl::unexpected(on_stream ? frame_ec::stream_missing : frame_ec::stream_unexpected);
  }
  if (header.offset > max_position - header.length) {
    return tl::unexpected(frame_ec::position_too_large);
  }
  if (header.type == frame_type::window && header.length != 8) {
    return tl::unexpected(frame_ec::window_malformed);
  }
  return header;
}

tl::expected<frame, frame_ec> decode_message(std::span<const std::byte> message) {
  if (message.size() < frame_header_size) {
    return tl::unexpected(frame_ec::message_size);
  }
  const auto header = decode_header(message.first<frame_header_size>());
  if (!header) {
    return tl::unexpected(header.error());
  }
  const auto payload = message.subspan(frame_header_size);
  if (payload.size() != header->length) {
    return tl::unexpected(frame_ec::message_size);
  }
  if (const auto problem = check_payload(*header, payload.data())) {
    return tl::unexpected(*problem);
  }
  return frame{*header, payload};
}

void append_frame(std::string& out, frame_header header, std::string_view payload) {
  header.length = static_cast<std::uint32_t>(payload.size());
  const auto bytes = encode(header);
  out.reserve(out.size() + bytes.size() + payload.size());
  out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  out.append(payload);
}

std::string control_frame(std::string_view json) {
  return whole_frame(frame_type::control, json);
}

std::string ping_frame(std::string_view payload) {
  return whole_frame(frame_type::ping, payload);
}

std::string pong_frame(std::string_view payload) {
  return whole_frame(frame_type::pong, payload);
}

std::array<std::byte, window_frame_size> window_frame(std::uint32_t stream, std::uint64_t limit,
                                                      std::uint64_t consumed) {
  assert(consumed <= limit);
  std::array<std::byte, window_frame_size> out{};
  const auto header = encode({.length = 8, .type = frame_type::window, .stream = stream, .offset = limit});
  std::copy(header.begin(), header.end(), out.begin());
  put(&out[frame_header_size], consumed);
  return out;
}

std::uint64_t window_consumed(const frame& window) {
  assert(window.payload.size() == 8);
  return get<std::uint64_t>(window.payload.data());
}

void frame_decoder::feed(std::span<const std::byte> piece) {
  assert(piece_.empty() || failed_);
  piece_ = piece;
}

bool frame_decoder::carry(std::size_t wanted) {
  const std::size_t taken = std::min(wanted - carried_.size(), piece_.size());
  carried_.insert(carried_.end(), piece_.begin(), piece_.begin() + static_cast<std::ptrdiff_t>(taken));
  piece_ = piece_.subspan(taken);
  return carried_.size() == wanted;
}

tl::expected<std::optional<frame>, frame_ec> frame_decoder::fail(frame_ec code) {
  failed_ = code;
  return tl::unexpected(code);
}

tl::expected<std::optional<frame>, frame_ec> frame_decoder::next() {
  if (failed_) {
    return tl::unexpected(*failed_);
  }
  if (clear_carried_) {
    carried_.clear();
    clear_carried_ = false;
  }
  if (carried_.empty() && piece_.size() >= frame_header_size) {
    const auto header = decode_header(piece_.first<frame_header_size>());
    if (!header) {
      return fail(header.error());
    }
    const std::size_t whole = frame_header_size + header->length;
    if (piece_.size() >= whole) {
      const auto payload = piece_.subspan(frame_header_size, header->length);
      if (const auto problem = check_payload(*header, payload.data())) {
        return fail(*problem);
      }
      piece_ = piece_.subspan(whole);
      return std::optional(frame{*header, payload});
    }
    carried_.reserve(whole);
  }
  if (carried_.size() < frame_header_size && !carry(frame_header_size)) {
    return std::optional<frame>();
  }
  const auto header = decode_header(std::span<const std::byte, frame_header_size>(carried_.data(), frame_header_size));
  if (!header) {
    return fail(header.error());
  }
  const std::size_t whole = frame_header_size + header->length;
  carried_.reserve(whole);
  if (!carry(whole)) {
    return std::optional<frame>();
  }
  const std::span<const std::byte> payload(carried_.data() + frame_header_size, header->length);
  if (const auto problem = check_payload(*header, payload.data())) {
    return fail(*problem);
  }
  clear_carried_ = true;
  return std::optional(frame{*header, payload});
}

void frame_decoder::trim() {
  if (carried_.empty() || clear_carried_) {
    carried_ = {};
    clear_carried_ = false;
  }
}

} // namespace holt::protocols
