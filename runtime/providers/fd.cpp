#include "runtime/providers/fd.hpp"

#include <dirent.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

namespace holt::providers {

namespace {

struct close_directory {
  void operator()(DIR* directory) const {
    ::closedir(directory);
  }
};
using directory_stream = std::unique_ptr<DIR, close_directory>;

directory_stream read_directory(int fd) {
  // A descriptor of its own: closedir closes it, and its position is not shared.
  const int own = ::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (own < 0)
    return nullptr;
  directory_stream stream(::fdopendir(own));
  if (!stream)
    ::close(own);
  return stream;
}

bool is_dot(const char* name) {
  return std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0;
}

std::vector<std::string> names_in(int directory) {
  std::vector<std::string> names;
  if (auto stream = read_directory(directory)) {
    while (const dirent* entry = ::readdir(stream.get())) {
      if (!is_dot(entry->d_name))
        names.emplace_back(entry->d_name);
    }
  }
  return names;
}

unique_fd open_for_removal(int at, const std::string& name) {
  unique_fd directory(::openat(at, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory && errno == EACCES) {
    // An ordinary user's own directory without permissions. O_PATH pins it, so that chmod can't be led elsewhere.
    const unique_fd pinned(::openat(at, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (pinned && ::chmod(("/proc/self/fd/" + std::to_string(pinned.get())).c_str(), 0700) == 0)
      directory.reset(::openat(pinned.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  return directory;
}

/// Empties `directory`. What lies deeper than this many levels is first moved up to `top`, which bounds both the stack
/// and the number of open descriptors whatever the sandbox has built.
constexpr int max_depth = 32;

void empty_directory(int directory, int top, int depth, std::uint64_t& moved) {
  struct stat own {};
  ::fstat(directory, &own);
  if ((own.st_mode & 0700) != 0700)
    ::fchmod(directory, 0700);
  for (const auto& name : names_in(directory)) {
    if (::unlinkat(directory, name.c_str(), 0) == 0 || (errno != EISDIR && errno != EPERM))
      continue;
    if (depth >= max_depth) {
      // A directory can only be moved by one who may write to it (its `..` changes).
      const unique_fd pinned = open_for_removal(directory, name);
      if (pinned)
        ::fchmod(pinned.get(), 0700);
      const auto target = ".moved-" + std::to_string(moved++);
      ::renameat(directory, name.c_str(), top, target.c_str());
      continue;
    }
    if (const unique_fd child = open_for_removal(directory, name))
      empty_directory(child.get(), top, depth + 1, moved);
    ::unlinkat(directory, name.c_str(), AT_REMOVEDIR);
  }
}

bool change_owner_below(int directory, uid_t uid, gid_t gid, int depth) {
  if (::fchown(directory, uid, gid) != 0 || depth > 512)
    return false;
  bool whole = true;
  for (const auto& name : names_in(directory)) {
    const unique_fd child(::openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (child)
      whole = change_owner_below(child.get(), uid, gid, depth + 1) && whole;
    else
      whole = ::fchownat(directory, name.c_str(), uid, gid, AT_SYMLINK_NOFOLLOW) == 0 && whole;
  }
  return whole;
}

std::optional<std::string> read_all(unique_fd file, std::size_t max) {
  if (!file)
    return std::nullopt;
  std::string content;
  char buffer[4096];
  while (content.size() < max) {
    const ssize_t size = ::read(file.get(), buffer, sizeof buffer);
    if (size < 0 && errno == EINTR)
      continue;
    if (size < 0)
      return std::nullopt;
    if (size == 0)
      break;
    content.append(buffer, static_cast<std::size_t>(size));
  }
  return content;
}

bool write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t size = ::write(fd, content.data(), content.size());
    if (size < 0 && errno == EINTR)
      continue;
    if (size <= 0)
      return false;
    content.remove_prefix(static_cast<std::size_t>(size));
  }
  return true;
}

} // namespace

std::optional<pipe_ends> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return std::nullopt;
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return pipe_ends{unique_fd(ends[0]), unique_fd(ends[1])};
}

unique_fd open_directory(int at, const std::string& path) {
  open_how how{};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  long fd = -1;
  do {
    fd = ::syscall(SYS_openat2, at, path.c_str(), &how, sizeof how);
  } while (fd < 0 && (errno == EINTR || errno == EAGAIN));
  return unique_fd(static_cast<int>(fd));
}

unique_fd make_directory(int at, const std::string& name, mode_t mode) {
  if (::mkdirat(at, name.c_str(), mode) != 0 && errno != EEXIST)
    return {};
  auto directory = open_directory(at, name);
  // The mode counts, not the umask of whoever started the server; also where a crash came between the two.
  if (directory && ::fchmod(directory.get(), mode) != 0)
    return {};
  return directory;
}

std::optional<std::string> read_file(int at, const std::string& name, std::size_t max) {
  return read_all(unique_fd(::openat(at, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)), max);
}

std::optional<std::string> read_file(const std::string& path, std::size_t max) {
  return read_all(unique_fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), max);
}

bool replace_file(int at, const std::string& name, std::string_view content, mode_t mode) {
  const auto temporary = "." + name + ".new";
  ::unlinkat(at, temporary.c_str(), 0);
  unique_fd file(::openat(at, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file || ::fchmod(file.get(), mode) != 0 || !write_all(file.get(), content))
    return false;
  file.reset();
  return ::renameat(at, temporary.c_str(), at, name.c_str()) == 0;
}

bool write_existing(const std::string& path, std::string_view content) {
  const unique_fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  // One write: a cgroup file takes its value whole.
  return file && ::write(file.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size());
}

bool remove_tree(int at, const std::string& name) {
  if (::unlinkat(at, name.c_str(), 0) == 0 || errno == ENOENT)
    return true;
  // Each round empties what the one before moved up; the sandbox that could add more is dead, or the bound ends it.
  for (int round = 0; round < 100'000; ++round) {
    {
      const unique_fd top = open_for_removal(at, name);
      if (!top)
        return errno == ENOENT;
      std::uint64_t moved = static_cast<std::uint64_t>(round) << 32U;
      const auto before = moved;
      empty_directory(top.get(), top.get(), 0, moved);
      if (moved != before)
        continue;
    }
    return ::unlinkat(at, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT;
  }
  return false;
}

bool change_owner(int directory, uid_t uid, gid_t gid) {
  return change_owner_below(directory, uid, gid, 0);
}

std::string errno_text(std::string_view what) {
  char buffer[128];
  const char* text = ::strerror_r(errno, buffer, sizeof buffer);
  return std::string(what) + ": " + text;
}

} // namespace holt::providers
