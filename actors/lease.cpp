#include "actors/lease.hpp"

#include <type_traits>

#include <caf/actor_cast.hpp>

#include "actors/error.hpp"

namespace holt::actors {

namespace {

static_assert(!std::is_aggregate_v<lease_state>);

using pointer = lease_actor::stateful_pointer<lease_state>;

void tell(pointer self, const caf::actor_addr& user, lease_ticket ticket, ec refused) {
  auto handle = caf::actor_cast<lease_user_actor>(user);
  if (!handle)
    return;
  if (refused == ec::none)
    self->send(handle, granted_atom::value, ticket);
  else
    self->send(handle, refused_atom::value, ticket, static_cast<std::uint8_t>(refused));
}

void grant(pointer self, const std::vector<lease_ticket>& granted) {
  for (auto ticket : granted) {
    auto& user = self->state.users.at(ticket);
    user.waits = false;
    tell(self, user.address, ticket, ec::none);
  }
}

void release(pointer self, lease_ticket ticket) {
  auto user = self->state.users.extract(ticket);
  if (user.empty())
    return;
  if (user.mapped().waits)
    tell(self, user.mapped().address, ticket, ec::cancelled);
  grant(self, self->state.queue.release(ticket));
}

void release_all_of(pointer self, const caf::actor_addr& dead) {
  self->state.watched.erase(dead);
  std::vector<lease_ticket> tickets;
  for (auto& [ticket, user] : self->state.users)
    if (user.address == dead)
      tickets.push_back(ticket);
  for (auto ticket : tickets)
    release(self, ticket);
}

void stop(pointer self, const caf::error& reason) {
  for (auto& [ticket, user] : self->state.users)
    if (user.waits)
      tell(self, user.address, ticket, ec::lease_lost);
  self->state.users.clear();
  self->quit(reason);
}

void acquire(pointer self, lease_ticket ticket, lease_mode mode, const lease_limits& limits) {
  auto& state = self->state;
  auto asker = caf::actor_cast<caf::actor_addr>(self->current_sender());
  if (!asker)
    return; // nobody to tell
  if (state.queue.knows(ticket))
    return tell(self, asker, ticket, ec::conflict);
  if (state.queue.refuses(mode, limits))
    return tell(self, asker, ticket, ec::busy);
  if (state.watched.emplace(asker, true).second)
    self->monitor(asker);
  state.users.emplace(ticket, lease_state::user{asker, true});
  grant(self, state.queue.acquire(ticket, mode, limits));
}

} // namespace

lease_actor::behavior_type lease(pointer self, std::shared_ptr<const context> shared) {
  self->state.owner_token = logic::make_owner_token(shared->random);
  self->set_down_handler([self](caf::down_msg& msg) { release_all_of(self, msg.source); });
  self->set_exit_handler([self](caf::exit_msg& msg) { stop(self, msg.reason); });
  return {
      [self](acquire_atom, lease_ticket ticket, lease_mode mode, std::uint32_t max_shared, std::uint32_t max_waiting) {
        acquire(self, ticket, mode, {max_shared, max_waiting});
      },
      [self](release_atom, lease_ticket ticket) { release(self, ticket); },
  };
}

} // namespace holt::actors
