#pragma once

#include <functional>
#include <stop_token>

#include "agent/files/root_table.hpp"

namespace holt::agent::search {

using files::result;

/// Receives one record; false: stop. Never called by two threads at once, but not always by the caller's thread while
/// the search runs. It may wait as long as the receiver needs.
using grep_sink = std::function<bool(protocols::agent::grep_record&&)>;

/// search.grep (spec 45, 77): RE2, or the pattern as plain bytes. Paths in records are absolute. The records of one file
/// come together and in order; files come as they are done.
///
/// `^` and `$` are the ends of a line, and `.` stays within it. Without `multiline` a match is a line; with it a pattern
/// may span lines, and each of them is a record of type "match". `globs` are as in .gitignore: without a slash they match
/// a name anywhere, "!x" excludes; with any that don't exclude, only what they match is searched. A binary file (NUL in
/// its first 64 KiB) that matches is one record of type "binary". What can't be read is one of type "skipped"; neither
/// that nor a line of any length fails the search. Memory is bounded whatever the size of files: longer lines than 8 MiB
/// are searched in overlapping pieces, and a match that spans lines may be cut if it is longer than 1 MiB and the file
/// larger than 16 MiB.
///
/// Blocks; works with up to 4 threads of its own. Errors: search.invalid_pattern, search.invalid_glob, and those of
/// root_table.
result<protocols::agent::grep_result> grep(const files::root_table& roots,
                                           const protocols::agent::search_grep& arguments, const grep_sink& sink,
                                           std::stop_token stop = {});

} // namespace holt::agent::search
