#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <sys/types.h>

#include "runtime/cli/api.hpp"

/// One file between this machine and an environment, verified: success means that size and SHA-256 are equal on both
/// sides (spec 45). One thread.
namespace holt::runtime::cli {

/// Told of each piece's bytes as they go; a transfer that starts again tells of them again.
using transfer_progress = std::function<void(std::uint64_t bytes)>;

struct transfer_outcome {
  std::uint64_t size = 0;
  std::string sha256; // hex
};

/// Sends a regular file. Its executable bit goes along where the file is new there.
result<transfer_outcome> upload_file(api& server, const std::string& environment_id, const std::string& local_path,
                                     const std::string& remote_path, const transfer_progress& progress);

/// Fetches a file; `mode` are its permission bits here, less the umask. The local file appears whole or not at all; an
/// existing one is replaced.
result<transfer_outcome> download_file(api& server, const std::string& environment_id, const std::string& remote_path,
                                       const std::string& local_path, mode_t mode, const transfer_progress& progress);

/// Writes a file's bytes to a descriptor as they come, verified at the end.
result<transfer_outcome> print_file(api& server, const std::string& environment_id, const std::string& remote_path,
                                    int fd);

} // namespace holt::runtime::cli
