#pragma once

#include <memory>
#include <string>

#include "agent/files/root_table.hpp"
#include "agent/search/ignore.hpp"

namespace holt::agent::search {

/// Where a search begins: an open directory (or file), the root it was named in, and its path there. Any thread.
struct search_base {
  files::opened opened;
  std::string root;     // absolute path of that root
  std::string relative; // below it, "" is the root itself

  /// The absolute path of an entry; `directory` is relative to the root.
  std::string absolute(std::string_view directory, std::string_view name) const;
  /// A directory's path from the base instead of the root.
  std::string_view below(std::string_view directory) const;
};

/// Opens what the path names, readable, without blocking.
files::result<search_base> open_base(const files::root_table& roots, const std::string& path);

/// The ignore files of the directories above the base, up to its root.
std::shared_ptr<const ignore_level> levels_above(const files::root_table& roots, const search_base& base);

} // namespace holt::agent::search
