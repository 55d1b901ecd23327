#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <vector>

namespace holt::actors::logic {

/// When what is due: one deadline a key, the earliest first. Pure; the clock is the caller's.
template <class Key>
class deadline_index {
public:
  using time = std::chrono::nanoseconds; // of any monotonic clock

  /// Replaces the key's deadline.
  void set(const Key& key, time at) {
    erase(key);
    by_key_.emplace(key, by_time_.emplace(at, key));
  }

  void erase(const Key& key) {
    auto found = by_key_.find(key);
    if (found == by_key_.end())
      return;
    by_time_.erase(found->second);
    by_key_.erase(found);
  }

  std::optional<time> earliest() const {
    return by_time_.empty() ? std::nullopt : std::optional{by_time_.begin()->first};
  }

  /// Takes out what is due, in the order of its deadlines.
  std::vector<Key> take_due(time now) {
    std::vector<Key> due;
    while (!by_time_.empty() && by_time_.begin()->first <= now) {
      due.push_back(by_time_.begin()->second);
      by_key_.erase(due.back());
      by_time_.erase(by_time_.begin());
    }
    return due;
  }

  std::size_t size() const {
    return by_key_.size();
  }

private:
  std::multimap<time, Key> by_time_;
  std::map<Key, typename std::multimap<time, Key>::iterator> by_key_;
};

} // namespace holt::actors::logic
