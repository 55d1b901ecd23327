#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/files/directory_reader.hpp"
#include "agent/files/root_table.hpp"

namespace holt::agent::files {

/// Follows changes below a directory through inotify (spec 45). One thread at a time; poll fd() for reading, then call
/// read_events.
///
/// New directories are followed too, and what was already in them when that began is told as created (it may be told
/// twice, never missed). A rename within the tree is one "moved"; into or out of it, a "created" or "removed". When the
/// kernel had to drop events there is one "overflow": look at the tree anew. Links are not followed.
class watcher {
public:
  struct limits {
    /// Directories followed. Each costs about 1 KiB of kernel memory, and a system-wide allowance.
    std::size_t most_directories = 8192;
  };

  /// Errors: those of root_table::open, watch.limit. `roots` must outlive the watcher.
  static result<watcher> begin(const root_table& roots, const protocols::agent::file_watch& arguments, limits bounds);
  static result<watcher> begin(const root_table& roots, const protocols::agent::file_watch& arguments) {
    return begin(roots, arguments, limits{});
  }

  int fd() const {
    return inotify_.get();
  }

  /// Hands over what happened since the last call, without waiting. False from the sink ends it. Errors: watch.limit
  /// (a new directory was one too many; the others are still followed), file.not_found (the watched directory is gone).
  using event_sink = std::function<bool(protocols::agent::watch_event&&)>;
  result<void> read_events(const event_sink& sink);

private:
  struct waiting_move {
    std::uint32_t cookie = 0;
    std::string path;
    bool directory = false;
  };

  watcher() = default;

  result<void> follow(const descriptor& directory, const std::string& path);
  /// Follows the directory and what is below it; tells of its entries when `sink` is given. False: the sink said so.
  result<bool> follow_tree(descriptor directory, const std::string& path, const event_sink* sink);
  result<bool> handle(std::uint32_t mask, int watch, std::uint32_t cookie, const char* name, const event_sink& sink);
  bool end_move(const event_sink& sink);
  void rename_below(const std::string& from, const std::string& to);
  void forget_below(const std::string& path);
  descriptor open_below(const std::string& path) const;

  // Not the watched directory's descriptor: holding it would keep the kernel from telling that it was removed.
  const root_table* roots_ = nullptr;
  std::uint64_t device_ = 0;
  std::uint64_t inode_ = 0;
  descriptor inotify_;
  bool recursive_ = true;
  limits bounds_;
  std::string shown_;
  std::unordered_map<int, std::string> paths_; // of each inotify watch, below the watched directory, which is ""
  waiting_move move_;
};

} // namespace holt::agent::files
