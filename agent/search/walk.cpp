#include "agent/search/walk.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/files/directory_reader.hpp"

namespace holt::agent::search {
namespace {

/// Deeper trees are told as unreadable: each level may hold an open file.
constexpr unsigned deepest = 400;
constexpr std::size_t batch_files = 64;

} // namespace

unsigned walk::default_threads() {
  return std::clamp(std::thread::hardware_concurrency(), 1u, 4u);
}

void walk::run(files::descriptor base, std::string path, std::shared_ptr<const ignore_level> levels) {
  auto node = std::make_shared<directory_node>();
  node->fd = std::move(base);
  node->path = std::move(path);
  node->levels = std::move(levels);
  idle_ = how_.threads - 1;
  active_ = 1;
  auto worker = make_worker_();
  files::directory_reader reader;
  read(*worker, reader, std::move(node));
  {
    std::lock_guard lock(mutex_);
    --active_;
    changed_.notify_all();
  }
  work(*worker, reader);
  worker.reset();
  // No helper is started any more: all work is done, or everybody stops.
  for (auto& helper : helpers_)
    helper.join();
  helpers_.clear();
  tasks_.clear();
}

void walk::work(walk_worker& worker, files::directory_reader& reader) {
  std::unique_lock lock(mutex_);
  for (;;) {
    while (tasks_.empty() && active_ != 0 && !stopped()) {
      ++waiting_;
      idle_.fetch_add(1, std::memory_order_relaxed);
      changed_.wait(lock);
      idle_.fetch_sub(1, std::memory_order_relaxed);
      --waiting_;
    }
    if (stopped() || tasks_.empty())
      break;
    auto task = std::move(tasks_.back());
    tasks_.pop_back();
    ++active_;
    lock.unlock();

    if (task.names.empty()) {
      auto node = std::make_shared<directory_node>();
      node->depth = task.parent->depth + 1;
      node->path = task.parent->path.empty() ? task.name : task.parent->path + "/" + task.name;
      if (node->depth > deepest) {
        worker.unreadable(node->path, ENAMETOOLONG);
      } else {
        node->fd = files::descriptor(
            ::openat(task.parent->fd.get(), task.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
        node->levels = task.parent->levels;
        int error = errno;
        task.parent.reset();
        if (node->fd)
          read(worker, reader, std::move(node));
        else if (error != ENOENT && error != ENOTDIR && error != ELOOP)
          worker.unreadable(node->path, error);
      }
    } else {
      for (const auto& name : task.names) {
        if (stopped())
          break;
        worker.file(task.parent->fd.get(), task.parent->path, name.c_str() + 1, static_cast<unsigned char>(name[0]));
      }
    }
    task = {};

    lock.lock();
    --active_;
    if (active_ == 0 && tasks_.empty())
      changed_.notify_all();
  }
  changed_.notify_all();
}

void walk::push(std::vector<task> tasks) {
  std::lock_guard lock(mutex_);
  auto count = tasks.size();
  std::move(tasks.rbegin(), tasks.rend(), std::back_inserter(tasks_));
  if (count == 1 && waiting_ > 0)
    changed_.notify_one();
  else if (waiting_ > 0)
    changed_.notify_all();
  // The thread that pushes goes on by itself; helpers are for what is left over then.
  while (waiting_ + 1 < tasks_.size() && helpers_.size() + 1 < how_.threads && !stopped()) {
    helpers_.emplace_back([this] {
      auto worker = make_worker_();
      files::directory_reader own_reader;
      work(*worker, own_reader);
    });
    idle_.fetch_sub(1, std::memory_order_relaxed);
  }
}

void walk::read(walk_worker& worker, files::directory_reader& reader, std::shared_ptr<directory_node> node) {
  const int fd = node->fd.get();
  if (how_.ignore)
    node->levels = ignore_level::inside(std::move(node->levels), fd, node->path);
  const auto* levels = node->levels.get();

  reader.rewind();
  files::directory_entry entry{};
  std::vector<task> found;
  task batch;
  std::size_t visited = 0;
  while (reader.next(fd, entry)) {
    if ((++visited & 15) == 0 && stopped())
      return;
    if (!how_.hidden && entry.name[0] == '.')
      continue;
    if (entry.type == DT_UNKNOWN) {
      struct stat status {};
      if (::fstatat(fd, entry.name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        continue;
      entry.type = static_cast<unsigned char>(IFTODT(status.st_mode));
    }
    bool directory = entry.type == DT_DIR;
    if (how_.ignore) {
      if (std::strcmp(entry.name, ".git") == 0)
        continue;
      if (levels != nullptr && is_ignored(levels, node->path, entry.name, directory))
        continue;
    }
    if (directory) {
      worker.directory(fd, node->path, entry.name);
      if (worker.enter(node->path, entry.name))
        found.push_back({node, entry.name, {}});
    } else if (how_.share_files && idle()) {
      std::string typed(1, static_cast<char>(entry.type));
      batch.names.push_back(typed += entry.name);
      if (batch.names.size() == batch_files) {
        batch.parent = node;
        std::vector<task> tasks;
        tasks.push_back(std::move(batch));
        batch = {};
        push(std::move(tasks));
      }
    } else {
      worker.file(fd, node->path, entry.name, entry.type);
    }
  }
  if (reader.error() != 0)
    worker.unreadable(node->path, reader.error());
  if (!found.empty())
    push(std::move(found));
  for (const auto& name : batch.names) {
    if (stopped())
      return;
    worker.file(fd, node->path, name.c_str() + 1, static_cast<unsigned char>(name[0]));
  }
}

} // namespace holt::agent::search
