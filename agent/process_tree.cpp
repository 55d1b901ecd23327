#include "agent/process_tree.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <unordered_map>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/unique_fd.hpp"

namespace holt::agent {

std::optional<process_entry> parse_stat(std::string_view text) {
  process_entry out;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), out.pid);
  // The name is in parentheses and may hold some itself: the last one ends it.
  auto close = text.rfind(')');
  if (ec != std::errc{} || close == text.npos || close + 4 > text.size())
    return std::nullopt;
  auto state = text[close + 2];
  out.zombie = state == 'Z' || state == 'X' || state == 'x';
  const char* at = text.data() + close + 3;
  const char* stop = text.data() + text.size();
  for (auto* number : {&out.parent, &out.group, &out.session}) {
    while (at < stop && *at == ' ')
      ++at;
    auto [next, problem] = std::from_chars(at, stop, *number);
    if (problem != std::errc{})
      return std::nullopt;
    at = next;
  }
  // The start is the 22nd field, and this is before the 7th.
  for (int field = 0; field < 15; ++field) {
    while (at < stop && *at == ' ')
      ++at;
    while (at < stop && *at != ' ')
      ++at;
  }
  while (at < stop && *at == ' ')
    ++at;
  if (std::from_chars(at, stop, out.started).ec != std::errc{})
    out.started = ~0ull;
  return out;
}

std::uint64_t ticks_now() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  auto ticks = static_cast<std::uint64_t>(now.tv_sec) * 100 + static_cast<std::uint64_t>(now.tv_nsec) / 10'000'000;
  return ticks > 2 ? ticks - 2 : 0;
}

std::vector<pid_t> members(const std::vector<process_entry>& all, const tree_signs& signs, pid_t self,
                           const std::function<bool(pid_t)>& has_cookie) {
  std::unordered_set<pid_t> in, sessions, groups;
  if (signs.session != 0) {
    sessions.insert(signs.session);
    groups.insert(signs.session);
  }
  std::vector<const process_entry*> rest;
  rest.reserve(all.size());
  for (auto& entry : all)
    if (entry.pid != self && entry.pid > 0)
      rest.push_back(&entry);
  auto take = [&](const process_entry& entry) {
    in.insert(entry.pid);
    // Sessions and groups that members made are theirs alone; those that a member only joined are not (it can't join
    // another session, and a group only within its own).
    if (entry.session == entry.pid)
      sessions.insert(entry.session);
    if (entry.group == entry.pid)
      groups.insert(entry.group);
  };
  auto belongs = [&](const process_entry& entry) {
    return entry.pid == signs.leader || signs.seen.contains(entry.pid) || in.contains(entry.parent)
           || signs.seen.contains(entry.parent) || (entry.session > 0 && sessions.contains(entry.session))
           || (entry.group > 0 && groups.contains(entry.group));
  };
  auto close_over = [&] {
    bool grown = true;
    while (grown) {
      auto before = in.size();
      std::erase_if(rest, [&](auto* entry) {
        if (!belongs(*entry))
          return false;
        take(*entry);
        return true;
      });
      grown = in.size() != before;
    }
  };
  close_over();
  bool by_cookie = false;
  std::erase_if(rest, [&](auto* entry) {
    if (entry->zombie || entry->started < signs.since || !has_cookie(entry->pid))
      return false;
    take(*entry);
    by_cookie = true;
    return true;
  });
  if (by_cookie)
    close_over();
  std::vector<pid_t> out;
  for (auto& entry : all)
    if (in.contains(entry.pid) && !entry.zombie)
      out.push_back(entry.pid);
  return out;
}

namespace {

bool read_small(int dir, const char* name, std::string& out) {
  unique_fd fd{::openat(dir, name, O_RDONLY | O_CLOEXEC)};
  if (!fd)
    return false;
  out.resize(1024);
  auto got = ::read(fd.get(), out.data(), out.size());
  if (got <= 0)
    return false;
  out.resize(static_cast<std::size_t>(got));
  return true;
}

bool environment_has(int proc, pid_t pid, std::string_view cookie) {
  unique_fd fd{::openat(proc, (std::to_string(pid) + "/environ").c_str(), O_RDONLY | O_CLOEXEC)};
  if (!fd)
    return false;
  // As one of NUL-ended strings; a long environment is read in parts.
  std::string text;
  bool at_start = true;
  char part[8192];
  std::size_t total = 0;
  while (total < 8 * 1024 * 1024) {
    auto got = ::read(fd.get(), part, sizeof part);
    if (got <= 0)
      return false;
    total += static_cast<std::size_t>(got);
    text.append(part, static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (auto end = text.find('\0'); end != text.npos; begin = end + 1, end = text.find('\0', begin)) {
      if (at_start && std::string_view{text}.substr(begin, end - begin) == cookie)
        return true;
      at_start = true;
    }
    text.erase(0, begin);
    if (text.size() > cookie.size()) {
      // Longer than the cookie: whatever it is, it isn't that; wait for its end.
      text.clear();
      at_start = false;
    }
  }
  return false;
}

} // namespace

std::vector<pid_t> find_members(int proc, const tree_signs& signs) {
  unique_fd listing{::openat(proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!listing)
    return {};
  auto* dir = ::fdopendir(listing.get());
  if (dir == nullptr)
    return {};
  listing.release();
  std::vector<process_entry> all;
  std::string text;
  while (auto* item = ::readdir(dir)) {
    if (item->d_name[0] < '1' || item->d_name[0] > '9')
      continue;
    if (!read_small(proc, (std::string{item->d_name} + "/stat").c_str(), text))
      continue;
    if (auto entry = parse_stat(text))
      all.push_back(*entry);
  }
  ::closedir(dir);
  return members(all, signs, ::getpid(), [&](pid_t pid) { return environment_has(proc, pid, signs.cookie); });
}

} // namespace holt::agent
