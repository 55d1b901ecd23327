#include "agent/files/file_operations.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/files/directory_reader.hpp"
#include "agent/files/edit_text.hpp"
#include "agent/files/file_reader.hpp"
#include "agent/files/file_writer.hpp"

namespace holt::agent::files {
namespace {

namespace wire = protocols::agent;

wire::file_entry entry_of(std::string name, const struct stat& status) {
  wire::file_entry entry;
  entry.name.bytes = std::move(name);
  entry.type = S_ISREG(status.st_mode)   ? "file"
               : S_ISDIR(status.st_mode) ? "directory"
               : S_ISLNK(status.st_mode) ? "symlink"
                                         : "other";
  entry.size = static_cast<std::uint64_t>(status.st_size);
  entry.mode = status.st_mode & 07777;
  entry.modified_at = status.st_mtim.tv_sec * 1'000'000 + status.st_mtim.tv_nsec / 1000;
  return entry;
}

std::optional<wire::raw_name> target_of(int directory, const char* name) {
  char buffer[PATH_MAX];
  auto length = ::readlinkat(directory, name, buffer, sizeof(buffer));
  if (length < 0)
    return {};
  return wire::raw_name{std::string(buffer, static_cast<std::size_t>(length))};
}

std::string last_component(std::string_view path) {
  auto slash = path.rfind('/');
  return std::string(slash == path.npos || path.size() == 1 ? path : path.substr(slash + 1));
}

/// Locks two paths in one order, whoever asks, so that two moves can't wait for each other.
struct two_locks {
  two_locks(path_locks& table, std::string a, std::string b) {
    if (b < a)
      std::swap(a, b);
    first.emplace(table, a);
    if (a != b)
      second.emplace(table, b);
  }
  std::optional<path_locks::guard> first;
  std::optional<path_locks::guard> second;
};

bool same_version(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec && a.st_ctim.tv_sec == b.st_ctim.tv_sec &&
         a.st_ctim.tv_nsec == b.st_ctim.tv_nsec;
}

// -- remove ------------------------------------------------------------------------------------------------------------

/// Empties and removes one directory, whatever its depth, with a bounded number of open files: when the way down is
/// longer, the upper ones are closed, and found again through ".." and compared with what they were.
class tree_remover {
public:
  tree_remover(std::string path, std::stop_token stop) : path_(std::move(path)), stop_(std::move(stop)) {
  }

  /// 0 or an errno.
  int remove(int parent, const char* name) {
    if (int error = enter(parent, name); error != 0)
      return error;
    while (!levels_.empty()) {
      if (stop_.stop_requested())
        return ECANCELED;
      if (int error = step(parent); error != 0)
        return error;
    }
    return 0;
  }

private:
  static constexpr std::size_t most_open = 64;
  static constexpr int most_rescans = 16;

  struct level {
    std::string name;
    descriptor fd;
    dev_t device = 0;
    ino_t inode = 0;
    int rescans = 0;
  };

  int enter(int parent, const char* name) {
    level next;
    next.name = name;
    // RESOLVE_NO_XDEV: a mount, also a bind mount of the same file system, is not ours to empty.
    next.fd = descriptor(open_beneath(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW,
                                      RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV));
    if (!next.fd)
      return errno == EXDEV ? EBUSY : errno;
    struct stat status {};
    if (::fstat(next.fd.get(), &status) != 0)
      return errno;
    next.device = status.st_dev;
    next.inode = status.st_ino;
    levels_.push_back(std::move(next));
    if (levels_.size() > most_open)
      levels_[levels_.size() - most_open - 1].fd.reset();
    reader_.rewind();
    return 0;
  }

  /// Removes entries of the lowest directory until one has to be entered first, or until it is gone itself.
  int step(int parent) {
    int fd = levels_.back().fd.get();
    directory_entry entry{};
    while (reader_.next(fd, entry)) {
      if (stop_.stop_requested())
        return ECANCELED;
      if (entry.type != DT_DIR) {
        if (::unlinkat(fd, entry.name, 0) == 0 || errno == ENOENT)
          continue;
        if (errno != EISDIR && errno != EPERM)
          return errno;
        struct stat status {};
        int error = errno;
        if (::fstatat(fd, entry.name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(status.st_mode))
          return error;
      }
      if (::unlinkat(fd, entry.name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        continue;
      if (errno != ENOTEMPTY && errno != EEXIST)
        return errno;
      if (int error = enter(fd, std::string(entry.name).c_str()); error != ENOENT && error != ENOTDIR)
        return error;
    }
    if (reader_.error() != 0)
      return reader_.error();
    return leave(parent);
  }

  int leave(int parent) {
    auto& lowest = levels_.back();
    int above = parent;
    descriptor up;
    if (levels_.size() > 1) {
      auto& level_above = levels_[levels_.size() - 2];
      if (!level_above.fd) {
        up = descriptor(::openat(lowest.fd.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        struct stat status {};
        if (!up || ::fstat(up.get(), &status) != 0)
          return errno;
        if (status.st_dev != level_above.device || status.st_ino != level_above.inode)
          return ESTALE; // moved away under us: what lies above now is somebody else's
        level_above.fd = std::move(up);
      }
      above = level_above.fd.get();
    }
    if (::unlinkat(above, lowest.name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
      // Somebody makes new files in there. Not for ever.
      if ((errno != ENOTEMPTY && errno != EEXIST) || ++lowest.rescans > most_rescans)
        return errno;
      ::lseek(lowest.fd.get(), 0, SEEK_SET);
      reader_.rewind();
      return 0;
    }
    levels_.pop_back();
    if (!levels_.empty())
      ::lseek(levels_.back().fd.get(), 0, SEEK_SET);
    reader_.rewind();
    return 0;
  }

  std::string path_;
  std::stop_token stop_;
  std::vector<level> levels_;
  directory_reader reader_;
};

// -- list --------------------------------------------------------------------------------------------------------------

class lister {
public:
  lister(int base, const wire::file_list& arguments, const entry_sink& sink, std::stop_token stop)
      : base_(base), arguments_(arguments), sink_(sink), stop_(std::move(stop)) {
  }

  result<wire::list_result> run(descriptor directory) {
    // Depth first with one directory open at a time; the names of the levels above wait in memory.
    std::vector<level> levels;
    levels.push_back(read(std::move(directory), ""));
    if (error_ != 0)
      return failure_of(error_, arguments_.path.bytes);
    while (!levels.empty()) {
      auto& current = levels.back();
      if (current.next == current.names.size()) {
        levels.pop_back();
        continue;
      }
      if (stop_.stop_requested())
        return failure("file.cancelled", "the listing was cancelled");
      if (done_.count == arguments_.limit) {
        done_.truncated = true;
        break;
      }
      auto name = std::move(current.names[current.next++]);
      if (!current.fd && !(current.fd = open_below(current.path)))
        continue;
      auto entry = entry_at(current.fd.get(), name.c_str());
      if (!entry)
        continue; // gone since its name was read
      bool descend = arguments_.recursive && entry->type == "directory";
      auto path = current.path.empty() ? name : current.path + "/" + name;
      entry->name.bytes = path;
      ++done_.count;
      if (!sink_(std::move(*entry)))
        return failure("file.cancelled", "the listing was cancelled");
      if (!descend)
        continue;
      descriptor child(::openat(current.fd.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!child)
        continue; // not readable: listed, but its content isn't
      if (levels.size() >= most_open)
        levels[levels.size() - most_open].fd.reset();
      levels.push_back(read(std::move(child), std::move(path)));
    }
    done_.truncated |= cut_;
    return done_;
  }

private:
  static constexpr std::size_t most_open = 32;

  struct level {
    std::string path;
    descriptor fd;
    std::vector<std::string> names;
    std::size_t next = 0;
  };

  descriptor open_below(const std::string& path) {
    return descriptor(open_beneath(base_, path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY,
                                   RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS));
  }

  level read(descriptor fd, std::string path) {
    level out;
    out.path = std::move(path);
    reader_.rewind();
    directory_entry entry{};
    auto left = arguments_.limit - done_.count;
    while (reader_.next(fd.get(), entry)) {
      if (out.names.size() == left) {
        cut_ = true;
        break;
      }
      out.names.emplace_back(entry.name);
    }
    error_ = reader_.error();
    std::sort(out.names.begin(), out.names.end());
    out.fd = std::move(fd);
    return out;
  }

  int base_;
  const wire::file_list& arguments_;
  const entry_sink& sink_;
  std::stop_token stop_;
  directory_reader reader_;
  wire::list_result done_;
  bool cut_ = false;
  int error_ = 0;
};

result<wire::file_stat_result> stat_location(const root_table& roots, const location& where) {
  auto entry = entry_at(where.parent.get(), where.name.c_str());
  if (!entry)
    return failure_of(errno, where.path);
  wire::file_stat_result out;
  out.path.bytes = roots.absolute(where.path).value_or(where.path);
  out.entry = std::move(*entry);
  return out;
}

} // namespace

std::optional<wire::file_entry> entry_at(int directory, const char* name) {
  struct stat status {};
  if (::fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
    return {};
  auto entry = entry_of(name, status);
  if (S_ISLNK(status.st_mode))
    entry.target = target_of(directory, name);
  return entry;
}

result<wire::file_stat_result> stat_path(const root_table& roots, const wire::file_stat& arguments) {
  const auto& path = arguments.path.bytes;
  auto file = roots.open(path, O_PATH, arguments.follow ? last_link::follow : last_link::keep);
  if (!file)
    return tl::unexpected(std::move(file.error()));
  auto full = roots.absolute(path);
  if (!full)
    return tl::unexpected(std::move(full.error()));
  struct stat status {};
  if (::fstat(file->fd.get(), &status) != 0)
    return failure_of(errno, path);
  wire::file_stat_result out;
  out.entry = entry_of(last_component(*full), status);
  if (S_ISLNK(status.st_mode))
    out.entry.target = target_of(file->fd.get(), "");
  out.path.bytes = std::move(*full);
  if (arguments.hash && S_ISREG(status.st_mode)) {
    auto readable = open_regular(roots, path);
    if (!readable)
      return tl::unexpected(std::move(readable.error()));
    struct stat again {};
    if (::fstat(readable->fd.get(), &again) != 0)
      return failure_of(errno, path);
    // The size and the hash are of one and the same file, though another may have taken its name in between.
    out.entry = entry_of(out.entry.name.bytes, again);
    out.sha256 = sha256_of_file(readable->fd.get());
    if (out.sha256->empty())
      return failure_of(errno, path);
  }
  return out;
}

result<wire::list_result> list_directory(const root_table& roots, const wire::file_list& arguments,
                                         const entry_sink& sink, std::stop_token stop) {
  auto directory = roots.open(arguments.path.bytes, O_RDONLY | O_DIRECTORY | O_NONBLOCK, last_link::follow);
  if (!directory)
    return tl::unexpected(std::move(directory.error()));
  descriptor base(::fcntl(directory->fd.get(), F_DUPFD_CLOEXEC, 3));
  if (!base)
    return failure_of(errno, arguments.path.bytes);
  return lister(base.get(), arguments, sink, std::move(stop)).run(std::move(directory->fd));
}

result<wire::file_stat_result> make_directory(const root_table& roots, const wire::file_mkdir& arguments) {
  const auto& path = arguments.path.bytes;
  auto mode = arguments.mode.value_or(0755) & 0777;
  if (arguments.parents) {
    bool made = false;
    auto directory = roots.make_directories(path, mode, &made);
    if (!directory)
      return tl::unexpected(std::move(directory.error()));
    // mkdirat takes the umask off; the caller said what it wants.
    if (made && arguments.mode && ::fchmodat(directory->fd.get(), ".", mode, 0) != 0)
      return failure_of(errno, path);
  } else {
    auto where = roots.locate(path, last_link::keep);
    if (!where)
      return tl::unexpected(std::move(where.error()));
    if (where->in->read_only)
      return failure_of(EROFS, path);
    if (::mkdirat(where->parent.get(), where->name.c_str(), mode) != 0)
      return failure_of(errno, path);
    descriptor directory(::openat(where->parent.get(), where->name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (arguments.mode && directory && ::fchmodat(directory.get(), ".", mode, 0) != 0)
      return failure_of(errno, path);
  }
  wire::file_stat status;
  status.path = arguments.path;
  return stat_path(roots, status);
}

result<void> remove_path(const root_table& roots, path_locks& locks, const wire::file_remove& arguments,
                         std::stop_token stop) {
  const auto& path = arguments.path.bytes;
  auto where = roots.locate(path, last_link::keep);
  if (!where)
    return tl::unexpected(std::move(where.error()));
  if (where->in->read_only)
    return failure_of(EROFS, path);
  path_locks::guard lock(locks, path_locks::key(where->parent.get(), where->name));
  if (arguments.if_match)
    if (auto same = check_if_match(*where, *arguments.if_match); !same)
      return same;

  struct stat status {};
  if (::fstatat(where->parent.get(), where->name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
    return failure_of(errno, path);
  if (!S_ISDIR(status.st_mode)) {
    if (path.ends_with('/'))
      return failure_of(ENOTDIR, path);
    if (::unlinkat(where->parent.get(), where->name.c_str(), 0) != 0)
      return failure_of(errno, path);
    return {};
  }
  if (::unlinkat(where->parent.get(), where->name.c_str(), AT_REMOVEDIR) == 0)
    return {};
  if (!arguments.recursive || (errno != ENOTEMPTY && errno != EEXIST))
    return failure_of(errno == EEXIST ? ENOTEMPTY : errno, path);
  int error = tree_remover(path, std::move(stop)).remove(where->parent.get(), where->name.c_str());
  if (error == ECANCELED)
    return failure("file.cancelled", "cancelled while removing " + printable(path));
  if (error == ESTALE)
    return failure("file.changed", "a directory was moved away while it was being removed: " + printable(path), "later");
  if (error != 0)
    return failure_of(error, path);
  return {};
}

result<wire::file_stat_result> move_path(const root_table& roots, path_locks& locks, const wire::file_move& arguments) {
  const auto& from_path = arguments.from.bytes;
  const auto& to_path = arguments.to.bytes;
  auto from = roots.locate(from_path, last_link::keep);
  if (!from)
    return tl::unexpected(std::move(from.error()));
  auto to = roots.locate(to_path, last_link::keep);
  if (!to)
    return tl::unexpected(std::move(to.error()));
  if (from->in->read_only)
    return failure_of(EROFS, from_path);
  if (to->in->read_only)
    return failure_of(EROFS, to_path);
  two_locks lock(locks, path_locks::key(from->parent.get(), from->name), path_locks::key(to->parent.get(), to->name));

  struct stat status {};
  if (::fstatat(from->parent.get(), from->name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
    return failure_of(errno, from_path);
  if (!S_ISDIR(status.st_mode) && (from_path.ends_with('/') || to_path.ends_with('/')))
    return failure_of(ENOTDIR, from_path.ends_with('/') ? from_path : to_path);

  unsigned flags = arguments.replace ? 0 : RENAME_NOREPLACE;
  if (::renameat2(from->parent.get(), from->name.c_str(), to->parent.get(), to->name.c_str(), flags) == 0)
    return stat_location(roots, *to);
  if (errno == EINVAL && S_ISDIR(status.st_mode))
    return failure("file.invalid_path", "a directory can't be moved into itself: " + printable(to_path));
  if (errno != EXDEV)
    return failure_of(errno, errno == EEXIST || errno == ENOTEMPTY || errno == EISDIR ? to_path : from_path);

  if (!S_ISREG(status.st_mode))
    return failure("file.cross_device",
                   "only files can be moved between file systems, and this is none: " + printable(from_path));
  descriptor source(::openat(from->parent.get(), from->name.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (!source)
    return failure_of(errno, from_path);
  location target;
  target.parent = descriptor(::fcntl(to->parent.get(), F_DUPFD_CLOEXEC, 3));
  target.name = to->name;
  target.in = to->in;
  target.path = to->path;
  auto copy = staged_file::begin(std::move(target));
  if (!copy)
    return tl::unexpected(std::move(copy.error()));
  std::vector<char> buffer(64 * 1024);
  for (;;) {
    auto count = read_some(source.get(), buffer.data(), buffer.size());
    if (count < 0)
      return failure_of(errno, from_path);
    if (count == 0)
      break;
    if (auto appended = copy->append({buffer.data(), static_cast<std::size_t>(count)}); !appended)
      return tl::unexpected(std::move(appended.error()));
  }
  auto published = copy->publish(status.st_mode & 0777, !arguments.replace);
  if (!published)
    return published.error().code == "file.changed" ? failure_of(EEXIST, to_path)
                                                    : result<wire::file_stat_result>(tl::unexpected(published.error()));
  // Only the file that was copied: another one that took its name meanwhile stays.
  struct stat now {};
  if (::fstatat(from->parent.get(), from->name.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0 && same_version(now, status) &&
      ::unlinkat(from->parent.get(), from->name.c_str(), 0) != 0)
    return failure_of(errno, from_path);
  return stat_location(roots, *to);
}

result<wire::file_edit_result> edit_file(const root_table& roots, path_locks& locks, const wire::file_edit& arguments) {
  const auto& path = arguments.path.bytes;
  auto where = roots.locate(path, last_link::follow);
  if (!where)
    return tl::unexpected(std::move(where.error()));
  if (where->in->read_only)
    return failure_of(EROFS, path);
  const int parent = where->parent.get();
  const auto name = where->name;
  path_locks::guard lock(locks, path_locks::key(parent, name));

  descriptor file(::openat(parent, name.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC));
  if (!file)
    return failure_of(errno, path);
  struct stat before {};
  if (::fstat(file.get(), &before) != 0)
    return failure_of(errno, path);
  if (!S_ISREG(before.st_mode))
    return failure_of(S_ISDIR(before.st_mode) ? EISDIR : ENXIO, path);
  auto too_large = [&] { return failure("file.too_large", "only files of up to 64 MiB can be edited: " + printable(path)); };
  if (static_cast<std::uint64_t>(before.st_size) > most_edit_bytes)
    return too_large();
  std::string content(static_cast<std::size_t>(before.st_size) + 1, '\0');
  std::size_t size = 0;
  for (;;) {
    auto count = read_some(file.get(), content.data() + size, content.size() - size);
    if (count < 0)
      return failure_of(errno, path);
    if (count == 0)
      break;
    size += static_cast<std::size_t>(count);
    if (size > most_edit_bytes)
      return too_large();
    if (size == content.size())
      content.resize(size * 2);
  }
  content.resize(size);
  if (arguments.if_match && !same_hash(sha256::of(content), *arguments.if_match))
    return failure("file.changed", "the file is not the one that if_match names: " + printable(path), "after_change");

  auto edited = apply_edits(std::move(content), arguments.edits, most_edit_bytes);
  if (!edited)
    return tl::unexpected(std::move(edited.error()));
  auto staged = staged_file::begin(std::move(*where));
  if (!staged)
    return tl::unexpected(std::move(staged.error()));
  if (auto appended = staged->append(edited->content); !appended)
    return tl::unexpected(std::move(appended.error()));
  // Edits of ours wait for the lock; a command that wrote to the file meanwhile doesn't, and must not lose its bytes.
  struct stat after {};
  if (::fstatat(parent, name.c_str(), &after, AT_SYMLINK_NOFOLLOW) != 0 || !same_version(before, after))
    return failure("file.changed", "somebody else changed the file at the same time: " + printable(path), "later");
  auto published = staged->publish(0644, false);
  if (!published)
    return tl::unexpected(std::move(published.error()));
  wire::file_edit_result out;
  out.replacements = edited->replacements;
  out.size = edited->content.size();
  out.sha256 = sha256::of(edited->content);
  return out;
}

} // namespace holt::agent::files
