#include "actors/logic/lease_queue.hpp"

#include <algorithm>

namespace holt::actors::logic {

bool lease_queue::refuses(lease_mode mode, const lease_limits& limits) const {
  if (waiting_.size() < limits.max_waiting)
    return false;
  if (held_exclusively_)
    return true;
  switch (mode) {
    case lease_mode::shared:
      return !waiting_.empty() || counted_ >= limits.max_shared;
    case lease_mode::uncounted:
      return std::any_of(waiting_.begin(), waiting_.end(), [](auto& user) { return user.mode == lease_mode::exclusive; });
    case lease_mode::exclusive:
      return !waiting_.empty() || !holding_.empty();
  }
  return true;
}

bool lease_queue::knows(lease_ticket ticket) const {
  return holding_.contains(ticket)
         || std::any_of(waiting_.begin(), waiting_.end(), [=](auto& user) { return user.ticket == ticket; });
}

std::vector<lease_ticket> lease_queue::acquire(lease_ticket ticket, lease_mode mode, const lease_limits& limits) {
  limits_ = limits;
  // Nobody waits in the usual case, and the queue needs no walk.
  if (waiting_.empty() && admits(mode)) {
    hold({ticket, mode});
    return {ticket};
  }
  waiting_.push_back({ticket, mode});
  return grant();
}

std::vector<lease_ticket> lease_queue::release(lease_ticket ticket) {
  if (auto held = holding_.find(ticket); held != holding_.end()) {
    if (held->second == lease_mode::shared)
      --counted_;
    held_exclusively_ = false;
    holding_.erase(held);
  } else {
    std::erase_if(waiting_, [=](const waiting_user& user) { return user.ticket == ticket; });
  }
  return waiting_.empty() ? std::vector<lease_ticket>{} : grant();
}

bool lease_queue::admits(lease_mode mode) const {
  if (held_exclusively_)
    return false;
  switch (mode) {
    case lease_mode::shared:
      return counted_ < limits_.max_shared;
    case lease_mode::uncounted:
      return true;
    case lease_mode::exclusive:
      return holding_.empty();
  }
  return false;
}

void lease_queue::hold(const waiting_user& user) {
  holding_.emplace(user.ticket, user.mode);
  counted_ += user.mode == lease_mode::shared;
  held_exclusively_ = user.mode == lease_mode::exclusive;
}

std::vector<lease_ticket> lease_queue::grant() {
  std::vector<lease_ticket> granted;
  bool command_waits = false; // uncounted users pass commands that wait for the cap, nobody passes an exclusive
  for (auto user = waiting_.begin(); user != waiting_.end();) {
    bool passes = user->mode != lease_mode::shared || !command_waits;
    if (passes && admits(user->mode) && !(user->mode == lease_mode::exclusive && user != waiting_.begin())) {
      hold(*user);
      granted.push_back(user->ticket);
      user = waiting_.erase(user);
      continue;
    }
    if (user->mode == lease_mode::exclusive)
      break;
    command_waits |= user->mode == lease_mode::shared;
    ++user;
  }
  return granted;
}

} // namespace holt::actors::logic
