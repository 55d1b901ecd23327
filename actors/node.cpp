#include "actors/node.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <thread>

#include <caf/actor_cast.hpp>
#include <caf/actor_registry.hpp>
#include <caf/actor_system.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>

#include "actors/blocking_pool.hpp"
#include "actors/config.hpp"
#include "actors/context.hpp"
#include "actors/environment_supervisor.hpp"
#include "actors/error.hpp"
#include "actors/front_door.hpp"
#include "actors/log_fields.hpp"
#include "actors/provider.hpp"
#include "actors/schedule.hpp"
#include "actors/store_bridge.hpp"
#include "actors/sweeper.hpp"

namespace holt::actors {

namespace {

using clock = std::chrono::steady_clock;

constexpr std::chrono::minutes suspend_sweep_period{1};
constexpr std::chrono::hours destroy_sweep_period{1};
/// How long a stage may take once it was asked, before its actors are killed.
constexpr std::chrono::seconds stage_grace{1};

std::uint64_t random_bits() {
  // Tickets and tokens must not repeat after a restart: the generator is never seeded by time or process id (spec 9).
  thread_local std::mt19937_64 generator = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device(), device(), device(), device(), device()};
    return std::mt19937_64{seed};
  }();
  thread_local std::random_device device;
  return generator() ^ (static_cast<std::uint64_t>(device()) << 32 | device());
}

std::int64_t wall_clock_now() {
  using namespace std::chrono;
  return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

class actor_node final : public node {
public:
  actor_node(node_settings settings, node_parts parts) : config_(settings.threads), system_(std::in_place, config_) {
    auto shared = std::make_shared<context>();
    shared->max_concurrent_commands = settings.max_concurrent_commands;
    shared->settings = std::move(settings);
    shared->store = parts.store;
    shared->open_channel = std::move(parts.open_channel);
    shared->log = std::move(parts.log);
    shared->wall_clock = wall_clock_now;
    shared->random = random_bits;
    shared_ = shared;
    schedule_ = system_->spawn(schedule);
    store_ = system_->spawn(store_bridge, parts.store);
    pool_ = system_->spawn(blocking_pool, std::max(1u, shared->settings.blocking_threads));
    auto others = std::make_shared<peers>();
    others->shared = shared;
    others->store = store_;
    others->schedule = schedule_;
    provider_limits limits;
    // One thread stays for another provider.
    limits.max_running = std::max<std::size_t>(1, shared->settings.blocking_threads - (parts.providers.size() > 1));
    for (auto& [name, backend] : parts.providers)
      others->providers.emplace(name, system_->spawn(provider, shared_, name, backend, pool_, schedule_, limits));
    providers_ = others->providers;
    supervisor_ = system_->spawn(environment_supervisor, others, defaults::max_environments);
    sweeper_ = system_->spawn(sweeper, others, supervisor_);
    door_.emplace(shared_, supervisor_, providers_, *system_);
    begin_sweeps();
  }

  ~actor_node() override {
    stop(std::chrono::milliseconds{0}, [](const char*) {});
  }

  front& edge() override {
    return *door_;
  }

  void stop(std::chrono::milliseconds grace, const std::function<void(const char* stage)>& stage) override {
    if (std::exchange(stopped_, true))
      return;
    stage("actors: no new uses");
    door_->shut();
    stage("actors: running uses");
    auto until = clock::now() + grace;
    while (door_->in_flight() > 0 && clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds{2});
    door_->let_go();
    stage("actors: schedule");
    end(sweeper_, "sweeper");
    end(schedule_, "schedule");
    stage("actors: environments");
    end(supervisor_, "environment supervisor");
    stage("actors: providers");
    for (auto& [name, provider] : providers_)
      end(provider, name);
    providers_.clear();
    end(pool_, "blocking pool");
    end(store_, "store bridge");
    stage("actors: system");
    system_.reset();
    stage("actors: stopped");
  }

private:
  void begin_sweeps() {
    // What the last run left half done, at once; the rest by stored times (spec 29).
    for (auto job : {"settle", "remove"})
      caf::anon_send(sweeper_, job_atom::value, std::string{job});
    auto worker = caf::actor_cast<worker_actor>(sweeper_);
    caf::anon_send(schedule_, every_atom::value, std::string{"suspend"}, caf::timespan{suspend_sweep_period}, worker);
    for (auto job : {"destroy", "remove"})
      caf::anon_send(schedule_, every_atom::value, std::string{job}, caf::timespan{destroy_sweep_period}, worker);
  }

  /// Asks an actor to end, and kills it if it doesn't. Its children are its own affair: it waits for them.
  template <class Handle>
  void end(Handle& handle, const std::string& name) {
    caf::scoped_actor self{*system_};
    self->monitor(handle);
    self->send_exit(handle, caf::exit_reason::user_shutdown);
    for (bool killed : {false, true}) {
      bool down = false;
      self->receive([&](caf::down_msg&) { down = true; }, caf::after(stage_grace) >> [] {});
      if (down)
        break;
      shared_->log("error", "actor.survives", log_fields{}.add("actor", name).add("killed", killed ? "yes" : "no").text());
      if (!killed)
        self->send_exit(handle, caf::exit_reason::kill);
    }
    handle = nullptr;
  }

  system_config config_;
  std::optional<caf::actor_system> system_;
  std::shared_ptr<const context> shared_;
  schedule_actor schedule_;
  store_actor store_;
  blocking_pool_actor pool_;
  std::map<std::string, provider_actor> providers_;
  environment_supervisor_actor supervisor_;
  sweeper_actor sweeper_;
  std::optional<front_door> door_;
  bool stopped_ = false;
};

} // namespace

double fraction_of(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

std::unique_ptr<node> start_node(node_settings settings, node_parts parts) {
  return std::make_unique<actor_node>(std::move(settings), std::move(parts));
}

} // namespace holt::actors
