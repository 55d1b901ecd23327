#include "agent/search/ignore.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include "agent/files/descriptor.hpp"

namespace holt::agent::search {
namespace {

/// Larger ignore files are taken up to here; git has no bound, and a sandbox would use it.
constexpr std::size_t most_ignore_bytes = 256 * 1024;
constexpr std::size_t most_rules = 10'000;

rule_list read_rules(int directory, const char* name) {
  files::descriptor file(::openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
    return {};
  std::string text(std::min<std::size_t>(static_cast<std::size_t>(status.st_size), most_ignore_bytes), '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    auto count = files::read_some(file.get(), text.data() + size, text.size() - size);
    if (count <= 0)
      break;
    size += static_cast<std::size_t>(count);
  }
  text.resize(size);
  return rule_list::of_gitignore(text);
}

/// Takes "/" at both ends off, and says what they meant.
struct shape {
  std::string_view pattern;
  bool anchored = false;
  bool directories_only = false;
};

shape shape_of(std::string_view pattern) {
  shape out;
  while (pattern.size() > 1 && pattern.ends_with('/')) {
    out.directories_only = true;
    pattern.remove_suffix(1);
  }
  out.anchored = pattern.find('/') != pattern.npos;
  if (pattern.starts_with('/'))
    pattern.remove_prefix(1);
  out.pattern = pattern;
  return out;
}

/// `directory` below `base`, both relative to the same root.
std::string_view below(std::string_view directory, std::string_view base) {
  if (base.empty())
    return directory;
  return directory.size() > base.size() ? directory.substr(base.size() + 1) : std::string_view();
}

} // namespace

rule_list rule_list::of_gitignore(std::string_view text) {
  rule_list out;
  if (text.starts_with("\xEF\xBB\xBF"))
    text.remove_prefix(3);
  while (!text.empty() && out.rules_.size() < most_rules) {
    auto end = std::min(text.find('\n'), text.size());
    auto line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r'))
      line.remove_suffix(1);
    if (line.starts_with('#'))
      continue;
    // Blanks at the end don't count, unless written "\ ".
    while (line.ends_with(' ') && !line.ends_with("\\ "))
      line.remove_suffix(1);
    rule next;
    if (line.starts_with('!')) {
      next.says = verdict::included;
      line.remove_prefix(1);
    }
    auto shape = shape_of(line);
    if (shape.pattern.empty() || shape.pattern == "/")
      continue;
    next.directories_only = shape.directories_only;
    auto pattern = path_pattern::parse(shape.pattern, {false, !shape.anchored});
    if (!pattern)
      continue;
    next.pattern = std::move(*pattern);
    out.rules_.push_back(std::move(next));
  }
  return out;
}

files::result<rule_list> rule_list::of_globs(const std::vector<std::string>& globs) {
  rule_list out;
  if (globs.size() > 1000)
    return files::failure("search.invalid_glob", "more than 1000 globs", "after_change");
  for (const auto& glob : globs) {
    std::string_view text = glob;
    rule next;
    next.says = verdict::included;
    if (text.starts_with('!')) {
      next.says = verdict::ignored;
      text.remove_prefix(1);
    } else {
      out.only_named_ = true;
    }
    auto shape = shape_of(text);
    std::string whole(shape.pattern);
    if (next.says == verdict::included && shape.directories_only)
      whole += "/**"; // naming a directory means what is in it
    else
      next.directories_only = shape.directories_only;
    auto pattern = path_pattern::parse(whole, {true, !shape.anchored});
    if (!pattern)
      return tl::unexpected(std::move(pattern.error()));
    next.pattern = std::move(*pattern);
    out.rules_.push_back(std::move(next));
  }
  return out;
}

verdict rule_list::of(std::string_view directory, std::string_view name, bool is_directory) const {
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (rule->directories_only && !is_directory)
      continue;
    if (rule->pattern.matches(directory, name))
      return rule->says;
  }
  return only_named_ && !is_directory ? verdict::ignored : verdict::none;
}

std::shared_ptr<const ignore_level> ignore_level::inside(std::shared_ptr<const ignore_level> above, int fd,
                                                         std::string_view directory) {
  auto own = read_rules(fd, ".ignore");
  auto git = read_rules(fd, ".gitignore");
  if (own.empty() && git.empty())
    return above;
  auto level = std::make_shared<ignore_level>();
  level->above = std::move(above);
  level->directory = directory;
  level->own = std::move(own);
  level->git = std::move(git);
  return level;
}

bool is_ignored(const ignore_level* level, std::string_view directory, std::string_view name, bool is_directory) {
  auto says = verdict::none;
  for (auto each = level; each != nullptr && says == verdict::none; each = each->above.get())
    if (!each->own.empty())
      says = each->own.of(below(directory, each->directory), name, is_directory);
  for (auto each = level; each != nullptr && says == verdict::none; each = each->above.get())
    if (!each->git.empty())
      says = each->git.of(below(directory, each->directory), name, is_directory);
  return says == verdict::ignored;
}

} // namespace holt::agent::search
