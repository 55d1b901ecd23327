#pragma once

#include <atomic>
#include <map>
#include <memory>

#include "actors/context.hpp"
#include "actors/front.hpp"

namespace holt::actors {

/// The front over the actors: each call is one anonymous message that carries its way back. Any thread may call.
///
/// Bounds the uses in flight: mailboxes have no bound of their own (caf-notes).
class front_door final : public front {
public:
  front_door(std::shared_ptr<const context> shared, environment_supervisor_actor supervisor,
             std::map<std::string, provider_actor> providers, caf::actor_system& system,
             std::size_t max_uses = defaults::max_uses);
  ~front_door() override;

  void use(std::shared_ptr<const use_request> request, use_reply reply) override;
  void cancel(const std::string& environment_id, const std::string& op_id) override;
  void detach(const std::string& environment_id, const std::string& op_id, std::vector<std::uint32_t> streams) override;
  void lifecycle(lifecycle_request request, std::function<void(lifecycle_result)> reply) override;
  void activity(const std::string& environment_id, std::function<void(environment_activity)> reply) override;
  void providers(std::function<void(std::vector<provider_report>)> reply) override;

  /// From now on every call is answered with server.stopping.
  void shut();

  /// Calls that were let in and are not answered yet.
  std::size_t in_flight() const {
    return gate_->inside.load();
  }

  /// Lets go of the actors. REQUIRES: shut, and that no other thread is inside a call (it waits for those).
  void let_go();

private:
  struct gate {
    std::atomic<bool> open{true};
    std::atomic<std::size_t> inside{0};  // owed answers
    std::atomic<std::size_t> callers{0}; // threads between the door and the message
  };

  /// Whether the door is open; if so the caller is counted until it leaves.
  bool enter();
  void leave();

  std::shared_ptr<const context> shared_;
  environment_supervisor_actor supervisor_;
  std::map<std::string, provider_actor> providers_;
  caf::actor_system& system_;
  std::size_t max_uses_;
  std::shared_ptr<gate> gate_ = std::make_shared<gate>();
};

} // namespace holt::actors
