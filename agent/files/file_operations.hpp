#pragma once

#include <functional>
#include <stop_token>

#include "agent/files/path_locks.hpp"
#include "agent/files/root_table.hpp"

/// The file operations of an agent that carry no body (spec 45); file_reader and file_writer carry one.
///
/// All of them block, and may be called from any thread at once. `roots` and `locks` are shared by all of one instance.
namespace holt::agent::files {

/// Largest file that can be edited, before and after.
inline constexpr std::size_t most_edit_bytes = 64 * 1024 * 1024;

/// Receives one record; false: stop (the receiver is gone). It may wait as long as the receiver needs.
using entry_sink = std::function<bool(protocols::agent::file_entry&&)>;

result<protocols::agent::file_stat_result> stat_path(const root_table& roots, const protocols::agent::file_stat& arguments);

/// In each directory by name, a directory before what is in it. A listing that is cut by `limit` holds any of the largest
/// directory's entries: no more than `limit` names are held in memory.
result<protocols::agent::list_result> list_directory(const root_table& roots,
                                                     const protocols::agent::file_list& arguments,
                                                     const entry_sink& sink, std::stop_token stop = {});

result<protocols::agent::file_stat_result> make_directory(const root_table& roots,
                                                          const protocols::agent::file_mkdir& arguments);

/// Removes the entry itself, never what a link names. Recursively by descriptor: follows no link and enters no mount;
/// ends at the first error, with what it names still there.
result<void> remove_path(const root_table& roots, path_locks& locks, const protocols::agent::file_remove& arguments,
                         std::stop_token stop = {});

/// Renames; a link is moved as a link. Between roots on different file systems only regular files move, by copy.
result<protocols::agent::file_stat_result> move_path(const root_table& roots, path_locks& locks,
                                                     const protocols::agent::file_move& arguments);

/// Edits are serialised by path; see apply_edits for what they do.
result<protocols::agent::file_edit_result> edit_file(const root_table& roots, path_locks& locks,
                                                     const protocols::agent::file_edit& arguments);

/// The record of an entry in an open directory, without following it; nullopt and errno if it can't be had.
std::optional<protocols::agent::file_entry> entry_at(int directory, const char* name);

} // namespace holt::agent::files
