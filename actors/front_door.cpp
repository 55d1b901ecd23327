#include "actors/front_door.hpp"

#include <thread>

#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/answers.hpp"
#include "actors/error.hpp"

namespace holt::actors {

namespace {

logic::purpose purpose_of(lifecycle_action action) {
  switch (action) {
    case lifecycle_action::suspend:
      return logic::purpose::suspend;
    case lifecycle_action::resume:
      return logic::purpose::use;
    case lifecycle_action::reset:
      return logic::purpose::reset;
    case lifecycle_action::remove:
      return logic::purpose::remove;
  }
  return logic::purpose::settle;
}

/// Reports being collected from all providers.
struct collected_reports {
  std::vector<provider_report> items;
  std::size_t open = 0;
  std::shared_ptr<once<std::vector<provider_report>>> reply;

  void done() {
    if (--open == 0)
      reply->answer(std::move(items));
  }
};

} // namespace

front_door::front_door(std::shared_ptr<const context> shared, environment_supervisor_actor supervisor,
                       std::map<std::string, provider_actor> providers, caf::actor_system& system, std::size_t max_uses)
    : shared_(std::move(shared)), supervisor_(std::move(supervisor)), providers_(std::move(providers)), system_(system),
      max_uses_(max_uses) {
  // nop
}

front_door::~front_door() = default;

bool front_door::enter() {
  gate_->callers.fetch_add(1);
  if (gate_->open.load())
    return true;
  leave();
  return false;
}

void front_door::leave() {
  gate_->callers.fetch_sub(1);
}

void front_door::use(std::shared_ptr<const use_request> request, use_reply reply) {
  if (!enter())
    return reply(failed_use(ec::stopping));
  if (gate_->inside.fetch_add(1) >= max_uses_) {
    gate_->inside.fetch_sub(1);
    leave();
    return reply(failed_use(ec::busy, std::chrono::seconds{1}));
  }
  auto counted = [gate = gate_, reply = std::move(reply)](use_result result) {
    reply(std::move(result));
    gate->inside.fetch_sub(1);
  };
  caf::anon_send(supervisor_, use_atom::value, use_call{std::move(request), once_for(use_reply{std::move(counted)})});
  leave();
}

void front_door::cancel(const std::string& environment_id, const std::string& op_id) {
  if (!enter())
    return;
  caf::anon_send(supervisor_, cancel_atom::value, environment_id, op_id);
  leave();
}

void front_door::detach(const std::string& environment_id, const std::string& op_id, std::vector<std::uint32_t> streams) {
  if (!enter())
    return;
  caf::anon_send(supervisor_, detach_atom::value, environment_id, op_id, std::move(streams));
  leave();
}

void front_door::lifecycle(lifecycle_request request, std::function<void(lifecycle_result)> reply) {
  if (!enter())
    return reply({.error = answer_of(ec::stopping), .record = {}});
  lifecycle_call call;
  call.environment_id = std::move(request.environment_id);
  call.org_id = std::move(request.org_id);
  call.wanted = purpose_of(request.action);
  call.operation_id = std::move(request.operation_id);
  call.reply = once_for(std::move(reply));
  caf::anon_send(supervisor_, change_atom::value, std::move(call));
  leave();
}

void front_door::activity(const std::string& environment_id, std::function<void(environment_activity)> reply) {
  if (!enter())
    return reply({});
  caf::anon_send(supervisor_, activity_atom::value, activity_call{environment_id, once_for(std::move(reply))});
  leave();
}

void front_door::providers(std::function<void(std::vector<provider_report>)> reply) {
  if (!enter())
    return reply({});
  auto collected = std::make_shared<collected_reports>();
  collected->open = providers_.size() + 1;
  collected->reply = std::make_shared<once<std::vector<provider_report>>>(std::move(reply),
                                                                          [] { return std::vector<provider_report>{}; });
  // A short-lived actor collects: it is gone when all have answered.
  system_.spawn([collected, asked = providers_](caf::event_based_actor* self) {
    for (auto& [name, provider] : asked)
      self->request(provider, std::chrono::seconds{5}, report_atom::value)
          .then(
              [collected](reports& some) {
                for (auto& report : some.items)
                  collected->items.push_back(std::move(report));
                collected->done();
              },
              [collected, name = name](const caf::error&) {
                collected->items.push_back({name, false, {}, {"did not answer"}});
                collected->done();
              });
    collected->done();
  });
  leave();
}

void front_door::shut() {
  gate_->open.store(false);
}

void front_door::let_go() {
  while (gate_->callers.load() > 0)
    std::this_thread::yield();
  supervisor_ = nullptr;
  providers_.clear();
}

} // namespace holt::actors
