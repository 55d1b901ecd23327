#pragma once

#include <string>

#include <tl/expected.hpp>

/// The directory that holds everything holt keeps (spec 97), owned by one running server at a time.
namespace holt::runtime::process {

struct data_dir {
  std::string path; // absolute
  int lock = -1;    // held as long as the process lives; a second server is refused
  std::string host_id; // lasting id of this machine's holt (spec 1), made at the first start
};

/// Makes the directory (0711: environments of other uids pass through it, nobody lists it), takes its lock, reads or makes the
/// host id. The error is one line for an operator.
tl::expected<data_dir, std::string> open_data_dir(const std::string& path);

/// The id of this run of the machine's kernel: a new one means that no process of the last run lives (spec 6a).
std::string boot_id();

/// Writes a whole file that only its owner reads (0600): first beside it, synced, then renamed.
tl::expected<void, std::string> write_private_file(const std::string& path, const std::string& content);

} // namespace holt::runtime::process
