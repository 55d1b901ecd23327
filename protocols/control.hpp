#pragma once

#include "protocols/frame.hpp"
#include "protocols/json_bytes.hpp"

/// Control messages of agent_messages.hpp as payloads of control frames. Both ends use these three and nothing else.
namespace holt::protocols {

/// What a control payload may be: one frame, not deeper than any message of ours.
inline constexpr json::text_limits control_limits{.max_bytes = max_payload, .max_depth = 32};

/// A control payload as a value; its kind is json::kind_of.
inline tl::expected<json::value, json::error> parse_control(std::string_view payload) {
  return json::parse_text(payload, control_limits);
}

/// The message in a parsed payload, unknown fields ignored (they are of a newer version).
template <class T>
tl::expected<T, json::error> read_control(const json::value& message) {
  return json::read<T>(message, json::unknown_fields::ignore);
}

} // namespace holt::protocols
