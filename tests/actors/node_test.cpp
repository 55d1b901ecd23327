#include <atomic>
#include <condition_variable>
#include <mutex>

#include <gtest/gtest.h>

#include "actors/node.hpp"
#include "tests/actors/fakes.hpp"

/// The whole node on real threads, with fakes behind it.
namespace holt::actors {
namespace {

using namespace std::chrono_literals;
using tests::behaviour;
using tests::fake_store;
using tests::fake_world;

struct lodge {
  std::shared_ptr<fake_store> store = std::make_shared<fake_store>();
  std::shared_ptr<fake_world> world = std::make_shared<fake_world>();
  std::unique_ptr<node> running;

  lodge() {
    store->add_environment("env_1");
    node_settings settings;
    settings.threads = 2;
    settings.host_id = "host_1";
    settings.boot_id = "boot_1";
    node_parts parts;
    parts.store = store;
    parts.providers.emplace("bubblewrap", world);
    parts.open_channel = world->channels();
    parts.log = [](const char*, const char*, std::string) {};
    running = start_node(settings, std::move(parts));
  }

  std::shared_ptr<const use_request> request(const std::string& op_id) {
    auto made = std::make_shared<use_request>();
    made->org_id = "org_a";
    made->environment_id = "env_1";
    made->counted = true;
    made->op_id = op_id;
    made->operation = "process.start";
    made->digest = op_id;
    return made;
  }
};

/// Waits for answers given on other threads.
class answers_awaited {
public:
  use_reply reply() {
    return [this](use_result result) {
      std::lock_guard guard{mutex_};
      codes_.push_back(result.error ? result.error->code : "");
      changed_.notify_all();
    };
  }
  std::vector<std::string> wait_for(std::size_t count) {
    std::unique_lock guard{mutex_};
    changed_.wait_for(guard, 10s, [&] { return codes_.size() >= count; });
    return codes_;
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> codes_;
};

TEST(node, carries_a_use_from_the_door_to_the_agent_and_back) {
  lodge l;
  answers_awaited answers;
  l.running->edge().use(l.request("op_1"), answers.reply());
  EXPECT_EQ(answers.wait_for(1), std::vector<std::string>{""});
  l.running->stop(1s, [](const char*) {});
}

TEST(node, tells_its_stages_as_it_stops_and_answers_what_still_runs) {
  lodge l;
  l.world->behaves = [](auto&) { return behaviour::run; };
  answers_awaited answers;
  l.running->edge().use(l.request("op_1"), answers.reply());
  std::vector<std::string> stages;
  l.running->stop(50ms, [&](const char* stage) { stages.push_back(stage); });
  EXPECT_EQ(answers.wait_for(1), std::vector<std::string>{"server.stopping"});
  EXPECT_GE(stages.size(), 6u);
  EXPECT_EQ(stages.front(), "actors: no new uses");
  EXPECT_EQ(stages.back(), "actors: stopped");
}

TEST(node, after_the_stop_every_call_is_answered) {
  lodge l;
  l.running->stop(0s, [](const char*) {});
  answers_awaited answers;
  l.running->edge().use(l.request("op_1"), answers.reply());
  EXPECT_EQ(answers.wait_for(1), std::vector<std::string>{"server.stopping"});
  std::string code;
  l.running->edge().lifecycle({"org_a", "env_1", lifecycle_action::resume, ""},
                              [&](lifecycle_result result) { code = result.error->code; });
  EXPECT_EQ(code, "server.stopping");
  l.running->edge().cancel("env_1", "op_1");
  bool told = false;
  l.running->edge().activity("env_1", [&](environment_activity) { told = true; });
  EXPECT_TRUE(told);
}

TEST(node, a_running_use_is_waited_for) {
  lodge l;
  answers_awaited answers;
  for (int i = 0; i < 20; ++i)
    l.running->edge().use(l.request("op_" + std::to_string(i)), answers.reply());
  l.running->stop(5s, [](const char*) {});
  for (auto& code : answers.wait_for(20))
    EXPECT_EQ(code, "");
}

TEST(node, tells_what_its_providers_report) {
  lodge l;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<provider_report> reports;
  l.running->edge().providers([&](std::vector<provider_report> found) {
    std::lock_guard guard{mutex};
    reports = std::move(found);
    changed.notify_all();
  });
  std::unique_lock guard{mutex};
  changed.wait_for(guard, 10s, [&] { return !reports.empty(); });
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].name, "bubblewrap");
}

TEST(node, starts_and_stops_a_hundred_times_under_load) {
  for (int i = 0; i < 100; ++i) {
    lodge l;
    answers_awaited answers;
    for (int op = 0; op < 10; ++op)
      l.running->edge().use(l.request("op_" + std::to_string(op)), answers.reply());
    auto begun = std::chrono::steady_clock::now();
    l.running->stop(std::chrono::milliseconds{i % 3}, [](const char*) {});
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 5s);
    EXPECT_EQ(answers.wait_for(10).size(), 10u);
  }
}

} // namespace
} // namespace holt::actors
