#include "protocols/ids.hpp"

#include <algorithm>
#include <cstdint>

namespace holt::protocols {
namespace {

constexpr std::string_view alphabet = "0123456789abcdefghjkmnpqrstvwxyz";
constexpr std::size_t text_length = 26;

constexpr std::array<std::pair<id_kind, std::string_view>, 13> prefixes{{
    {id_kind::environment, "env_"},
    {id_kind::file_system, "fs_"},
    {id_kind::conversation, "conv_"},
    {id_kind::operation, "op_"},
    {id_kind::task, "task_"},
    {id_kind::machine, "mach_"},
    {id_kind::skill, "skill_"},
    {id_kind::key, "key_"},
    {id_kind::org, "org_"},
    {id_kind::user, "user_"},
    {id_kind::session, "sess_"},
    {id_kind::host, "host_"},
    {id_kind::request, "req_"},
}};

} // namespace

std::string_view prefix_of(id_kind kind) {
  return prefixes[static_cast<std::size_t>(kind)].second;
}

std::string format_base32(const id_bytes& bytes) {
  std::string out;
  out.reserve(text_length);
  std::uint32_t group = 0;
  unsigned bits = 0;
  for (const std::byte byte : bytes) {
    group = (group << 8 | std::to_integer<std::uint32_t>(byte)) & 0xFFFF;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      out += alphabet[group >> bits & 31];
    }
  }
  out += alphabet[group << (5 - bits) & 31];
  return out;
}

std::string format_id(id_kind kind, const id_bytes& random) {
  return std::string(prefix_of(kind)) + format_base32(random);
}

std::optional<id_bytes> parse_id(id_kind kind, std::string_view text) {
  const std::string_view prefix = prefix_of(kind);
  if (text.size() != prefix.size() + text_length || !text.starts_with(prefix)) {
    return std::nullopt;
  }
  id_bytes out{};
  std::size_t done = 0;
  std::uint32_t group = 0;
  unsigned bits = 0;
  for (const char c : text.substr(prefix.size())) {
    const std::size_t number = alphabet.find(c);
    if (number == std::string_view::npos) {
      return std::nullopt;
    }
    group = (group << 5 | static_cast<std::uint32_t>(number)) & 0xFFFF;
    bits += 5;
    if (bits >= 8) {
      bits -= 8;
      out[done++] = static_cast<std::byte>(group >> bits & 0xFF);
    }
  }
  // Two bits are left over; an id with others than 0 there would be a second text of the same bytes.
  if ((group & ((1U << bits) - 1)) != 0) {
    return std::nullopt;
  }
  return out;
}

bool is_id(id_kind kind, std::string_view text) {
  return parse_id(kind, text).has_value();
}

std::optional<id_kind> kind_of_id(std::string_view text) {
  for (const auto& [kind, prefix] : prefixes) {
    if (text.starts_with(prefix)) {
      return is_id(kind, text) ? std::optional(kind) : std::nullopt;
    }
  }
  return std::nullopt;
}

bool is_op_id(std::string_view text) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  return !text.empty() && text.size() <= max_op_id_length && plain(text.front())
         && std::all_of(text.begin(), text.end(), [&](char c) { return plain(c) || c == '_' || c == '-' || c == '.'; });
}

} // namespace holt::protocols
