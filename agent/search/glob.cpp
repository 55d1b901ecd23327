#include "agent/search/glob.hpp"

#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <mutex>
#include <set>
#include <sys/stat.h>

#include "agent/files/file_operations.hpp"
#include "agent/search/search_base.hpp"
#include "agent/search/walk.hpp"

namespace holt::agent::search {
namespace {

namespace wire = protocols::agent;

struct hit {
  std::int64_t newest_first = 0; // 0 when ordered by path
  std::string path;              // relative to the root
  std::size_t name = 0;          // where its last component begins

  friend bool operator<(const hit& a, const hit& b) {
    return a.newest_first != b.newest_first ? a.newest_first < b.newest_first : a.path < b.path;
  }
  std::string_view directory() const {
    return std::string_view(path).substr(0, name == 0 ? 0 : name - 1);
  }
};

/// The first `limit` hits, whatever order they come in.
class best_hits {
public:
  explicit best_hits(std::size_t limit) : limit_(limit) {
  }

  void add(hit&& next) {
    std::lock_guard lock(mutex_);
    if (heap_.size() < limit_) {
      heap_.push_back(std::move(next));
      std::push_heap(heap_.begin(), heap_.end());
      return;
    }
    truncated_ = true;
    if (limit_ == 0 || !(next < heap_.front()))
      return;
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.back() = std::move(next);
    std::push_heap(heap_.begin(), heap_.end());
  }

  std::vector<hit> take() {
    std::sort_heap(heap_.begin(), heap_.end());
    return std::move(heap_);
  }
  bool truncated() const {
    return truncated_;
  }

private:
  std::mutex mutex_;
  std::size_t limit_;
  std::vector<hit> heap_;
  bool truncated_ = false;
};

class glob_worker : public walk_worker {
public:
  glob_worker(const search_base& base, const path_pattern& pattern, bool directories, bool by_time, best_hits& hits)
      : base_(base), pattern_(pattern), directories_(directories), by_time_(by_time), hits_(hits) {
  }

  bool enter(std::string_view directory, std::string_view name) override {
    path_ = base_.below(directory);
    if (!path_.empty())
      path_ += '/';
    path_ += name;
    return pattern_.may_match_below(path_);
  }
  void directory(int fd, std::string_view directory, const char* name) override {
    if (directories_)
      consider(fd, directory, name);
  }
  void file(int fd, std::string_view directory, const char* name, unsigned char) override {
    if (!directories_)
      consider(fd, directory, name);
  }
  void unreadable(std::string_view, int) override {
  }

private:
  void consider(int fd, std::string_view directory, const char* name) {
    if (!pattern_.matches(base_.below(directory), name))
      return;
    hit next;
    if (by_time_) {
      struct stat status {};
      if (::fstatat(fd, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return;
      next.newest_first = -(status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec);
    }
    next.path = directory;
    if (!next.path.empty())
      next.path += '/';
    next.name = next.path.size();
    next.path += name;
    hits_.add(std::move(next));
  }

  const search_base& base_;
  const path_pattern& pattern_;
  bool directories_;
  bool by_time_;
  best_hits& hits_;
  std::string path_;
};

} // namespace

result<wire::list_result> glob(const files::root_table& roots, const wire::search_glob& arguments,
                               const entry_sink& sink, std::stop_token stop) {
  std::string pattern_text = arguments.pattern;
  std::string base_path = arguments.path ? arguments.path->bytes : std::string(".");
  if (arguments.order != "path" && arguments.order != "modified")
    return files::failure("search.invalid_glob", "order must be \"path\" or \"modified\"", "after_change");
  if (pattern_text.starts_with('/')) {
    // An absolute path inside a root, else "from the base".
    const files::root* in = nullptr;
    for (const auto& root : roots.roots())
      if (root.path != "/" && (pattern_text == root.path || pattern_text.starts_with(root.path + "/")) &&
          (in == nullptr || root.path.size() > in->path.size()))
        in = &root;
    if (in != nullptr) {
      base_path = in->path;
      pattern_text.erase(0, in->path.size());
      if (pattern_text.empty() || pattern_text == "/")
        pattern_text = "*";
    }
  }
  bool directories = pattern_text.ends_with('/');
  auto pattern = path_pattern::parse(pattern_text, {});
  if (!pattern)
    return tl::unexpected(std::move(pattern.error()));

  auto whole = open_base(roots, base_path);
  if (!whole)
    return tl::unexpected(std::move(whole.error()));
  struct stat status {};
  if (::fstat(whole->opened.fd.get(), &status) != 0)
    return files::failure_of(errno, base_path);
  if (!S_ISDIR(status.st_mode))
    return files::failure_of(ENOTDIR, base_path);

  auto limit = static_cast<std::size_t>(arguments.limit);
  best_hits hits(limit);
  walk::options how;
  how.hidden = arguments.hidden;
  how.ignore = arguments.ignore;
  how.share_files = false;
  how.threads = walk::default_threads();
  walk walker(how,
              [&] {
                return std::make_unique<glob_worker>(*whole, *pattern, directories, arguments.order == "modified", hits);
              },
              stop);
  auto levels = arguments.ignore ? levels_above(roots, *whole) : nullptr;
  files::descriptor base(::fcntl(whole->opened.fd.get(), F_DUPFD_CLOEXEC, 3));
  if (!base)
    return files::failure_of(errno, base_path);
  walker.run(std::move(base), whole->relative, std::move(levels));
  if (stop.stop_requested())
    return files::failure("file.cancelled", "the search was cancelled");

  wire::list_result done;
  done.truncated = hits.truncated();
  files::descriptor directory;
  std::string open_directory;
  for (auto& each : hits.take()) {
    if (!directory || open_directory != each.directory()) {
      open_directory = each.directory();
      auto below = whole->below(open_directory);
      directory = files::descriptor(files::open_beneath(whole->opened.fd.get(),
                                                        below.empty() ? "." : std::string(below).c_str(),
                                                        O_PATH | O_DIRECTORY, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS));
      if (!directory)
        continue;
    }
    auto entry = files::entry_at(directory.get(), each.path.c_str() + each.name);
    if (!entry)
      continue; // gone since it was found
    entry->name.bytes = whole->absolute(each.path, "");
    ++done.count;
    if (stop.stop_requested() || !sink(std::move(*entry)))
      return files::failure("file.cancelled", "the search was cancelled");
  }
  return done;
}

} // namespace holt::agent::search
