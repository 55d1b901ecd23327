#include "agent/files/watcher.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

namespace holt::agent::files {
namespace {

constexpr std::uint32_t interesting = IN_CREATE | IN_CLOSE_WRITE | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM |
                                      IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK;

bool is_below(const std::string& path, const std::string& directory) {
  return path == directory ||
         (path.size() > directory.size() && path.starts_with(directory) && path[directory.size()] == '/');
}

std::string joined(const std::string& directory, const char* name) {
  return directory.empty() ? std::string(name) : directory + "/" + name;
}

protocols::agent::watch_event event_of(const char* what, std::string path) {
  protocols::agent::watch_event event;
  event.event = what;
  event.path.bytes = std::move(path);
  return event;
}

} // namespace

result<watcher> watcher::begin(const root_table& roots, const protocols::agent::file_watch& arguments, limits bounds) {
  auto directory = roots.open(arguments.path.bytes, O_RDONLY | O_DIRECTORY | O_NONBLOCK, last_link::follow);
  if (!directory)
    return tl::unexpected(std::move(directory.error()));
  watcher out;
  out.recursive_ = arguments.recursive;
  out.bounds_ = bounds;
  out.shown_ = arguments.path.bytes;
  out.inotify_ = descriptor(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!out.inotify_)
    return errno == EMFILE ? failure("watch.limit", "too many watches are open already", "later")
                           : result<watcher>(failure_of(errno, out.shown_));
  struct stat status {};
  if (::fstat(directory->fd.get(), &status) != 0)
    return failure_of(errno, out.shown_);
  out.roots_ = &roots;
  out.device_ = status.st_dev;
  out.inode_ = status.st_ino;
  if (auto followed = out.follow_tree(std::move(directory->fd), "", nullptr); !followed)
    return tl::unexpected(std::move(followed.error()));
  return out;
}

result<void> watcher::follow(const descriptor& directory, const std::string& path) {
  if (paths_.size() >= bounds_.most_directories)
    return failure("watch.limit",
                   "more than " + std::to_string(bounds_.most_directories) + " directories below " + printable(shown_) +
                       ": watch a smaller part",
                   "after_change");
  // By descriptor: a name could lead somewhere else by now.
  char name[40];
  std::snprintf(name, sizeof(name), "/proc/self/fd/%d", directory.get());
  int watch = ::inotify_add_watch(inotify_.get(), name, interesting);
  if (watch < 0) {
    if (errno == ENOSPC)
      return failure("watch.limit", "this machine allows no more watched directories: watch a smaller part", "after_change");
    return failure_of(errno, path.empty() ? shown_ : path);
  }
  paths_[watch] = path;
  return {};
}

result<bool> watcher::follow_tree(descriptor directory, const std::string& path, const event_sink* sink) {
  std::vector<std::string> pending{path};
  bool first = true;
  while (!pending.empty()) {
    auto current = std::move(pending.back());
    pending.pop_back();
    descriptor fd = first ? std::move(directory) : open_below(current);
    if (!fd) {
      if (first)
        return true;
      continue;
    }
    // Watch first, read then: what is made in between is told twice rather than never.
    if (auto followed = follow(fd, current); !followed) {
      if (first || followed.error().code == "watch.limit")
        return tl::unexpected(std::move(followed.error()));
      continue;
    }
    first = false;
    if (!recursive_)
      break;
    directory_reader reader;
    directory_entry entry{};
    while (reader.next(fd.get(), entry)) {
      auto child = joined(current, entry.name);
      if (sink != nullptr && !(*sink)(event_of("created", child)))
        return false;
      if (entry.type == DT_DIR || entry.type == DT_UNKNOWN)
        pending.push_back(std::move(child));
    }
  }
  return true;
}

descriptor watcher::open_below(const std::string& path) const {
  auto base = roots_->open(shown_, O_PATH | O_DIRECTORY, last_link::follow);
  struct stat status {};
  if (!base || ::fstat(base->fd.get(), &status) != 0 || status.st_dev != device_ || status.st_ino != inode_)
    return {}; // another directory has taken the name of the watched one
  return descriptor(open_beneath(base->fd.get(), path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_NONBLOCK,
                                 RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS));
}

void watcher::rename_below(const std::string& from, const std::string& to) {
  for (auto& [watch, path] : paths_)
    if (is_below(path, from))
      path = to + path.substr(from.size());
}

void watcher::forget_below(const std::string& path) {
  for (auto at = paths_.begin(); at != paths_.end();) {
    if (is_below(at->second, path)) {
      ::inotify_rm_watch(inotify_.get(), at->first);
      at = paths_.erase(at);
    } else {
      ++at;
    }
  }
}

bool watcher::end_move(const event_sink& sink) {
  if (move_.cookie == 0)
    return true;
  auto gone = std::exchange(move_, {});
  if (gone.directory)
    forget_below(gone.path);
  return sink(event_of("removed", std::move(gone.path)));
}

result<void> watcher::read_events(const event_sink& sink) {
  alignas(inotify_event) char buffer[8 * 1024];
  for (;;) {
    auto count = read_some(inotify_.get(), buffer, sizeof(buffer));
    if (count <= 0) {
      if (count < 0 && errno != EAGAIN)
        return failure_of(errno, shown_);
      // The two halves of a rename come together; a half that is still alone now went out of the tree.
      end_move(sink);
      return {};
    }
    for (long at = 0; at < count;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      at += static_cast<long>(sizeof(inotify_event)) + event->len;
      auto more = handle(event->mask, event->wd, event->cookie, event->len != 0 ? event->name : "", sink);
      if (!more)
        return tl::unexpected(std::move(more.error()));
      if (!*more)
        return {};
    }
  }
}

result<bool> watcher::handle(std::uint32_t mask, int watch, std::uint32_t cookie, const char* name,
                             const event_sink& sink) {
  if (mask & IN_Q_OVERFLOW) {
    move_ = {};
    return sink(event_of("overflow", ""));
  }
  auto known = paths_.find(watch);
  if (known == paths_.end())
    return true;
  if (mask & IN_IGNORED) {
    bool base = known->second.empty();
    paths_.erase(known);
    if (base)
      return failure_of(ENOENT, shown_);
    return true;
  }
  if (*name == 0) {
    // About the directory itself. Its parent tells of it, except for the watched one, which nobody tells of.
    if (known->second.empty() && (mask & IN_MOVE_SELF))
      return failure("file.not_found", "the watched directory was moved: " + printable(shown_), "after_change");
    return true;
  }

  auto path = joined(known->second, name);
  bool directory = (mask & IN_ISDIR) != 0;
  if ((mask & IN_MOVED_TO) && move_.cookie != 0 && move_.cookie == cookie) {
    auto from = std::exchange(move_, {}).path;
    if (directory)
      rename_below(from, path);
    auto event = event_of("moved", std::move(from));
    event.to = protocols::agent::raw_name{path};
    return sink(std::move(event));
  }
  if (!end_move(sink))
    return false;
  if (mask & IN_MOVED_FROM) {
    move_ = {cookie, std::move(path), directory};
    return true;
  }
  if (mask & (IN_CREATE | IN_MOVED_TO)) {
    if (!sink(event_of("created", path)))
      return false;
    if (directory && recursive_)
      if (auto fd = open_below(path))
        return follow_tree(std::move(fd), path, &sink);
    return true;
  }
  if (mask & IN_DELETE)
    return sink(event_of("removed", std::move(path)));
  if (directory)
    return true; // attributes of a directory change with every entry made in it
  return sink(event_of("modified", std::move(path)));
}

} // namespace holt::agent::files
