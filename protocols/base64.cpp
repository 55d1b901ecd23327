#include "protocols/base64.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace holt::protocols {
namespace {

constexpr std::string_view standard = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::string_view for_urls = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::uint8_t none = 255;

constexpr std::array<std::uint8_t, 256> reversed(std::string_view alphabet) {
  std::array<std::uint8_t, 256> table{};
  table.fill(none);
  for (std::size_t i = 0; i < alphabet.size(); ++i) {
    table[static_cast<std::uint8_t>(alphabet[i])] = static_cast<std::uint8_t>(i);
  }
  return table;
}

constexpr auto standard_values = reversed(standard);
constexpr auto for_urls_values = reversed(for_urls);
constexpr auto hex_values = reversed("0123456789abcdef");

std::string encode(std::string_view bytes, std::string_view alphabet, bool padded) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  const auto byte = [&](std::size_t i) { return std::uint32_t{static_cast<std::uint8_t>(bytes[i])}; };
  std::size_t i = 0;
  for (; i + 3 <= bytes.size(); i += 3) {
    const std::uint32_t group = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
    text += alphabet[group >> 18];
    text += alphabet[group >> 12 & 63];
    text += alphabet[group >> 6 & 63];
    text += alphabet[group & 63];
  }
  if (const std::size_t rest = bytes.size() - i; rest > 0) {
    const std::uint32_t group = byte(i) << 16 | (rest == 2 ? byte(i + 1) << 8 : 0);
    text += alphabet[group >> 18];
    text += alphabet[group >> 12 & 63];
    if (rest == 2) {
      text += alphabet[group >> 6 & 63];
    }
    if (padded) {
      text.append(3 - rest, '=');
    }
  }
  return text;
}

std::optional<std::string> decode(std::string_view text, const std::array<std::uint8_t, 256>& values) {
  if (text.size() % 4 == 1) {
    return std::nullopt;
  }
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t group = 0;
  unsigned bits = 0;
  for (const char c : text) {
    const std::uint8_t value = values[static_cast<std::uint8_t>(c)];
    if (value == none) {
      return std::nullopt;
    }
    group = (group << 6 | value) & 0xFFFFFF;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes += static_cast<char>(group >> bits & 0xFF);
    }
  }
  if ((group & ((1U << bits) - 1)) != 0) {
    return std::nullopt;
  }
  return bytes;
}

} // namespace

std::string base64_encode(std::string_view bytes) {
  return encode(bytes, standard, true);
}

std::optional<std::string> base64_decode(std::string_view text) {
  if (text.size() % 4 != 0) {
    return std::nullopt;
  }
  for (int i = 0; i < 2 && text.ends_with('='); ++i) {
    text.remove_suffix(1);
  }
  return decode(text, standard_values);
}

std::string base64url_encode(std::string_view bytes) {
  return encode(bytes, for_urls, false);
}

std::optional<std::string> base64url_decode(std::string_view text) {
  return decode(text, for_urls_values);
}

std::string hex_encode(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const auto byte = static_cast<std::uint8_t>(c);
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::optional<std::string> hex_decode(std::string_view text) {
  if (text.size() % 2 != 0) {
    return std::nullopt;
  }
  std::string bytes;
  bytes.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const std::uint8_t high = hex_values[static_cast<std::uint8_t>(text[i])];
    const std::uint8_t low = hex_values[static_cast<std::uint8_t>(text[i + 1])];
    if (high == none || low == none) {
      return std::nullopt;
    }
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

} // namespace holt::protocols
