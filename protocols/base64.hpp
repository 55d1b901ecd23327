#pragma once

#include <optional>
#include <string>
#include <string_view>

/// Bytes as text: base64 (RFC 4648 section 4, padded; and section 5 without padding for URLs) and lower-case hex.
///
/// Decoding is strict, so that one byte string has one text: no line breaks, no missing or surplus padding, no
/// left-over bits, hex in lower case only. nullopt says that the text is not such an encoding. Pure: any thread.
namespace holt::protocols {

std::string base64_encode(std::string_view bytes);
std::optional<std::string> base64_decode(std::string_view text);

std::string base64url_encode(std::string_view bytes);
std::optional<std::string> base64url_decode(std::string_view text);

std::string hex_encode(std::string_view bytes);
std::optional<std::string> hex_decode(std::string_view text);

} // namespace holt::protocols
