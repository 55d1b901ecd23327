#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

/// Descriptors and the few file calls that work beneath a directory descriptor. Pure wrappers, any thread.
///
/// A sandbox may change its files at any moment, so nothing here follows a symbolic link in the last component, and
/// paths with more than one component are resolved by the kernel beneath the directory (spec 46).
namespace holt::providers {

/// Owns one descriptor.
class unique_fd {
public:
  unique_fd() = default;
  explicit unique_fd(int fd) noexcept : fd_(fd) {
  }
  unique_fd(unique_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {
  }
  unique_fd& operator=(unique_fd&& other) noexcept {
    reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~unique_fd() {
    reset();
  }

  int get() const noexcept {
    return fd_;
  }
  int release() noexcept {
    return std::exchange(fd_, -1);
  }
  explicit operator bool() const noexcept {
    return fd_ >= 0;
  }
  void reset(int fd = -1) noexcept {
    if (fd_ >= 0)
      ::close(fd_);
    fd_ = fd;
  }

private:
  int fd_ = -1;
};

struct pipe_ends {
  unique_fd read;
  unique_fd write;
};

/// Close-on-exec, blocking write end, non-blocking read end.
std::optional<pipe_ends> make_pipe();

/// Opens a directory by one name, or by a relative path that the kernel keeps beneath `at`; no symbolic link anywhere.
unique_fd open_directory(int at, const std::string& path);

/// Makes the directory when it is missing, with exactly this mode, and opens it.
unique_fd make_directory(int at, const std::string& name, mode_t mode);

/// Whole content of a small regular file, at most `max` bytes; nothing when it can't be read.
std::optional<std::string> read_file(int at, const std::string& name, std::size_t max = 64 * 1024);
std::optional<std::string> read_file(const std::string& path, std::size_t max = 64 * 1024);

/// Replaces a file as a whole: a reader sees the old content or the new. No flush to disk.
bool replace_file(int at, const std::string& name, std::string_view content, mode_t mode);

/// Writes to an existing file (cgroup files), errno on failure.
bool write_existing(const std::string& path, std::string_view content);

/// Removes a file or a whole tree, whatever is in it and however deep, without following links or walking out by
/// renames. True when nothing is left.
bool remove_tree(int at, const std::string& name);

/// Gives a tree (links themselves, never their targets) to another owner.
bool change_owner(int directory, uid_t uid, gid_t gid);

/// "what: text of errno".
std::string errno_text(std::string_view what);

} // namespace holt::providers
