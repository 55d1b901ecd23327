#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/files/error.hpp"

namespace holt::agent::files {

struct edited_text {
  std::string content;
  std::uint32_t replacements = 0;
};

/// Applies edits to bytes, one after the other, each to what the former left: all of them or none (spec 45, 77).
///
/// Only matched bytes change. Where the file ends its lines with CRLF, a lone LF in old_text matches CRLF too, and lone
/// LFs of new_text become CRLF there. Without `all`, old_text must occur once. Errors, with `details` of the edit's index:
/// edit.no_match, edit.several_matches (and count), edit.invalid (empty old_text), file.too_large (over `max_bytes`).
/// Time is linear in the size for each edit. Pure: any thread.
result<edited_text> apply_edits(std::string content, const std::vector<protocols::agent::text_edit>& edits,
                                std::size_t max_bytes);

} // namespace holt::agent::files
