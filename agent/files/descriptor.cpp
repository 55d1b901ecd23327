#include "agent/files/descriptor.hpp"

#include <cerrno>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace holt::agent::files {

void descriptor::reset() {
  if (fd_ >= 0)
    ::close(std::exchange(fd_, -1));
}

int open_beneath(int directory, const char* path, int flags, unsigned long long resolve) {
  // EAGAIN says that a rename somewhere raced with a ".." of this path; a tree that is renamed without end must not
  // hold the caller for ever.
  constexpr int most_attempts = 64;
  open_how how{};
  how.flags = static_cast<unsigned long long>(flags | O_CLOEXEC);
  how.resolve = resolve;
  for (int attempt = 0;; ++attempt) {
    auto fd = static_cast<int>(::syscall(SYS_openat2, directory, path, &how, sizeof(how)));
    if (fd >= 0 || (errno != EAGAIN && errno != EINTR) || attempt == most_attempts)
      return fd;
  }
}

int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    auto written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR)
        continue;
      return errno;
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

long read_some(int fd, char* buffer, std::size_t size) {
  for (;;) {
    auto count = ::read(fd, buffer, size);
    if (count >= 0 || errno != EINTR)
      return count;
  }
}

} // namespace holt::agent::files
