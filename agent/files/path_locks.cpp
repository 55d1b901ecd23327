#include "agent/files/path_locks.hpp"

#include <sys/stat.h>

namespace holt::agent::files {

path_locks::guard::guard(path_locks& table, std::string key) : table_(table), key_(std::move(key)) {
  {
    std::lock_guard lock(table_.mutex_);
    auto& slot = table_.entries_[key_];
    if (!slot)
      slot = std::make_unique<entry>();
    entry_ = slot.get();
    ++entry_->users;
  }
  entry_->mutex.lock();
}

path_locks::guard::~guard() {
  entry_->mutex.unlock();
  std::lock_guard lock(table_.mutex_);
  if (--entry_->users == 0)
    table_.entries_.erase(key_);
}

std::string path_locks::key(int directory, const std::string& name) {
  struct stat status {};
  ::fstat(directory, &status);
  return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino) + "/" + name;
}

} // namespace holt::agent::files
