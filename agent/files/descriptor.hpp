#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

/// Owning file descriptors and the few calls that every part of files/ and search/ needs. Any thread.
namespace holt::agent::files {

/// Closes what it holds. Moves only.
class descriptor {
public:
  descriptor() = default;
  explicit descriptor(int fd) : fd_(fd) {
  }
  descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {
  }
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~descriptor() {
    reset();
  }

  int get() const {
    return fd_;
  }
  explicit operator bool() const {
    return fd_ >= 0;
  }
  int release() {
    return std::exchange(fd_, -1);
  }
  void reset();

private:
  int fd_ = -1;
};

/// openat2 with O_CLOEXEC; retries EINTR, and EAGAIN (the tree changed under RESOLVE_BENEATH) a bounded number of times.
/// -1 and errno on failure. `path` must end in NUL.
int open_beneath(int directory, const char* path, int flags, unsigned long long resolve);

/// Writes all, or returns the errno.
int write_all(int fd, std::string_view bytes);

/// read() that retries EINTR.
long read_some(int fd, char* buffer, std::size_t size);

} // namespace holt::agent::files
