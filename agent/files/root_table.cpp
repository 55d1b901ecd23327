#include "agent/files/root_table.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <fcntl.h>
#include <linux/openat2.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

namespace holt::agent::files {
namespace {

constexpr std::size_t longest_path = 4096;
constexpr std::size_t longest_name = 255;
constexpr int most_links = 40;
/// How often a path is resolved anew because somebody changed the tree in between.
constexpr int most_races = 32;

/// Calls `each` with every component but "" and ".".
template <class Each>
void for_components(std::string_view path, Each each) {
  std::size_t at = 0;
  while (at < path.size()) {
    auto end = std::min(path.find('/', at), path.size());
    auto component = path.substr(at, end - at);
    if (!component.empty() && component != ".")
      each(component);
    at = end + 1;
  }
}

std::string join(const std::vector<std::string>& components) {
  std::string path;
  for (const auto& component : components) {
    if (!path.empty())
      path += '/';
    path += component;
  }
  return path.empty() ? "." : path;
}

/// The part of an absolute path below a root, if it names the root or something in it.
std::optional<std::string_view> below(std::string_view path, std::string_view root) {
  if (root == "/")
    return path.substr(1);
  if (!path.starts_with(root))
    return {};
  path.remove_prefix(root.size());
  if (!path.empty() && path.front() != '/')
    return {};
  return path;
}

/// The target of a link; empty optional with errno set if it is none.
std::optional<std::string> read_link(int directory, const char* name) {
  char buffer[PATH_MAX];
  auto length = ::readlinkat(directory, name, buffer, sizeof(buffer));
  if (length < 0)
    return {};
  return std::string(buffer, static_cast<std::size_t>(length));
}

bool ends_in_parent(std::string_view relative) {
  return relative == ".." || relative.ends_with("/..");
}

} // namespace

root_table::root_table(std::vector<root> roots) : roots_(std::move(roots)) {
  for (auto& each : roots_)
    while (each.path.size() > 1 && each.path.back() == '/')
      each.path.pop_back();
}

tl::unexpected<operation_error> root_table::outside(std::string_view path) const {
  std::string names;
  for (const auto& each : roots_)
    names += (names.empty() ? "" : ", ") + each.path;
  return failure("file.outside_roots",
                 "the path leaves this environment's directories (" + names + "): " + printable(path));
}

result<root_table::place> root_table::find(std::string_view path) const {
  if (path.empty())
    return failure("file.invalid_path", "the path is empty");
  if (path.size() > longest_path)
    return failure("file.invalid_path", "the path is longer than 4096 bytes: " + printable(path));
  if (path.find('\0') != path.npos)
    return failure("file.invalid_path", "the path has a NUL byte: " + printable(path));

  place where;
  std::string_view rest = path;
  if (path.front() == '/') {
    std::size_t best = 0;
    for (const auto& each : roots_) {
      auto part = below(path, each.path);
      if (part && (where.in == nullptr || each.path.size() > best)) {
        where.in = &each;
        best = each.path.size();
        rest = *part;
      }
    }
    if (where.in == nullptr)
      return outside(path);
  } else {
    where.in = &roots_.front();
  }
  bool too_long = false;
  for_components(rest, [&](std::string_view component) {
    too_long |= component.size() > longest_name;
    if (!where.relative.empty())
      where.relative += '/';
    where.relative += component;
  });
  if (too_long)
    return failure("file.invalid_path", "a name in the path is longer than 255 bytes: " + printable(path));
  where.directory = path.back() == '/' || path == "." || path.ends_with("/.");
  if (where.relative.empty())
    where.relative = ".";
  return where;
}

result<std::string> root_table::absolute(std::string_view path) const {
  auto where = find(path);
  if (!where)
    return tl::unexpected(where.error());
  if (where->relative == ".")
    return where->in->path;
  return (where->in->path == "/" ? "" : where->in->path) + "/" + where->relative;
}

result<opened> root_table::open(std::string_view path, int flags, last_link last) const {
  auto where = find(path);
  if (!where)
    return tl::unexpected(where.error());
  if (where->directory)
    flags |= O_DIRECTORY;
  return open_place(*where, flags, last, path);
}

result<opened> root_table::open_place(const place& where, int flags, last_link last, std::string_view shown) const {
  if (last == last_link::keep)
    flags |= O_NOFOLLOW;
  auto fd = open_beneath(where.in->directory, where.relative.c_str(), flags,
                         RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
  if (fd >= 0)
    return opened{descriptor(fd), where.in};
  // EXDEV: an absolute link, or one step too far up. Only step by step can the two be told apart.
  if (errno == EXDEV)
    return open_by_steps(where, flags, last, shown);
  if (errno == EAGAIN)
    return failure("file.busy", "the directories of the path are being renamed: " + printable(shown), "later");
  return failure_of(errno, shown);
}

result<opened> root_table::open_by_steps(const place& where, int flags, last_link last, std::string_view shown) const {
  for (int race = 0; race < most_races; ++race) {
    auto plain = without_links(where, last, shown);
    if (!plain)
      return tl::unexpected(plain.error());
    // The path had no link a moment ago. If it has one now, this open refuses, and the path is resolved anew.
    auto fd = open_beneath(plain->in->directory, plain->relative.c_str(), flags | O_NOFOLLOW,
                           RESOLVE_BENEATH | (last == last_link::keep ? RESOLVE_NO_MAGICLINKS : RESOLVE_NO_SYMLINKS));
    if (fd >= 0)
      return opened{descriptor(fd), plain->in};
    if (errno != ELOOP && errno != EXDEV)
      return failure_of(errno, shown);
  }
  return failure("file.busy", "the path is being changed: " + printable(shown), "later");
}

result<root_table::place> root_table::without_links(const place& where, last_link last, std::string_view shown) const {
  const root* in = where.in;
  std::vector<std::string> done;
  std::vector<std::string> pending; // the next component last
  auto push = [&](std::string_view path) {
    auto first = static_cast<std::ptrdiff_t>(pending.size());
    for_components(path, [&](std::string_view component) { pending.emplace_back(component); });
    std::reverse(pending.begin() + first, pending.end());
  };
  push(where.relative);

  descriptor directory; // of `done`, when open
  int links = 0;
  while (!pending.empty()) {
    auto component = std::move(pending.back());
    pending.pop_back();
    if (component == "..") {
      if (done.empty())
        return outside(shown);
      done.pop_back();
      directory.reset();
      continue;
    }
    if (pending.empty() && last == last_link::keep) {
      done.push_back(std::move(component));
      break;
    }
    if (!directory) {
      directory = descriptor(open_beneath(in->directory, join(done).c_str(), O_PATH | O_DIRECTORY,
                                          RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS));
      if (!directory)
        return failure_of(errno, shown);
    }
    if (auto target = read_link(directory.get(), component.c_str())) {
      if (++links > most_links)
        return failure_of(ELOOP, shown);
      if (target->empty() || target->front() != '/') {
        push(*target);
        continue;
      }
      auto jump = find(*target);
      if (!jump)
        return jump.error().code == "file.outside_roots" ? outside(shown)
                                                         : result<place>(tl::unexpected(jump.error()));
      in = jump->in;
      done.clear();
      directory.reset();
      push(jump->relative);
      continue;
    }
    if (errno != EINVAL && !(errno == ENOENT && pending.empty()))
      return failure_of(errno, shown);
    if (!pending.empty()) {
      directory = descriptor(::openat(directory.get(), component.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!directory)
        return failure_of(errno, shown);
    }
    done.push_back(std::move(component));
  }
  return place{in, join(done), where.directory};
}

result<location> root_table::locate(std::string_view path, last_link last, bool make_parents) const {
  std::string current(path);
  for (int links = 0; links <= most_links; ++links) {
    auto where = find(current);
    if (!where)
      return where.error().code == "file.outside_roots" ? outside(path)
                                                        : result<location>(tl::unexpected(where.error()));
    if (where->relative == ".")
      return failure("file.is_directory", "one of this environment's own directories: " + printable(path));
    if (ends_in_parent(where->relative))
      return failure("file.invalid_path", "the path ends in \"..\": " + printable(path));
    auto slash = where->relative.rfind('/');
    auto prefix = where->in->path == "/" ? std::string("/") : where->in->path + "/";
    auto parent_path = prefix + (slash == std::string::npos ? "" : where->relative.substr(0, slash));
    location found;
    found.name = slash == std::string::npos ? where->relative : where->relative.substr(slash + 1);
    found.path = prefix + where->relative;

    auto parent = make_parents ? make_directories(parent_path, 0755) : open(parent_path, O_PATH | O_DIRECTORY, last_link::follow);
    if (!parent) {
      auto error = std::move(parent.error());
      if (error.code == "file.outside_roots")
        return outside(path);
      return tl::unexpected(std::move(error));
    }
    found.parent = std::move(parent->fd);
    found.in = parent->in;
    if (last == last_link::keep)
      return found;
    auto target = read_link(found.parent.get(), found.name.c_str());
    if (!target) {
      if (errno == EINVAL || errno == ENOENT)
        return found;
      return failure_of(errno, path);
    }
    // A relative target counts from the directory that holds the link. Its path as text does for that: the kernel
    // resolves it, links and all, when it is opened again.
    current = !target->empty() && target->front() == '/' ? *target : parent_path + "/" + *target;
  }
  return failure_of(ELOOP, path);
}

result<opened> root_table::make_directories(std::string_view path, unsigned mode, bool* made) const {
  if (made != nullptr)
    *made = false;
  auto where = find(path);
  if (!where)
    return tl::unexpected(where.error());
  auto there = open_place(*where, O_PATH | O_DIRECTORY, last_link::follow, path);
  if (there || there.error().code != "file.not_found" || where->relative == ".")
    return there;

  auto slash = where->relative.rfind('/');
  auto prefix = where->in->path == "/" ? std::string("/") : where->in->path + "/";
  auto parent = make_directories(prefix + (slash == std::string::npos ? "" : where->relative.substr(0, slash)), mode);
  if (!parent)
    return parent;
  auto name = slash == std::string::npos ? where->relative : where->relative.substr(slash + 1);
  if (name != "..") {
    if (parent->in->read_only)
      return failure_of(EROFS, path);
    if (::mkdirat(parent->fd.get(), name.c_str(), mode & 0777) == 0) {
      if (made != nullptr)
        *made = true;
    } else if (errno != EEXIST) {
      return failure_of(errno, path);
    }
  }
  return open_place(*where, O_PATH | O_DIRECTORY, last_link::follow, path);
}

} // namespace holt::agent::files
