#pragma once

#include <atomic>
#include <memory>

#include "actors/channel.hpp"

namespace holt::actors {

/// A consumer that outlives a connection: knows how far it got, so that another connection goes on there, and keeps a
/// closed connection from the real consumer while the operation may still be taken up again (spec 56).
///
/// The channel calls it; the session asks for the position once the channel is closed, or behind a result.
class resumable_stream final : public stream_consumer {
public:
  resumable_stream(std::shared_ptr<stream_consumer> consumer, std::uint64_t from)
      : consumer_(std::move(consumer)), first_(from), position_(from) {
    // nop
  }

  void on_data(std::uint64_t offset, shared_bytes bytes, bool is_stderr, bool last) override {
    auto end = offset + bytes.bytes.size();
    consumer_->on_data(offset, std::move(bytes), is_stderr, last);
    reached(end);
  }

  void on_gap(std::uint64_t from, std::uint64_t to) override {
    consumer_->on_gap(from, to);
    reached(to);
  }

  void on_closed() override {
    // Told by the session, if nothing takes over.
  }

  /// Nothing more comes, from any connection.
  void end() {
    consumer_->on_closed();
  }

  /// The next byte that the consumer has not seen.
  std::uint64_t position() const {
    return position_.load(std::memory_order_acquire);
  }

  /// Whether the consumer has not seen any.
  bool untouched() const {
    return position() == first_;
  }

private:
  /// Never back: a stream that begins at 0 on each connection comes twice.
  void reached(std::uint64_t end) {
    if (end > position())
      position_.store(end, std::memory_order_release);
  }

  std::shared_ptr<stream_consumer> consumer_;
  std::uint64_t first_;
  std::atomic<std::uint64_t> position_;
};

} // namespace holt::actors
