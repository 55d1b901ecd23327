#pragma once

#include <optional>
#include <string>

#include "runtime/cli/api.hpp"

/// `holt cp SRC DST`: files and directories, into an environment or out of it.
///
/// Executable bits and empty directories are kept. Symbolic links and special files are not copied: each is named on
/// stderr, and the exit code says so. What comes out of an environment is hostile: its names can't leave the
/// destination.
namespace holt::runtime::cli {

/// "box:/etc/hosts", "box:src" (below the workspace), or a path here, if there is no colon before its first slash.
struct copy_place {
  std::optional<std::string> environment;
  std::string path;
};
copy_place parse_copy_place(const std::string& text);

/// Whether this can be one file's name here: not empty, ".", "..", and without "/" and NUL.
bool safe_name(std::string_view name);

struct copy_options {
  std::string from;
  std::string to;
  bool json = false;
};

result<int> copy_files(api& server, const copy_options& options);

} // namespace holt::runtime::cli
