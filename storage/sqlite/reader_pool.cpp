#include "storage/sqlite/reader_pool.hpp"

#include <utility>

namespace holt::storage {

namespace {

store_result<unit_result> read_on(connection& with, const unit& work) {
  if (work.size() == 1) {
    return with.run(work, false);
  }
  if (auto begun = with.run(step{"BEGIN", {}}); !begun) { // one state for all steps
    return tl::unexpected(std::move(begun.error()));
  }
  auto result = with.run(work, false);
  if (with.in_transaction()) {
    (void)with.run(step{"ROLLBACK", {}});
  }
  return result;
}

} // namespace

reader_pool::reader_pool(std::vector<connection> with, std::size_t max_queued) : max_queued_(max_queued) {
  for (auto& each : with) {
    threads_.emplace_back([this, own = std::make_shared<connection>(std::move(each))]() mutable {
      auto mine = std::move(*own);
      own.reset();
      loop(std::move(mine));
    });
  }
}

reader_pool::~reader_pool() {
  stop();
}

bool reader_pool::read(unit&& work, unit_reply& reply) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) {
      return false;
    }
    call next{{}, std::move(reply), {}};
    if (queue_.size() >= max_queued_) {
      next.refused = store_error{store_errc::unavailable, "too many reads are waiting"};
    } else {
      next.work = std::move(work);
    }
    queue_.push_back(std::move(next));
  }
  wake_.notify_one();
  return true;
}

bool reader_pool::refuse(unit_reply& reply, store_error why) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) {
      return false;
    }
    queue_.push_back({{}, std::move(reply), std::move(why)});
  }
  wake_.notify_one();
  return true;
}

void reader_pool::stop() {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) {
      return;
    }
    stopping_ = true;
  }
  wake_.notify_all();
  for (auto& each : threads_) {
    each.join();
  }
}

void reader_pool::loop(connection with) {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) {
      return;
    }
    auto next = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    next.reply(next.refused ? store_result<unit_result>(tl::unexpected(std::move(*next.refused)))
                            : read_on(with, next.work));
    next = {};
    lock.lock();
  }
}

} // namespace holt::storage
