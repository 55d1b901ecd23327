#include "storage/sqlite/group_writer.hpp"

#include <optional>
#include <utility>

namespace holt::storage {

group_writer::group_writer(connection with, const limits& how)
    : connection_(std::move(with)), limits_(how), counters_{0, connection_.commits()}, thread_([this] { loop(); }) {
}

group_writer::~group_writer() {
  stop();
}

bool group_writer::write(unit&& work, unit_reply& reply) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || queue_.size() >= limits_.max_queued) {
      return false;
    }
    queue_.push_back({std::move(work), std::move(reply)});
  }
  wake_.notify_one();
  return true;
}

void group_writer::write_lazily(std::string key, std::int64_t order, unit work) {
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    if (stopping_) {
      return;
    }
    if (lazy_.empty()) {
      lazy_due_ = clock::now() + limits_.lazy_delay;
      wake = true; // the thread now has a time to wait for
    }
    auto [place, fresh] = lazy_.try_emplace(std::move(key));
    if (fresh || place->second.order <= order) {
      place->second = {order, std::move(work)};
    }
    wake = wake || lazy_.size() >= limits_.max_lazy;
  }
  if (wake) {
    wake_.notify_one();
  }
}

void group_writer::stop() {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) {
      return;
    }
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

group_writer::counters group_writer::count() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

bool group_writer::lazy_is_due() const {
  return !lazy_.empty() && (stopping_ || lazy_.size() >= limits_.max_lazy || clock::now() >= lazy_due_);
}

std::vector<group_writer::call> group_writer::next_group(std::unique_lock<std::mutex>& lock) {
  auto ready = [this] { return stopping_ || !queue_.empty() || lazy_is_due(); };
  while (!ready()) {
    if (lazy_.empty()) {
      wake_.wait(lock);
    } else {
      wake_.wait_until(lock, lazy_due_);
    }
  }
  std::vector<call> group;
  while (!queue_.empty() && group.size() < limits_.max_group) {
    group.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  if (lazy_is_due()) {
    for (auto& [key, each] : lazy_) {
      group.push_back({std::move(each.work), nullptr});
    }
    lazy_.clear();
  }
  return group;
}

void group_writer::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    auto group = next_group(lock);
    if (group.empty()) {
      break; // stopping, and all is done
    }
    lock.unlock();
    carry_out(std::move(group));
    lock.lock();
  }
  lock.unlock();
  connection closed = std::move(connection_);
}

bool group_writer::commit_together(const std::vector<call>& group, std::vector<store_result<unit_result>>& results) {
  auto fail_all = [&](const store_error& error) {
    results.assign(group.size(), tl::unexpected(error));
    if (connection_.in_transaction()) {
      (void)connection_.execute("ROLLBACK");
    }
    return false;
  };
  if (auto begun = connection_.run(step{"BEGIN IMMEDIATE", {}}); !begun) {
    return fail_all(begun.error());
  }
  bool any = false;
  for (const auto& each : group) {
    results.push_back(connection_.run(each.work, true));
    any = any || results.back().has_value();
    if (!connection_.in_transaction()) {
      return fail_all(results.back().has_value() ? store_error{store_errc::internal, "transaction ended by itself"}
                                                 : store_error(results.back().error()));
    }
  }
  // With nothing to keep there is nothing to flush.
  if (auto ended = connection_.run(step{any ? "COMMIT" : "ROLLBACK", {}}); !ended) {
    return fail_all(ended.error());
  }
  return true;
}

void group_writer::carry_out(std::vector<call> group) {
  std::vector<store_result<unit_result>> results;
  results.reserve(group.size());
  if (!commit_together(group, results) && group.size() > 1) {
    // One call may have filled the disk, or broken the transaction for all: each gets its own. Also what another call
    // was told while the transaction stood (fenced, not found) holds no longer.
    for (std::size_t i = 0; i < group.size(); ++i) {
      std::vector<call> alone;
      alone.push_back(std::move(group[i]));
      std::vector<store_result<unit_result>> result;
      commit_together(alone, result);
      results[i] = std::move(result.front());
      group[i] = std::move(alone.front());
    }
  }
  {
    std::lock_guard lock(mutex_);
    counters_.calls += group.size();
    counters_.commits = connection_.commits();
  }
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (group[i].reply) {
      group[i].reply(std::move(results[i]));
    }
  }
}

} // namespace holt::storage
