#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "agent/files/descriptor.hpp"
#include "agent/files/directory_reader.hpp"
#include "agent/search/ignore.hpp"

namespace holt::agent::search {

/// What one thread of a walk does with what is found. Each thread has its own.
class walk_worker {
public:
  virtual ~walk_worker() = default;

  /// Whether to go into a directory. Both names are relative to the walk's root.
  virtual bool enter(std::string_view directory, std::string_view name) = 0;
  /// Anything but a directory. `fd` is the open directory, `type` a DT_… other than DT_DIR and DT_UNKNOWN.
  virtual void file(int fd, std::string_view directory, const char* name, unsigned char type) = 0;
  /// A directory, seen whether entered or not.
  virtual void directory(int, std::string_view, const char*) {
  }
  /// A directory that can't be read.
  virtual void unreadable(std::string_view path, int error) = 0;
};

/// A directory tree, walked by several threads that take directories from one stack, deepest first, and share the files
/// of a large directory when one of them has nothing to do. Below the base every step is one name with O_NOFOLLOW, so that
/// no link is followed whatever happens to the tree. Open files: about one a level and thread.
class walk {
public:
  struct options {
    bool hidden = true;      // also names that begin with "."
    bool ignore = false;     // .gitignore and .ignore hold; .git is left out
    bool share_files = true; // files are much work each
    unsigned threads = 4;    // at most; the caller's is one of them. Helpers start when there is something for them
  };

  walk(options how, std::function<std::unique_ptr<walk_worker>()> make_worker, std::stop_token stop)
      : how_(how), make_worker_(std::move(make_worker)), stop_(std::move(stop)) {
  }

  /// Walks all below `base`, an open directory whose path below the root is `path` ("" for the root itself). `levels` are
  /// the ignore files that hold in the base, its own left out. Returns when all is done or stopped.
  void run(files::descriptor base, std::string path, std::shared_ptr<const ignore_level> levels);

  /// Ends the walk soon. Any thread.
  void stop() {
    stopping_.store(true, std::memory_order_relaxed);
  }
  bool stopped() const {
    return stopping_.load(std::memory_order_relaxed) || stop_.stop_requested();
  }

  /// How many threads a walk should use on this machine.
  static unsigned default_threads();

private:
  struct directory_node {
    files::descriptor fd;
    std::string path;
    std::shared_ptr<const ignore_level> levels;
    unsigned depth = 0;
  };
  struct task {
    std::shared_ptr<directory_node> parent;
    std::string name;               // a directory to read, or
    std::vector<std::string> names; // files of `parent`, each with its type in front
  };

  void work(walk_worker& worker, files::directory_reader& reader);
  void read(walk_worker& worker, files::directory_reader& reader, std::shared_ptr<directory_node> node);
  void push(std::vector<task> tasks);
  bool idle() const {
    return idle_.load(std::memory_order_relaxed) > 0;
  }

  options how_;
  std::function<std::unique_ptr<walk_worker>()> make_worker_;
  std::stop_token stop_;
  std::atomic<bool> stopping_{false};
  std::atomic<unsigned> idle_{0}; // threads that wait, or could still be started

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<task> tasks_;
  unsigned active_ = 0;
  unsigned waiting_ = 0;
  std::vector<std::thread> helpers_;
};

} // namespace holt::agent::search
