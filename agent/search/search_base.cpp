#include "agent/search/search_base.hpp"

#include <fcntl.h>

namespace holt::agent::search {

std::string search_base::absolute(std::string_view directory, std::string_view name) const {
  std::string path;
  path.reserve(root.size() + directory.size() + name.size() + 2);
  path += root;
  for (auto part : {directory, name}) {
    if (part.empty())
      continue;
    if (!path.ends_with('/'))
      path += '/';
    path += part;
  }
  return path;
}

std::string_view search_base::below(std::string_view directory) const {
  if (relative.empty())
    return directory;
  return directory.size() > relative.size() ? directory.substr(relative.size() + 1) : std::string_view();
}

files::result<search_base> open_base(const files::root_table& roots, const std::string& path) {
  search_base base;
  auto absolute = roots.absolute(path);
  if (!absolute)
    return tl::unexpected(std::move(absolute.error()));
  auto opened = roots.open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, files::last_link::follow);
  if (!opened)
    return tl::unexpected(std::move(opened.error()));
  base.opened = std::move(*opened);
  // By the caller's words, not by where links led: results are told below the path that was asked for.
  for (const auto& root : roots.roots()) {
    bool in = root.path == "/" || *absolute == root.path || absolute->starts_with(root.path + "/");
    if (in && root.path.size() >= base.root.size()) {
      base.root = root.path;
      auto skip = root.path == "/" ? 1 : root.path.size() + 1;
      base.relative = absolute->size() > skip ? absolute->substr(skip) : "";
    }
  }
  return base;
}

std::shared_ptr<const ignore_level> levels_above(const files::root_table& roots, const search_base& base) {
  std::shared_ptr<const ignore_level> level;
  for (std::size_t end = 0; !base.relative.empty() && end != std::string::npos;) {
    auto directory = base.relative.substr(0, end);
    auto opened = roots.open(base.absolute(directory, ""), O_RDONLY | O_DIRECTORY | O_NONBLOCK, files::last_link::follow);
    if (!opened)
      break;
    level = ignore_level::inside(std::move(level), opened->fd.get(), directory);
    end = base.relative.find('/', end == 0 ? 0 : end + 1);
  }
  return level;
}

} // namespace holt::agent::search
