#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "actors/lease_ticket.hpp"

namespace holt::actors::logic {

/// Who may use one environment now (spec 7, 8): counted users up to a cap, uncounted ones beside them, exclusive alone, in
/// the order of asking; an exclusive that waits lets nobody pass it.
///
/// Pure: no clock, no actor, no I/O. The limits come with every call, since the cap is read at every use. Each call
/// returns the tickets that it granted, in order.
class lease_queue {
public:
  /// Whether another user of this mode would have to wait where nobody more may.
  bool refuses(lease_mode mode, const lease_limits& limits) const;

  /// Whether this ticket holds or waits.
  bool knows(lease_ticket ticket) const;

  /// Puts a user in the queue. REQUIRES: not refuses(mode, limits), not knows(ticket).
  std::vector<lease_ticket> acquire(lease_ticket ticket, lease_mode mode, const lease_limits& limits);

  /// Ends a lease, or the wait for one. Unknown tickets change nothing.
  std::vector<lease_ticket> release(lease_ticket ticket);

  std::size_t waiting() const {
    return waiting_.size();
  }

private:
  struct waiting_user {
    lease_ticket ticket;
    lease_mode mode;
  };

  bool admits(lease_mode mode) const;
  void hold(const waiting_user& user);
  std::vector<lease_ticket> grant();

  lease_limits limits_;
  std::deque<waiting_user> waiting_;
  std::map<lease_ticket, lease_mode> holding_;
  std::size_t counted_ = 0; // of holding_, mode shared
  bool held_exclusively_ = false;
};

/// The owner token of a lease: 128 random bits as hex, never a process id or a host name, which come back (spec 9).
/// `random` gives 64 random bits a call.
template <class Random>
std::string make_owner_token(Random&& random) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string token;
  for (int word = 0; word < 2; ++word)
    for (std::uint64_t bits = random(), i = 0; i < 16; ++i, bits >>= 4)
      token.push_back(digits[bits & 15]);
  return token;
}

} // namespace holt::actors::logic
