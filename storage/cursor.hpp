#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Where a list goes on: the key of the last row given, as opaque text that fits a URL. Pure.
namespace holt::storage {

/// Lists are ordered by created_at, then id.
struct list_key {
  /// Before every row: times are never negative.
  std::int64_t created_at = -1;
  std::string id;
};

/// `list` names the kind of list ("environments"), so that a cursor of another list is refused.
std::string cursor_text(std::string_view list, const list_key& last);

/// An empty cursor is the start. Nothing else but what cursor_text() gave for the same list is accepted.
std::optional<list_key> read_cursor(std::string_view list, std::string_view cursor);

} // namespace holt::storage
