#include "agent/files/file_writer.hpp"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/random.h>
#include <unistd.h>

namespace holt::agent::files {
namespace {

std::string temporary_name() {
  unsigned char random[12];
  if (::getrandom(random, sizeof(random), 0) != sizeof(random))
    return {};
  std::string name = ".holt-";
  constexpr char digits[] = "0123456789abcdef";
  for (auto byte : random) {
    name += digits[byte >> 4];
    name += digits[byte & 15];
  }
  return name;
}

/// An unnamed file gets its name through /proc; an instance without one uses named temporaries.
bool has_proc() {
  static const bool there = ::access("/proc/self/fd", X_OK) == 0;
  return there;
}

int link_unnamed(int fd, int directory, const char* name) {
  char source[40];
  std::snprintf(source, sizeof(source), "/proc/self/fd/%d", fd);
  return ::linkat(AT_FDCWD, source, directory, name, AT_SYMLINK_FOLLOW);
}

tl::unexpected<operation_error> changed(const location& where, const char* what) {
  return failure("file.changed", std::string(what) + ": " + printable(where.path), "after_change");
}

} // namespace

result<staged_file> staged_file::begin(location where) {
  if (where.in->read_only)
    return failure_of(EROFS, where.path);
  struct stat status {};
  if (::fstatat(where.parent.get(), where.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
    if (S_ISDIR(status.st_mode))
      return failure_of(EISDIR, where.path);
    if (!S_ISREG(status.st_mode))
      return failure_of(ENXIO, where.path);
  } else if (errno != ENOENT) {
    return failure_of(errno, where.path);
  }

  staged_file file;
  file.where_ = std::move(where);
  // Through "." since the parent may be an O_PATH descriptor.
  if (has_proc())
    file.fd_ = descriptor(::openat(file.where_.parent.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file.fd_) {
    if (has_proc() && errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)
      return failure_of(errno, file.where_.path);
    file.temporary_ = temporary_name();
    file.fd_ = descriptor(::openat(file.where_.parent.get(), file.temporary_.c_str(),
                                   O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.fd_) {
      file.temporary_.clear();
      return failure_of(errno, file.where_.path);
    }
  }
  return file;
}

staged_file::staged_file(staged_file&& other) noexcept
    : where_(std::move(other.where_)), fd_(std::move(other.fd_)), temporary_(std::exchange(other.temporary_, {})) {
}

staged_file::~staged_file() {
  if (!temporary_.empty())
    ::unlinkat(where_.parent.get(), temporary_.c_str(), 0);
}

result<void> staged_file::append(std::string_view bytes) {
  if (auto error = write_all(fd_.get(), bytes); error != 0)
    return failure_of(error, where_.path);
  return {};
}

result<void> staged_file::name_it() {
  if (!temporary_.empty())
    return {};
  auto name = temporary_name();
  if (link_unnamed(fd_.get(), where_.parent.get(), name.c_str()) != 0)
    return failure_of(errno, where_.path);
  temporary_ = name;
  return {};
}

result<staged_file::published> staged_file::publish(unsigned mode, bool must_be_new) {
  const int directory = where_.parent.get();
  const char* name = where_.name.c_str();
  struct stat present {};
  bool exists = ::fstatat(directory, name, &present, AT_SYMLINK_NOFOLLOW) == 0;
  if (!exists && errno != ENOENT)
    return failure_of(errno, where_.path);
  if (exists && must_be_new)
    return changed(where_, "the file exists, and if_match says that there is none");
  if (exists && S_ISDIR(present.st_mode))
    return failure_of(EISDIR, where_.path);
  if (exists && !S_ISREG(present.st_mode))
    return changed(where_, "the file was replaced by something else meanwhile");

  if (exists) {
    struct stat ours {};
    if (::fstat(fd_.get(), &ours) != 0)
      return failure_of(errno, where_.path);
    // Only root can give files away. Inside a user namespace even root can't give them to everybody: then they stay ours.
    if (::geteuid() == 0 && (ours.st_uid != present.st_uid || ours.st_gid != present.st_gid) &&
        ::fchown(fd_.get(), present.st_uid, present.st_gid) != 0 && errno != EPERM && errno != EINVAL)
      return failure_of(errno, where_.path);
    // The kernel takes setuid and setgid off a file whose content changes, and so do we.
    mode = present.st_mode & 01777;
  }
  if (::fchmod(fd_.get(), mode & 01777) != 0 || ::fdatasync(fd_.get()) != 0)
    return failure_of(errno, where_.path);

  if (!exists && temporary_.empty()) {
    if (link_unnamed(fd_.get(), directory, name) == 0)
      return published{true};
    if (errno != EEXIST)
      return failure_of(errno, where_.path);
    if (must_be_new)
      return changed(where_, "the file exists, and if_match says that there is none");
  }
  if (auto named = name_it(); !named)
    return tl::unexpected(std::move(named.error()));
  if (must_be_new) {
    if (::renameat2(directory, temporary_.c_str(), directory, name, RENAME_NOREPLACE) != 0)
      return errno == EEXIST ? changed(where_, "the file exists, and if_match says that there is none")
                             : result<published>(failure_of(errno, where_.path));
  } else if (::renameat(directory, temporary_.c_str(), directory, name) != 0) {
    return failure_of(errno, where_.path);
  }
  temporary_.clear();
  return published{!exists};
}

result<void> check_if_match(const location& where, const std::string& if_match) {
  descriptor file(::openat(where.parent.get(), where.name.c_str(),
                           O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC));
  if (!file) {
    if (errno != ENOENT)
      return failure_of(errno, where.path);
    if (if_match.empty())
      return {};
    return changed(where, "there is no file, and if_match names one");
  }
  if (if_match.empty())
    return changed(where, "the file exists, and if_match says that there is none");
  struct stat status {};
  if (::fstat(file.get(), &status) != 0)
    return failure_of(errno, where.path);
  if (!S_ISREG(status.st_mode))
    return failure_of(S_ISDIR(status.st_mode) ? EISDIR : ENXIO, where.path);
  auto present = sha256_of_file(file.get());
  if (present.empty())
    return failure_of(errno, where.path);
  if (!same_hash(present, if_match))
    return changed(where, "the file is not the one that if_match names");
  return {};
}

result<file_writer> file_writer::begin(const root_table& roots, path_locks& locks,
                                       protocols::agent::file_write arguments) {
  const auto& path = arguments.path.bytes;
  auto where = roots.locate(path, last_link::follow, arguments.parents);
  if (!where)
    return tl::unexpected(std::move(where.error()));
  if (path.ends_with('/'))
    return failure_of(EISDIR, path);
  // Refused before the body is sent rather than after. Commit asks again, under the lock.
  if (arguments.if_match && arguments.if_match->empty()) {
    struct stat status {};
    if (::fstatat(where->parent.get(), where->name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
      return changed(*where, "the file exists, and if_match says that there is none");
  }
  auto file = staged_file::begin(std::move(*where));
  if (!file)
    return tl::unexpected(std::move(file.error()));
  return file_writer(locks, std::move(arguments), std::move(*file));
}

result<void> file_writer::append(std::string_view bytes) {
  size_ += bytes.size();
  if (arguments_.size && size_ > *arguments_.size)
    return failure("file.mismatch", "more bytes came than the announced " + std::to_string(*arguments_.size) + ": " +
                                        printable(file_.where().path));
  hash_.update(bytes);
  return file_.append(bytes);
}

result<protocols::agent::file_write_result> file_writer::commit() {
  const auto& where = file_.where();
  if (arguments_.size && size_ != *arguments_.size)
    return failure("file.mismatch", std::to_string(size_) + " bytes came of the announced " +
                                        std::to_string(*arguments_.size) + ": " + printable(where.path));
  protocols::agent::file_write_result done;
  done.size = size_;
  done.sha256 = hash_.finish();
  if (arguments_.sha256 && !same_hash(done.sha256, *arguments_.sha256))
    return failure("file.mismatch", "the bytes that came have another SHA-256 than announced: " + printable(where.path));

  path_locks::guard lock(*locks_, path_locks::key(where.parent.get(), where.name));
  bool must_be_new = arguments_.if_match && arguments_.if_match->empty();
  if (arguments_.if_match && !must_be_new)
    if (auto same = check_if_match(where, *arguments_.if_match); !same)
      return tl::unexpected(std::move(same.error()));
  auto published = file_.publish(arguments_.mode.value_or(0644), must_be_new);
  if (!published)
    return tl::unexpected(std::move(published.error()));
  done.created = published->created;
  return done;
}

result<protocols::agent::file_write_result> write_file(const root_table& roots, path_locks& locks,
                                                       protocols::agent::file_write arguments, body_source& body) {
  auto writer = file_writer::begin(roots, locks, std::move(arguments));
  if (!writer)
    return tl::unexpected(std::move(writer.error()));
  for (;;) {
    auto bytes = body.next();
    if (!bytes)
      return failure("file.cancelled", "the body ended before its end; nothing was changed");
    if (bytes->empty())
      return writer->commit();
    if (auto appended = writer->append(*bytes); !appended)
      return tl::unexpected(std::move(appended.error()));
  }
}

} // namespace holt::agent::files
