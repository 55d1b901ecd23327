#include "tests/actors/house.hpp"

#include <caf/actor_registry.hpp>
#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/answers.hpp"
#include "actors/environment.hpp"
#include "actors/environment_supervisor.hpp"
#include "actors/provider.hpp"
#include "actors/schedule.hpp"
#include "actors/store_bridge.hpp"
#include "actors/sweeper.hpp"

namespace holt::tests {

using namespace actors;

namespace {

blocking_pool_actor::behavior_type inline_pool(blocking_pool_actor::pointer, std::shared_ptr<fake_pool> pool) {
  return {
      [pool](run_atom, const blocking_job& job) {
        if (pool->holds)
          pool->held.push_back(job);
        else
          (*job.run)();
      },
      [](idle_atom, std::uint32_t) {},
  };
}

} // namespace

void fake_pool::release() {
  holds = false;
  for (auto& job : std::exchange(held, {}))
    (*job.run)();
}

house::house(std::uint64_t seed, std::function<void(node_settings&)> adjust, bool sole_writer) : random(seed) {
  shared = std::make_shared<context>();
  shared->settings.host_id = "host_1";
  shared->settings.boot_id = "boot_1";
  shared->settings.issuer = "holt";
  shared->settings.suspend_after = std::chrono::minutes{30};
  shared->sole_writer = sole_writer;
  if (adjust)
    adjust(shared->settings);
  shared->max_concurrent_commands = shared->settings.max_concurrent_commands;
  store->add_environment(env);
  build();
}

house::house(const house& dead) : random(dead.random) {
  shared = std::make_shared<context>();
  shared->settings = dead.shared->settings;
  shared->sole_writer = dead.shared->sole_writer;
  store->rows = dead.store->rows;
  store->seen = dead.store->seen;
  world->take_over(*dead.world);
  build();
}

house::~house() {
  stop();
  EXPECT_EQ(system_->registry().running(), 0u) << "an actor is left behind";
  EXPECT_EQ(world->broken, std::vector<std::string>{});
}

void house::build() {
  config_.set("scheduler.policy", caf::atom("testing"));
  system_ = std::make_unique<caf::actor_system>(config_);
  shared->store = store;
  shared->open_channel = world->channels();
  shared->log = [this](const char*, const char* event, std::string fields) { log.emplace_back(event, std::move(fields)); };
  shared->wall_clock = [this] { return wall_clock(); };
  shared->random = [this] { return random(); };
  world->before_call = [this](const std::string& call) { check_call(call); };
  schedule = system_->spawn(actors::schedule);
  store_ = system_->spawn(store_bridge, store);
  pool_ = system_->spawn(inline_pool, pool);
  peers_ = std::make_shared<peers>();
  peers_->shared = shared;
  peers_->store = store_;
  peers_->schedule = schedule;
  peers_->providers.emplace("bubblewrap", system_->spawn(provider, shared, std::string{"bubblewrap"}, world, pool_, schedule,
                                                         provider_limits{}));
  supervisor = system_->spawn(environment_supervisor, peers_, max_environments);
  sweeper = system_->spawn(actors::sweeper, peers_, supervisor);
  run();
}

/// Before each external step its target state and generation are written (spec 6).
void house::check_call(const std::string& call) {
  if (!checks_calls)
    return;
  static const std::map<std::string, std::set<std::string>> states = {
      {"create", {"creating"}},       {"resume", {"resuming"}},        {"suspend", {"suspending"}},
      {"destroy", {"destroying", "resetting"}}, {"destroy_files", {"resetting"}}, {"open", {"running"}},
      {"forget", {"destroyed"}},
  };
  for (auto& [id, record] : store->rows)
    if (record.instance && states.at(call).contains(record.instance->status))
      return;
  world->broken.push_back(call + " without its state in the row");
}

caf::scheduler::test_coordinator& house::scheduler() {
  return dynamic_cast<caf::scheduler::test_coordinator&>(system_->scheduler());
}

void house::run() {
  scheduler().run();
}

bool house::run_some(std::size_t messages) {
  scheduler().run(messages);
  return scheduler().has_job();
}

void house::advance(std::chrono::nanoseconds time, std::chrono::nanoseconds step) {
  run();
  for (; time.count() > 0; time -= step) {
    scheduler().advance_time(std::min(time, step));
    run();
  }
}

std::int64_t house::wall_clock() const {
  auto now = const_cast<house*>(this)->scheduler().clock().now().time_since_epoch();
  return 1'800'000'000'000'000 + std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

bool house::logged(const std::string& event) const {
  return std::any_of(log.begin(), log.end(), [&](auto& line) { return line.first == event; });
}

std::shared_ptr<asked> house::use(const std::string& op_id, const std::function<void(use_request&)>& adjust) {
  auto made = std::make_shared<asked>();
  auto& request = made->request;
  request.org_id = "org_a";
  request.environment_id = env;
  request.counted = true;
  request.op_id = op_id;
  request.operation = "process.start";
  request.arguments = protocols::json::object{{"command", "true"}};
  request.digest = "digest of " + op_id;
  request.streams.push_back({"output", made->output});
  request.observer = made->observer;
  if (adjust)
    adjust(request);
  auto reply = once_for(use_reply{[made](use_result result) {
    ++made->answers;
    made->result = std::move(result);
  }});
  caf::anon_send(supervisor, use_atom::value, use_call{std::make_shared<const use_request>(request), std::move(reply)});
  return made;
}

std::shared_ptr<changed> house::change(logic::purpose wanted, const std::function<void(lifecycle_call&)>& adjust) {
  auto made = std::make_shared<changed>();
  lifecycle_call call;
  call.environment_id = env;
  call.org_id = "org_a";
  call.wanted = wanted;
  if (adjust)
    adjust(call);
  call.reply = once_for([made](lifecycle_result result) {
    ++made->answers;
    made->result = std::move(result);
  });
  caf::anon_send(supervisor, change_atom::value, std::move(call));
  return made;
}

void house::cancel(const std::string& op_id) {
  caf::anon_send(supervisor, cancel_atom::value, std::string{env}, op_id);
}

void house::kill_environment() {
  using pointer = environment_supervisor_actor::stateful_pointer<environment_supervisor_state>;
  auto& directory = static_cast<pointer>(
                        caf::actor_cast<caf::abstract_actor*>(supervisor))
                        ->state.directory;
  if (auto found = directory.find(env); found != directory.end())
    caf::anon_send_exit(found->second.environment, caf::exit_reason::kill);
}

std::string house::describe() {
  using supervisor_pointer = environment_supervisor_actor::stateful_pointer<environment_supervisor_state>;
  auto& directory = static_cast<supervisor_pointer>(caf::actor_cast<caf::abstract_actor*>(supervisor))->state.directory;
  auto found = directory.find(env);
  if (found == directory.end())
    return " no actor";
  auto& state = static_cast<environment_state::pointer>(caf::actor_cast<caf::abstract_actor*>(found->second.environment))->state;
  std::string text = " session " + std::to_string(state.session.has_value()) + " open " + std::to_string(state.session_open);
  if (state.current)
    text += " work " + std::to_string(static_cast<int>(state.current->wish.wanted)) + " leased "
            + std::to_string(state.current->leased) + " checking " + std::to_string(state.current->checking);
  text += " loading " + std::to_string(state.loading) + " uses";
  for (auto& [ticket, use] : state.uses)
    text += " " + use.call.request->op_id + ":" + std::to_string(static_cast<int>(use.now_in)) + (use.leased ? "L" : "");
  return text;
}

environment_activity house::activity() {
  environment_activity found;
  caf::anon_send(supervisor, activity_atom::value,
                 activity_call{env, once_for([&](environment_activity activity) { found = std::move(activity); })});
  run();
  return found;
}

void house::sweep(const std::string& job) {
  caf::anon_send(sweeper, job_atom::value, job);
}

void house::stop() {
  if (std::exchange(stopped_, true))
    return;
  auto end = [&](auto& handle) {
    caf::anon_send_exit(handle, caf::exit_reason::user_shutdown);
    run();
    handle = nullptr;
  };
  end(sweeper);
  end(schedule);
  end(supervisor);
  for (auto& [name, provider] : peers_->providers)
    caf::anon_send_exit(provider, caf::exit_reason::user_shutdown);
  run();
  end(pool_);
  end(store_);
  peers_.reset();
  pool->held.clear();
  store->release();
  run();
}

} // namespace holt::tests
