#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/files/descriptor.hpp"
#include "agent/files/error.hpp"

namespace holt::agent::files {

/// One of an instance's directories. `directory` stays open, and is owned by whoever made the table.
struct root {
  std::string path; // absolute, as seen inside the instance, without a slash at its end (unless "/")
  int directory = -1;
  bool read_only = false;
};

/// What the last component does when it is a symbolic link.
enum class last_link { follow, keep };

/// A path that was opened, and the root in which it really lies (a link may lead from one root into another).
struct opened {
  descriptor fd;
  const root* in = nullptr;
};

/// Where an entry is, or would be: the directory that holds it, open, and its name there.
struct location {
  descriptor parent;
  std::string name;
  const root* in = nullptr;
  std::string path; // absolute, as the caller's path led there
};

/// Finds paths beneath the roots by descriptor, never by text alone (spec 45): whatever happens to the tree meanwhile,
/// what is opened was beneath a root when the kernel resolved it.
///
/// A path is absolute inside a root or relative to the first root. Symbolic links are followed while they stay inside:
/// the kernel does it (openat2, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS) until it meets an absolute link, which may point
/// into a root and is then resolved step by step, at most 40 links. Errors: file.invalid_path, file.outside_roots,
/// file.too_many_links, and those of failure_of.
///
/// Immutable after construction: any thread.
class root_table {
public:
  /// REQUIRES: at least one root, the first being the workspace, with descriptors that outlive the table.
  explicit root_table(std::vector<root> roots);

  const std::vector<root>& roots() const {
    return roots_;
  }

  /// Opens with `flags` (O_CLOEXEC is added). Never creates.
  result<opened> open(std::string_view path, int flags, last_link last) const;

  /// Opens the directory that holds the entry. With `follow`, a last component that is a link is followed to what it
  /// names, which need not exist. Missing directories are made when `make_parents` and the root allow it.
  result<location> locate(std::string_view path, last_link last, bool make_parents = false) const;

  /// Opens the directory, after making it and its parents where missing. `made` tells whether it was.
  result<opened> make_directories(std::string_view path, unsigned mode, bool* made = nullptr) const;

  /// The absolute form of a path: "." and doubled slashes taken out, ".." left to the kernel.
  result<std::string> absolute(std::string_view path) const;

private:
  struct place {
    const root* in = nullptr;
    std::string relative; // never empty: "." is the root itself
    bool directory = false; // ended in a slash
  };

  result<place> find(std::string_view path) const;
  result<opened> open_place(const place& where, int flags, last_link last, std::string_view shown) const;
  result<opened> open_by_steps(const place& where, int flags, last_link last, std::string_view shown) const;
  result<place> without_links(const place& where, last_link last, std::string_view shown) const;
  tl::unexpected<operation_error> outside(std::string_view path) const;

  std::vector<root> roots_;
};

} // namespace holt::agent::files
