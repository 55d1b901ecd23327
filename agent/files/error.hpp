#pragma once

#include <string>
#include <string_view>

#include <tl/expected.hpp>

#include "protocols/agent_messages.hpp"

/// How file and search operations fail: the error that goes over the wire as it is. Pure: any thread.
///
/// Codes: file.invalid_path, file.outside_roots, file.not_found, file.denied, file.read_only, file.exists, file.not_empty,
/// file.is_directory, file.not_directory, file.not_regular (pipe, socket, device), file.too_many_links, file.too_large,
/// file.busy, file.changed (if_match, or somebody wrote meanwhile), file.mismatch (the body is not what was announced),
/// file.cancelled, file.failed, storage.full, edit.no_match, edit.several_matches, edit.invalid, watch.limit,
/// search.invalid_pattern, search.invalid_glob.
namespace holt::agent::files {

using protocols::agent::operation_error;

template <class T>
using result = tl::expected<T, operation_error>;

/// `retry` is "never", "after_change" or "later".
tl::unexpected<operation_error> failure(std::string code, std::string message, std::string_view retry = "never");

/// What a system call's errno means to the caller. `path` is the agent's own.
tl::unexpected<operation_error> failure_of(int error, std::string_view path);

/// A path as it may stand in a message: not UTF-8 or control bytes become '?', and it is cut after 512 bytes.
std::string printable(std::string_view path);

} // namespace holt::agent::files
