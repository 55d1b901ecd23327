#include "runtime/http/keys.hpp"

#include <algorithm>
#include <cmath>

namespace holt::runtime::http {

std::chrono::milliseconds rate_limit::take(std::uint64_t per_second, clock::time_point now) {
  if (per_second == 0)
    return {};
  std::lock_guard guard{mutex_};
  double rate = static_cast<double>(per_second);
  double room = rate * 2;
  tokens_ = tokens_ < 0 ? room : std::min(room, tokens_ + rate * std::chrono::duration<double>(now - filled_).count());
  filled_ = now;
  if (tokens_ >= 1) {
    tokens_ -= 1;
    return {};
  }
  return std::chrono::milliseconds{static_cast<std::int64_t>(std::ceil((1 - tokens_) / rate * 1000))};
}

std::optional<known_key> key_cache::find(const std::string& hash, clock::time_point now) {
  std::lock_guard guard{mutex_};
  auto found = entries_.find(hash);
  if (found == entries_.end() || found->second.until < now)
    return std::nullopt;
  return found->second.key;
}

known_key key_cache::put(const std::string& hash, identity who, std::optional<std::int64_t> expires_at,
                         clock::time_point now) {
  std::lock_guard guard{mutex_};
  if (entries_.size() >= max_entries && !entries_.contains(hash)) {
    std::erase_if(entries_, [&](auto& item) { return item.second.until < now; });
    if (entries_.size() >= max_entries)
      entries_.erase(entries_.begin());
  }
  auto& slot = entries_[hash];
  slot.key.who = std::make_shared<const identity>(std::move(who));
  slot.key.expires_at = expires_at;
  if (!slot.key.limit)
    slot.key.limit = std::make_shared<rate_limit>();
  slot.until = now + believed_;
  return slot.key;
}

void key_cache::drop_key(const std::string& key_id) {
  drop_if([&](const identity& who) { return who.key_id == key_id; });
}

void key_cache::drop_principal(const std::string& principal) {
  drop_if([&](const identity& who) { return who.principal == principal; });
}

void key_cache::drop_org(const std::string& org_id) {
  drop_if([&](const identity& who) { return who.org_id == org_id; });
}

} // namespace holt::runtime::http
