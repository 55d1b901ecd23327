#include <gtest/gtest.h>

#include "tests/actors/house.hpp"

/// Whatever fails, in whatever order: each use is answered exactly once, no command is run twice, nothing is written without
/// the fence, and no provider's step is taken that the row doesn't announce (house checks that one).
namespace holt::actors {
namespace {

using namespace std::chrono_literals;
using logic::purpose;
using storage::store_errc;
using tests::asked;
using tests::behaviour;
using tests::changed;
using tests::house;

constexpr std::uint64_t seeds = 400;

class storm {
public:
  explicit storm(std::uint64_t seed) : seed_(seed), random_(seed * 7919 + 1) {
    house_ = std::make_unique<house>(seed, [](node_settings& settings) {
      settings.max_concurrent_commands = 2;
      settings.max_waiting = 6;
      settings.lease_wait = 5s;
      settings.passivate_after = 20s;
    }, seed % 3 != 0);
    brew();
  }

  void run() {
    for (int i = 0; i < 60; ++i) {
      act();
      if (chance(50))
        house_->run_some(random_() % 20);
      else
        house_->advance(std::chrono::milliseconds{random_() % 800}, 100ms);
      if (seed_ % 4 == 0 && i == 35)
        crash();
    }
    calm();
    check();
  }

private:
  bool chance(unsigned percent) {
    return random_() % 100 < percent;
  }

  std::string some_id() {
    return "op_" + std::to_string(last_ == 0 ? 0 : random_() % last_);
  }

  void brew() {
    auto faults = seed_ % 5; // from none to many
    house_->store->fails = [this, faults](auto& call) -> std::optional<store_errc> {
      if (!chance(static_cast<unsigned>(faults * 2)))
        return std::nullopt;
      house_->store->stores_though_unavailable = chance(50);
      return call == "write" && chance(30) ? store_errc::fenced : store_errc::unavailable;
    };
    house_->world->fails = [this, faults](auto&, auto&) -> std::optional<provider_errc> {
      if (!chance(static_cast<unsigned>(faults * 3)))
        return std::nullopt;
      constexpr provider_errc some[] = {provider_errc::unavailable, provider_errc::refused, provider_errc::failed};
      return some[random_() % 3];
    };
    house_->world->behaves = [this, faults](auto&) {
      if (!chance(static_cast<unsigned>(20 + faults * 10)))
        return behaviour::answer;
      return static_cast<behaviour>(random_() % 8);
    };
    // Each write stands on the generation before it.
    house_->store->after_write = [this](const storage::instance_row& row) {
      EXPECT_EQ(row.generation, generation_ + 1);
      generation_ = row.generation;
    };
  }

  void act() {
    auto what = random_() % 100;
    if (what < 55) {
      bool reads = chance(30);
      auto id = "op_" + std::to_string(last_++);
      uses_.push_back(house_->use(id, [&](use_request& request) {
        if (reads) {
          request.operation = "file.read";
          request.safe_to_repeat = true;
          request.counted = false;
          reads_.insert(id);
        }
        request.if_running = chance(10);
        request.releases_when_accepted = !reads && chance(20);
        if (chance(40))
          request.holder = chance(50) ? "conv_a" : "conv_b";
      }));
    } else if (what < 60 && last_ > 0) {
      auto id = some_id();
      if (!reads_.contains(id)) // the same id again is the same operation
        uses_.push_back(house_->use(id));
    } else if (what < 65 && last_ > 0) {
      uses_.push_back(house_->use(some_id(), [&](use_request& request) {
        request.kind = chance(50) ? use_kind::attach : use_kind::query;
        request.counted = false;
        request.safe_to_repeat = true;
      }));
    } else if (what < 70) {
      changes_.push_back(house_->change(purpose::suspend));
    } else if (what < 73) {
      changes_.push_back(house_->change(chance(50) ? purpose::destroy : purpose::reset));
    } else if (what < 76) {
      house_->sweep(chance(50) ? "settle" : "suspend");
    } else if (what < 80) {
      house_->world->vanish("env_1");
    } else if (what < 85) {
      house_->world->drop_connections("env_1");
    } else if (what < 90 && last_ > 0) {
      house_->world->complete(some_id());
    } else if (what < 93 && last_ > 0) {
      house_->cancel(some_id());
    } else if (what < 95) {
      house_->store->held_names = {chance(50) ? "load" : "seen"};
    } else if (what < 97) {
      house_->store->release();
    } else if (what < 98) {
      house_->kill_environment();
    } else {
      mute(!house_->world->mute && chance(30));
    }
  }

  /// Agents that said nothing for a while have lost their connections: the channel's heartbeat sees to that.
  void mute(bool on) {
    if (std::exchange(house_->world->mute, on) && !on)
      house_->world->drop_connections("env_1");
  }

  void crash() {
    auto next = std::make_unique<house>(*house_);
    uses_.clear(); // nobody waits for the dead process's answers
    changes_.clear();
    auto dead = std::exchange(house_, std::move(next));
    dead->store->after_write = {};
    dead->store->fails = {};
    dead->world->fails = {};
    dead->world->behaves = {};
    dead.reset();
    brew();
  }

  void calm() {
    house_->store->fails = {};
    house_->store->release();
    house_->world->fails = {};
    mute(false);
    house_->world->behaves = {};
    for (int i = 0; i < 40; ++i) {
      house_->advance(5s, 500ms);
      for (std::size_t op = 0; op < last_; ++op)
        house_->world->complete("op_" + std::to_string(op));
    }
    auto last = house_->use("op_at_last");
    house_->advance(2min, 1s);
    bool usable = last->code() == "" || last->code() == "environment.files_lost";
    EXPECT_TRUE(usable) << last->code();
  }

  void check() {
    for (auto& use : uses_) {
      EXPECT_EQ(use->answers, 1) << use->request.op_id << " kind " << static_cast<int>(use->request.kind) << " "
                                 << use->request.operation << ", accepted " << use->observer->accepted << ", begun "
                                 << house_->world->begun.count(use->request.op_id) << ", has " << use->output->bytes << house_->describe();
      EXPECT_FALSE(use->output->out_of_order) << use->request.op_id;
      if (use->answers == 1 && !use->result.error && use->request.kind == use_kind::start) {
        EXPECT_EQ(use->output->bytes.substr(0, 6), "hello\n") << use->request.op_id;
      }
    }
    for (auto& change : changes_)
      EXPECT_EQ(change->answers, 1);
    for (auto& [id, times] : house_->world->begun) {
      if (!reads_.contains(id)) {
        EXPECT_EQ(times, 1) << id << " was run again";
      }
    }
  }

  std::uint64_t seed_;
  std::mt19937_64 random_;
  std::unique_ptr<house> house_;
  std::vector<std::shared_ptr<asked>> uses_;
  std::vector<std::shared_ptr<changed>> changes_;
  std::set<std::string> reads_;
  std::size_t last_ = 0;
  std::uint64_t generation_ = 0;
};

TEST(environment_at_random, every_use_is_answered_once_and_no_command_is_run_twice) {
  // One seed alone: HOLT_STORM=157. More of them: HOLT_STORMS=20000.
  auto* only = std::getenv("HOLT_STORM");
  auto* many = std::getenv("HOLT_STORMS");
  auto last = only ? std::stoull(only) : many ? std::stoull(many) : seeds;
  for (std::uint64_t seed = only ? last : 1; seed <= last; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    storm{seed}.run();
    if (HasFailure())
      return;
  }
}

} // namespace
} // namespace holt::actors
