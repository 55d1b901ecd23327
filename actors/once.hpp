#pragma once

#include <atomic>
#include <functional>
#include <utility>

namespace holt::actors {

/// An answer that is owed exactly once: the way back from actors to whoever asked. Whoever holds the last reference without
/// having answered, answers with `otherwise`: so an actor that dies owes nothing (caf-notes: a dropped promise never answers).
///
/// Any thread.
template <class T>
class once {
public:
  using function = std::function<void(T)>;

  once(function reply, std::function<T()> otherwise) : reply_(std::move(reply)), otherwise_(std::move(otherwise)) {
    // nop
  }
  once(const once&) = delete;
  once& operator=(const once&) = delete;

  ~once() {
    if (!answered_.load(std::memory_order_acquire))
      answer(otherwise_());
  }

  /// The first call answers; later ones change nothing.
  void answer(T value) {
    if (answered_.exchange(true, std::memory_order_acq_rel))
      return;
    auto reply = std::exchange(reply_, nullptr);
    reply(std::move(value));
  }

  bool answered() const {
    return answered_.load(std::memory_order_acquire);
  }

private:
  function reply_;
  std::function<T()> otherwise_;
  std::atomic<bool> answered_{false};
};

} // namespace holt::actors
