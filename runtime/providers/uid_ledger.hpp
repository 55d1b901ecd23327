#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <tl/expected.hpp>

#include "runtime/providers/fd.hpp"

/// Which host uid belongs to which environment (spec 33). Durable: an append-only file, so that a uid is never given to
/// a second environment while files of the first exist.
///
/// One line a change: "+ 700000 env_x" or "- 700000 env_x"; rewritten as a whole when opened. Any thread; the file
/// belongs to one process at a time (locked).
namespace holt::providers {

class uid_ledger {
public:
  struct range {
    uid_t first = 700'000;
    std::uint32_t count = 100'000;
  };

  /// `directory` must outlive the ledger. Fails when the file is malformed or held by another process.
  static tl::expected<std::unique_ptr<uid_ledger>, std::string> open(int directory, range uids);

  /// The environment's uid; a new one, the least recently given, when it has none. A new one is on disk after `sync`.
  tl::expected<uid_t, std::string> claim(const std::string& environment_id);
  std::optional<uid_t> find(const std::string& environment_id) const;

  /// A uid found on files whose record is missing: taken as that environment's.
  void adopt(const std::string& environment_id, uid_t uid);

  /// Gives the uid of one environment, with its files, to another that has none.
  bool rename(const std::string& from, const std::string& to);

  /// Once no file of the environment is left.
  bool release(const std::string& environment_id);

  /// Waits until what was claimed is on disk. Cheap when nothing was.
  bool sync();

private:
  uid_ledger(unique_fd file, range uids) : file_(std::move(file)), range_(uids) {
  }
  bool append(char sign, uid_t uid, const std::string& environment_id);

  mutable std::mutex mutex_;
  unique_fd lock_;
  unique_fd file_;
  range range_;
  std::map<std::string, uid_t> by_environment_;
  std::map<uid_t, std::string> by_uid_;
  uid_t next_ = 0;
  bool unsynced_ = false;
};

} // namespace holt::providers
