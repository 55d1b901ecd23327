#include "actors/store_bridge.hpp"

#include <optional>
#include <type_traits>

#include <caf/actor_cast.hpp>
#include <caf/send.hpp>
#include <caf/typed_response_promise.hpp>

#include "actors/error.hpp"
#include "actors/messages.hpp"

namespace holt::actors {

namespace {

static_assert(!std::is_aggregate_v<store_bridge_state>);

using pointer = store_actor::stateful_pointer<store_bridge_state>;

caf::error error_of(const storage::store_error& error) {
  switch (error.code) {
    case storage::store_errc::not_found:
      return error_with(ec::not_found, error.detail);
    case storage::store_errc::fenced:
      return error_with(ec::lease_lost, error.detail);
    case storage::store_errc::unavailable:
      return error_with(ec::store_unavailable, error.detail);
    case storage::store_errc::conflict:
    case storage::store_errc::invalid:
    case storage::store_errc::internal:
      break;
  }
  return error_with(ec::internal, error.detail);
}

/// Calls the store, and answers the present request once it has answered. `convert` makes the message of the row.
template <class Answer, class Row, class Call, class Convert>
caf::result<Answer> ask(pointer self, Call&& call, Convert convert) {
  auto promise = self->template make_response_promise<Answer>();
  auto slot = std::make_shared<std::optional<storage::store_result<Row>>>();
  auto number = ++self->state.last;
  self->state.open.emplace(number, [promise, slot, convert](bool deliver) mutable {
    if (!deliver || !*slot)
      promise.deliver(error_with(ec::stopping, ""));
    else if (**slot)
      promise.deliver(convert(std::move(***slot)));
    else
      promise.deliver(error_of((*slot)->error()));
  });
  call(*self->state.store, [weak = caf::actor_cast<caf::actor_addr>(self), slot, number](storage::store_result<Row> row) {
    slot->emplace(std::move(row));
    if (auto bridge = caf::actor_cast<store_actor>(weak))
      caf::anon_send(bridge, outcome_atom::value, number);
  });
  return promise;
}

void settle(pointer self, std::uint64_t number) {
  if (auto open = self->state.open.extract(number))
    open.mapped()(true);
}

} // namespace

store_actor::behavior_type store_bridge(pointer self, std::shared_ptr<storage::store> store) {
  self->state.store = std::move(store);
  self->set_exit_handler([self](caf::exit_msg& msg) {
    for (auto& [number, finish] : self->state.open)
      finish(false);
    self->state.open.clear();
    self->quit(msg.reason);
  });
  return {
      [self](load_atom, std::string& id) {
        using storage::environment_record;
        return ask<loaded_environment, environment_record>(
            self, [&](auto& store, auto reply) { store.load_environment(std::move(id), std::move(reply)); },
            [](environment_record record) {
              return loaded_environment{std::make_shared<const environment_record>(std::move(record))};
            });
      },
      [self](write_atom, instance_write& write) {
        using storage::instance_row;
        return ask<instance_write, instance_row>(
            self,
            [&](auto& store, auto reply) {
              store.write_instance(std::move(write.row), write.expected_generation, std::move(reply));
            },
            [](instance_row row) {
              auto generation = row.generation;
              return instance_write{std::move(row), generation};
            });
      },
      [self](epoch_atom, std::string& id) {
        return ask<std::uint64_t, std::uint64_t>(
            self, [&](auto& store, auto reply) { store.next_epoch(std::move(id), std::move(reply)); },
            [](std::uint64_t epoch) { return epoch; });
      },
      [self](seen_atom, seen_swap& swap) {
        return ask<std::string, std::string>(
            self,
            [&](auto& store, auto reply) {
              store.swap_seen(std::move(swap.environment_id), std::move(swap.holder), std::move(swap.identity),
                              swap.expires_at, std::move(reply));
            },
            [](std::string former) { return former; });
      },
      [self](purge_atom, std::string& id, std::uint64_t generation) {
        return ask<bool, bool>(
            self, [&](auto& store, auto reply) { store.purge_environment(std::move(id), generation, std::move(reply)); },
            [](bool done) { return done; });
      },
      [self](finish_atom, finished_operation& end) {
        return ask<bool, bool>(
            self,
            [&](auto& store, auto reply) {
              store.finish_operation(std::move(end.id), std::move(end.status), std::move(end.error), end.now,
                                     std::move(reply));
            },
            [](bool done) { return done; });
      },
      [self](list_atom, instance_query& query) {
        using rows = storage::page<storage::environment_record>;
        return ask<instance_page, rows>(
            self,
            [&](auto& store, auto reply) {
              store.list_instances(std::move(query.statuses), query.deleted_only, std::move(query.cursor), query.limit,
                                   std::move(reply));
            },
            [](rows page) { return instance_page{std::make_shared<const rows>(std::move(page))}; });
      },
      [self](origin_atom) {
        return ask<std::string, std::string>(
            self, [](auto& store, auto reply) { store.incarnation(std::move(reply)); },
            [](std::string incarnation) { return incarnation; });
      },
      [self](outcome_atom, std::uint64_t number) { settle(self, number); },
  };
}

} // namespace holt::actors
