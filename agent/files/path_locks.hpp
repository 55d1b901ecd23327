#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace holt::agent::files {

/// One mutex a path that is being changed, and none for the others, so that edits of one file follow each other
/// (spec 45) and edits of different files don't wait. Any thread.
class path_locks {
  struct entry {
    std::mutex mutex;
    int users = 0; // guarded by the table's mutex
  };

public:
  /// Holds the path until destroyed.
  class guard {
  public:
    guard(path_locks& table, std::string key);
    ~guard();
    guard(const guard&) = delete;
    guard& operator=(const guard&) = delete;

  private:
    path_locks& table_;
    std::string key_;
    entry* entry_;
  };

  /// The key of a name in an open directory: the same for every path that leads there.
  static std::string key(int directory, const std::string& name);

private:
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<entry>> entries_;
};

} // namespace holt::agent::files
