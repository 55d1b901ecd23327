#include "storage/cursor.hpp"

#include <array>
#include <charconv>

namespace holt::storage {

namespace {

constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::size_t longest_cursor = 1024;

std::string base64url(std::string_view bytes) {
  std::string text;
  std::uint32_t held = 0;
  int bits = 0;
  for (unsigned char byte : bytes) {
    held = held << 8 | byte;
    bits += 8;
    while (bits >= 6) {
      bits -= 6;
      text += digits[held >> bits & 63];
    }
  }
  if (bits > 0) {
    text += digits[held << (6 - bits) & 63];
  }
  return text;
}

std::optional<std::string> from_base64url(std::string_view text) {
  std::string bytes;
  std::uint32_t held = 0;
  int bits = 0;
  for (char each : text) {
    auto digit = digits.find(each);
    if (digit == std::string_view::npos) {
      return std::nullopt;
    }
    held = held << 6 | static_cast<std::uint32_t>(digit);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes += static_cast<char>(held >> bits & 255);
    }
  }
  return bytes;
}

} // namespace

std::string cursor_text(std::string_view list, const list_key& last) {
  std::string key(list);
  key += ':' + std::to_string(last.created_at) + ':' + last.id;
  return base64url(key);
}

std::optional<list_key> read_cursor(std::string_view list, std::string_view cursor) {
  if (cursor.empty()) {
    return list_key{};
  }
  if (cursor.size() > longest_cursor) {
    return std::nullopt;
  }
  auto key = from_base64url(cursor);
  if (!key || key->size() <= list.size() || !std::string_view(*key).starts_with(list) || (*key)[list.size()] != ':') {
    return std::nullopt;
  }
  std::string_view rest = std::string_view(*key).substr(list.size() + 1);
  list_key last;
  auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), last.created_at);
  if (error != std::errc{} || end == rest.data() + rest.size() || *end != ':' || last.created_at < 0) {
    return std::nullopt;
  }
  last.id = rest.substr(static_cast<std::size_t>(end - rest.data()) + 1);
  // One text a key: what decodes alike but is written differently was never given.
  if (last.id.empty() || cursor_text(list, last) != cursor) {
    return std::nullopt;
  }
  return last;
}

} // namespace holt::storage
