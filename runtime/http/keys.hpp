#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "runtime/http/exchange.hpp"

/// Keys that were looked up lately, with the rate limit of each (spec 93, 99). Bounded; any thread.
namespace holt::runtime::http {

/// A bucket that fills at `per_second` and holds two seconds' worth. Any thread.
class rate_limit {
public:
  /// 0: let through; else how long to wait.
  std::chrono::milliseconds take(std::uint64_t per_second, clock::time_point now);

private:
  std::mutex mutex_;
  double tokens_ = -1; // not used yet
  clock::time_point filled_{};
};

struct known_key {
  std::shared_ptr<const identity> who;
  std::optional<std::int64_t> expires_at; // microseconds since 1970
  std::shared_ptr<rate_limit> limit;
};

class key_cache {
public:
  explicit key_cache(std::chrono::milliseconds believed) : believed_(believed) {
  }
  std::optional<known_key> find(const std::string& hash, clock::time_point now);
  /// Keeps the rate limit of an entry that is looked up again.
  known_key put(const std::string& hash, identity who, std::optional<std::int64_t> expires_at, clock::time_point now);
  void drop_key(const std::string& key_id);
  /// Of a user and of whoever acts for it.
  void drop_principal(const std::string& principal);
  void drop_org(const std::string& org_id);

private:
  static constexpr std::size_t max_entries = 4096;
  struct entry {
    known_key key;
    clock::time_point until;
  };
  template <class Match>
  void drop_if(Match matches) {
    std::lock_guard guard{mutex_};
    std::erase_if(entries_, [&](auto& item) { return matches(*item.second.key.who); });
  }
  std::mutex mutex_;
  std::chrono::milliseconds believed_;
  std::unordered_map<std::string, entry> entries_;
};

} // namespace holt::runtime::http
