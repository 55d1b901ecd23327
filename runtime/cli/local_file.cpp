#include "runtime/cli/local_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace holt::runtime::cli {

namespace {
std::error_code last_error() {
  return {errno, std::generic_category()};
}
} // namespace

file_descriptor::~file_descriptor() {
  if (fd_ >= 0)
    ::close(fd_);
}

std::error_code write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    auto n = ::write(fd, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd ready{fd, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return last_error();
    }
  }
  return {};
}

tl::expected<std::string, std::error_code> read_small_file(const std::string& path, std::size_t max_bytes) {
  file_descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd)
    return tl::unexpected(last_error());
  std::string text;
  char buffer[4096];
  for (;;) {
    auto n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return tl::unexpected(last_error());
    if (n == 0)
      return text;
    text.append(buffer, static_cast<std::size_t>(n));
    if (text.size() > max_bytes)
      return tl::unexpected(std::make_error_code(std::errc::file_too_large));
  }
}

std::error_code replace_small_file(const std::string& path, std::string_view bytes, mode_t mode) {
  auto file = replacement_file::open(path, mode);
  if (!file)
    return file.error();
  if (auto ec = write_all(file->fd(), bytes))
    return ec;
  return file->finish(true);
}

replacement_file::replacement_file(replacement_file&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})), fd_(std::move(other.fd_)) {
}

replacement_file::~replacement_file() {
  if (!temporary_.empty())
    ::unlink(temporary_.c_str());
}

tl::expected<replacement_file, std::error_code> replacement_file::open(const std::string& path, mode_t mode) {
  replacement_file file;
  file.path_ = path;
  auto slash = path.rfind('/');
  auto name = (slash == std::string::npos ? std::string{} : path.substr(0, slash + 1)) + ".holt-XXXXXX";
  int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0)
    return tl::unexpected(last_error());
  file.fd_ = file_descriptor(fd);
  file.temporary_ = name;
  if (::fchmod(fd, mode) != 0)
    return tl::unexpected(last_error());
  return file;
}

std::error_code replacement_file::finish(bool sync) {
  if (sync && ::fsync(fd_.get()) != 0)
    return last_error();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    return last_error();
  temporary_.clear();
  if (sync) { // the name is durable too
    auto slash = path_.rfind('/');
    file_descriptor folder(::open(slash == std::string::npos ? "." : path_.substr(0, slash + 1).c_str(),
                                  O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder)
      ::fsync(folder.get());
  }
  return {};
}

} // namespace holt::runtime::cli
