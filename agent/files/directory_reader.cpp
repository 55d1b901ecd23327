#include "agent/files/directory_reader.hpp"

#include <cerrno>
#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace holt::agent::files {

bool directory_reader::next(int fd, directory_entry& entry) {
  if (!buffer_)
    buffer_ = std::make_unique_for_overwrite<char[]>(buffer_bytes);
  for (;;) {
    if (at_ == end_) {
      auto count = ::syscall(SYS_getdents64, fd, buffer_.get(), buffer_bytes);
      if (count <= 0) {
        error_ = count < 0 ? errno : 0;
        return false;
      }
      at_ = 0;
      end_ = static_cast<std::size_t>(count);
    }
    auto* record = reinterpret_cast<const dirent64*>(buffer_.get() + at_);
    at_ += record->d_reclen;
    const char* name = record->d_name;
    if (name[0] == '.' && (name[1] == 0 || (name[1] == '.' && name[2] == 0)))
      continue;
    entry = {name, record->d_type};
    return true;
  }
}

} // namespace holt::agent::files
