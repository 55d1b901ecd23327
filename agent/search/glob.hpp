#pragma once

#include <functional>
#include <stop_token>

#include "agent/files/root_table.hpp"

namespace holt::agent::search {

using files::result;

/// Receives one record; false: stop. Never called by two threads at once, but not always by the caller's thread while
/// the search runs. It may wait as long as the receiver needs.
using entry_sink = std::function<bool(protocols::agent::file_entry&&)>;

/// search.glob (spec 45). Names are absolute paths. Files, links and others match; directories only when the pattern ends
/// in a slash. Links to directories are not entered. What can't be read is left out.
///
/// `*` and `?` stay within a name, `[…]` is one character, `{a,b}` are alternatives, `**` crosses directories; a pattern
/// counts from `path` (default: workspace), unless it is an absolute path inside a root. Memory is bounded by `limit`.
/// Blocks; walks with up to 4 threads of its own. Errors: search.invalid_glob, and those of root_table.
result<protocols::agent::list_result> glob(const files::root_table& roots,
                                           const protocols::agent::search_glob& arguments, const entry_sink& sink,
                                           std::stop_token stop = {});

} // namespace holt::agent::search
