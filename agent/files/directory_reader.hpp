#pragma once

#include <cstddef>
#include <memory>

/// Reads an open directory's entries straight from the kernel: 32 KiB at a time, with the type where the file system
/// gives it. One thread at a time.
namespace holt::agent::files {

struct directory_entry {
  const char* name; // valid until the next call
  unsigned char type; // DT_…, DT_UNKNOWN possible
};

class directory_reader {
public:
  directory_reader() = default;

  /// The next entry but "." and ".."; false at the end or on an error (then error() is not 0). `fd` must be readable
  /// (not O_PATH) and the same until rewind().
  bool next(int fd, directory_entry& entry);
  /// Forgets what was read ahead, for use with another descriptor.
  void rewind() {
    at_ = end_ = 0;
    error_ = 0;
  }
  int error() const {
    return error_;
  }

private:
  static constexpr std::size_t buffer_bytes = 32 * 1024;
  std::unique_ptr<char[]> buffer_;
  std::size_t at_ = 0;
  std::size_t end_ = 0;
  int error_ = 0;
};

} // namespace holt::agent::files
