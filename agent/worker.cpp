#include "agent/worker.hpp"

#include <cstring>
#include <system_error>

#include <pthread.h>

namespace holt::agent {

namespace {

constexpr std::size_t buffer_size = 64 * 1024;
/// Buffers between a worker and the socket: enough that neither waits for the other's every step.
constexpr std::size_t most_buffers = 4;
/// How far ahead a sender of a body may be.
constexpr std::uint64_t input_window = 512 * 1024;

} // namespace

/// Outgoing bytes: filled by the worker, taken by the main thread.
class job::sink final : public body_sink, public stream_source {
public:
  explicit sink(job& owner) : owner_(owner) {
    // nop
  }

  // Worker.
  bool write(std::string_view bytes) override {
    while (!bytes.empty()) {
      auto room = prepare();
      if (room.empty())
        return false;
      auto part = std::min(room.size(), bytes.size());
      std::memcpy(room.data(), bytes.data(), part);
      // Small pieces gather until a buffer is full, or the worker waits or ends.
      gather(part);
      bytes.remove_prefix(part);
    }
    return !cancelled();
  }

  std::span<char> prepare() override {
    if (filling_.bytes && filling_.end == buffer_size)
      publish();
    if (!filling_.bytes) {
      std::unique_lock lock{mutex_};
      changed_.wait(lock, [this] { return gone_ || full_.size() < most_buffers; });
      if (gone_)
        return {};
      filling_ = spare_.bytes ? std::move(spare_) : buffer{std::make_unique_for_overwrite<char[]>(buffer_size)};
      filling_.at = filling_.end = 0;
    }
    if (cancelled())
      return {};
    return {filling_.bytes.get() + filling_.end, buffer_size - filling_.end};
  }

  bool commit(std::size_t bytes) override {
    filling_.end += bytes;
    publish();
    return !cancelled();
  }

  bool cancelled() const override {
    return owner_.stop_.stop_requested();
  }

  /// The worker has ended: what it gathered goes out.
  void finish() {
    publish();
  }

  // Main thread.
  chunk produce(char* to, std::size_t room) override {
    std::unique_lock lock{mutex_};
    if (full_.empty())
      return {};
    auto& front = full_.front();
    auto size = std::min(room, front.end - front.at);
    lock.unlock();
    // Only this thread takes from the front.
    std::memcpy(to, front.bytes.get() + front.at, size);
    lock.lock();
    front.at += size;
    if (front.at == front.end) {
      spare_ = std::move(front);
      full_.pop_front();
      changed_.notify_one();
    }
    sent_ += size;
    return {.size = size};
  }
  void after_chunk() override {
    if (owner_.finished_)
      owner_.wake_();
  }
  void on_stalled() override {
    owner_.detach();
    owner_.wake_();
  }
  void close() {
    std::lock_guard lock{mutex_};
    gone_ = true;
    full_.clear();
    changed_.notify_one();
  }
  bool empty() {
    std::lock_guard lock{mutex_};
    return full_.empty();
  }
  std::uint64_t sent() const {
    return sent_;
  }

private:
  struct buffer {
    std::unique_ptr<char[]> bytes;
    std::size_t at = 0;
    std::size_t end = 0;
  };

  void gather(std::size_t bytes) {
    filling_.end += bytes;
    if (filling_.end == buffer_size)
      publish();
  }

  void publish() {
    if (!filling_.bytes || filling_.end == 0)
      return;
    std::lock_guard lock{mutex_};
    bool was_empty = full_.empty();
    if (!gone_)
      full_.push_back(std::move(filling_));
    filling_ = {};
    if (was_empty)
      owner_.wake_();
  }

  job& owner_;
  buffer filling_; // the worker's alone
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<buffer> full_;
  buffer spare_;
  bool gone_ = false;
  std::uint64_t sent_ = 0; // the main thread's alone
};

/// Incoming bytes: filled by the main thread, taken by the worker.
class job::input final : public body_source, public stream_sink {
public:
  explicit input(job& owner) : owner_(owner) {
    // nop
  }

  // Worker.
  std::optional<std::string_view> next() override {
    std::unique_lock lock{mutex_};
    if (!current_.empty()) {
      consumed_ += current_.size();
      bool granted = consumed_ - granted_ >= input_window / 4;
      current_ = {};
      if (granted)
        owner_.wake_();
    }
    changed_.wait(lock, [this] { return gone_ || last_ || !waiting_.empty(); });
    if (owner_.stop_.stop_requested())
      return std::nullopt;
    if (!waiting_.empty()) {
      current_ = std::move(waiting_.front());
      waiting_.pop_front();
      return current_;
    }
    if (last_)
      return std::string_view{};
    return std::nullopt;
  }
  bool cancelled() const override {
    return owner_.stop_.stop_requested();
  }

  // Main thread.
  void on_bytes(std::string_view bytes, bool last) override {
    std::lock_guard lock{mutex_};
    if (last_ || gone_)
      return;
    received_ += bytes.size();
    if (!bytes.empty())
      waiting_.emplace_back(bytes);
    last_ = last;
    changed_.notify_one();
  }
  void close() {
    std::lock_guard lock{mutex_};
    gone_ = true;
    changed_.notify_one();
  }
  void no_body() {
    std::lock_guard lock{mutex_};
    last_ = true;
    changed_.notify_one();
  }
  /// Grants what the worker has consumed.
  void grant(session& to, std::uint32_t stream, bool first) {
    std::uint64_t consumed;
    {
      std::lock_guard lock{mutex_};
      if (last_ || (!first && consumed_ - granted_ < input_window / 4))
        return;
      consumed = granted_ = consumed_;
    }
    to.grant(stream, consumed + input_window, consumed);
  }

private:
  job& owner_;
  std::string current_; // the worker's alone
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> waiting_;
  bool last_ = false;
  bool gone_ = false;
  std::uint64_t received_ = 0;
  std::uint64_t consumed_ = 0;
  std::uint64_t granted_ = 0;
};

job::job(std::string op_id, work what, std::function<void()> wake)
  : op_id_(std::move(op_id)),
    work_(std::move(what)),
    wake_(std::move(wake)),
    sink_(std::make_unique<sink>(*this)),
    input_(std::make_unique<input>(*this)) {
  // nop
}

job::~job() = default;

body_sink& job::body() {
  return *sink_;
}

body_source& job::source() {
  return *input_;
}

void job::run() {
  try {
    answer_ = work_(*this);
    sink_->finish();
  } catch (const std::bad_alloc&) {
    answer_ = {};
    answer_.error = protocols::agent::operation_error{"agent.no_memory", "the environment is out of memory", "later", {}};
  } catch (const std::exception&) {
    answer_ = {};
    answer_.error = protocols::agent::operation_error{"agent.failed", "the operation failed in the agent", "never", {}};
  }
  finished_ = true;
  wake_();
}

void job::attach(session& to, streams streams) {
  session_ = &to;
  streams_ = streams;
  if (streams_.out != 0)
    to.open_outlet(streams_.out, *sink_, 0);
  if (streams_.in != 0) {
    to.open_inlet(streams_.in, *input_, 0);
    input_->grant(to, streams_.in, true);
  } else {
    input_->no_body();
  }
}

void job::detach() {
  if (session_ == nullptr)
    return;
  if (streams_.out != 0)
    session_->close_outlet(streams_.out);
  if (streams_.in != 0)
    session_->close_inlet(streams_.in);
  session_ = nullptr;
  sink_->close();
  input_->close();
}

void job::cancel() {
  stop_.request_stop();
  sink_->close();
  input_->close();
}

bool job::look() {
  if (session_ != nullptr) {
    if (streams_.out != 0)
      session_->ready(streams_.out);
    if (streams_.in != 0)
      input_->grant(*session_, streams_.in, false);
  }
  if (!finished_)
    return false;
  return session_ == nullptr || streams_.out == 0 || sink_->empty();
}

std::vector<protocols::agent::stream_final> job::finals() const {
  if (streams_.out == 0)
    return {};
  return {{streams_.out, sink_->sent()}};
}

worker_pool::~worker_pool() {
  {
    std::lock_guard lock{mutex_};
    stopping_ = true;
    ready_.notify_all();
  }
  for (auto& thread : threads_)
    thread.join();
}

bool worker_pool::start_thread() {
  try {
    threads_.emplace_back([this] {
      std::unique_lock lock{mutex_};
      while (true) {
        ++idle_;
        ready_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
        --idle_;
        if (waiting_.empty())
          return;
        auto what = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        what->run();
        what.reset();
        lock.lock();
      }
    });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

void worker_pool::submit(std::shared_ptr<job> what) {
  std::unique_lock lock{mutex_};
  waiting_.push_back(std::move(what));
  if (idle_ >= waiting_.size() || started_ >= most_) {
    ready_.notify_one();
    return;
  }
  lock.unlock();
  if (start_thread()) {
    ++started_;
    return;
  }
  // No thread to be had (a fork storm): with none at all the jobs run here, so that something still answers.
  if (started_ == 0) {
    lock.lock();
    auto waiting = std::exchange(waiting_, {});
    lock.unlock();
    for (auto& next : waiting) {
      next->cancel();
      next->run();
    }
  }
}

void worker_pool::submit_apart(std::shared_ptr<job> what) {
  try {
    std::thread{[what, count = apart_] {
      what->run();
      --*count;
    }}.detach();
    ++*apart_;
  } catch (const std::system_error&) {
    what->cancel();
    what->run();
  }
}

} // namespace holt::agent
