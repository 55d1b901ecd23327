#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/search/pattern.hpp"

namespace holt::agent::search {

enum class verdict { none, ignored, included };

/// An ordered list of rules, of which the last that matches decides. Pure; immutable once built: any thread.
class rule_list {
public:
  /// The text of a .gitignore: comments, "!" takes back, "dir/" only directories, a slash inside anchors. Lines that are no
  /// pattern are left out, as git does.
  static rule_list of_gitignore(std::string_view text);

  /// Filters as of a command line: "x" includes, "!x" leaves out, otherwise as in .gitignore, with braces. A list that
  /// includes anything leaves out every file that it doesn't name. Error: search.invalid_glob.
  static files::result<rule_list> of_globs(const std::vector<std::string>& globs);

  verdict of(std::string_view directory, std::string_view name, bool is_directory) const;
  bool empty() const {
    return rules_.empty();
  }

private:
  struct rule {
    path_pattern pattern;
    verdict says = verdict::ignored;
    bool directories_only = false;
  };

  std::vector<rule> rules_;
  bool only_named_ = false;
};

/// The ignore files that hold in one directory: its own and those above, the nearest first. Immutable: any thread.
struct ignore_level {
  std::shared_ptr<const ignore_level> above;
  std::string directory; // of these files, relative to the root; "" is the root
  rule_list own;         // .ignore, which goes before any .gitignore
  rule_list git;         // .gitignore

  /// The level that holds inside `directory` (open as `fd`): `above` itself if the directory has no such file.
  static std::shared_ptr<const ignore_level> inside(std::shared_ptr<const ignore_level> above, int fd,
                                                    std::string_view directory);
};

/// Whether an entry is left out by the levels that hold in `directory` (relative to the root).
bool is_ignored(const ignore_level* level, std::string_view directory, std::string_view name, bool is_directory);

} // namespace holt::agent::search
