#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

/// Ids as the API shows them: the kind, then 16 random bytes as 26 lower-case characters of Crockford's base32
/// (`env_01j8…`). One id has one text. Nothing here makes randomness: it is passed in. Pure: any thread.
namespace holt::protocols {

enum class id_kind {
  environment,  // env_
  file_system,  // fs_
  conversation, // conv_
  operation,    // op_
  task,         // task_
  machine,      // mach_
  skill,        // skill_
  key,          // key_
  org,          // org_
  user,         // user_
  session,      // sess_
  host,         // host_
  request,      // req_
};

using id_bytes = std::array<std::byte, 16>;

/// With the underscore: "env_".
std::string_view prefix_of(id_kind kind);

std::string format_id(id_kind kind, const id_bytes& random);

/// nullopt unless the text is an id of this kind, exactly as format_id writes it.
std::optional<id_bytes> parse_id(id_kind kind, std::string_view text);
bool is_id(id_kind kind, std::string_view text);

/// The kind of any id; nullopt when the text is none.
std::optional<id_kind> kind_of_id(std::string_view text);

/// 128 bits as the 26 characters alone, for tokens and nonces.
std::string format_base32(const id_bytes& bytes);

inline constexpr std::size_t max_op_id_length = 128;
/// An operation's id may be chosen by the caller (spec 44): 1 to 128 of letters, digits, `_`, `-` and `.`, beginning
/// with a letter or digit. So it stands unescaped in paths and in event ids (`op_id:position`).
bool is_op_id(std::string_view text);

} // namespace holt::protocols
