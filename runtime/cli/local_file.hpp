#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <sys/types.h>

#include <tl/expected.hpp>

/// Descriptors and small files of the machine that the client runs on. Any thread.
namespace holt::runtime::cli {

/// Owns a descriptor.
class file_descriptor {
public:
  file_descriptor() = default;
  explicit file_descriptor(int fd) : fd_(fd) {
  }
  file_descriptor(file_descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {
  }
  file_descriptor& operator=(file_descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~file_descriptor();
  int get() const {
    return fd_;
  }
  explicit operator bool() const {
    return fd_ >= 0;
  }

private:
  int fd_ = -1;
};

/// Writes everything, or says why not. Waits where the descriptor doesn't take more, also if it is non-blocking.
std::error_code write_all(int fd, std::string_view bytes);

/// Over `max_bytes`: std::errc::file_too_large.
tl::expected<std::string, std::error_code> read_small_file(const std::string& path, std::size_t max_bytes);

/// A new file beside it, synced, then renamed over: a reader finds the old or the new one, whole.
std::error_code replace_small_file(const std::string& path, std::string_view bytes, mode_t mode);

/// A file that is being written under a name of its own in the directory of `path`, and gets its right name at the end;
/// gone without a trace if that end never comes.
class replacement_file {
public:
  replacement_file() = default;
  replacement_file(replacement_file&& other) noexcept;
  replacement_file& operator=(replacement_file&&) = delete;
  ~replacement_file();
  static tl::expected<replacement_file, std::error_code> open(const std::string& path, mode_t mode);
  int fd() const {
    return fd_.get();
  }
  /// Syncs if asked, renames.
  std::error_code finish(bool sync);

private:
  std::string path_;
  std::string temporary_;
  file_descriptor fd_;
};

} // namespace holt::runtime::cli
