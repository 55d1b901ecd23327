#include "agent/loop.hpp"

#include <gtest/gtest.h>

namespace holt::agent {
namespace {

using namespace std::chrono_literals;

TEST(running_clock, counts_time_that_passes_as_expected) {
  running_clock clock;
  EXPECT_EQ(clock.look(100s, 0s), 0s);
  EXPECT_EQ(clock.look(101s, 1s), 1s);
  EXPECT_EQ(clock.look(101s + 500ms, 1s), 1500ms);
}

TEST(running_clock, leaves_out_a_freeze) {
  running_clock clock;
  clock.look(100s, 0s);
  // Asked to be woken in a second, woken after an hour.
  EXPECT_EQ(clock.look(3700s, 1s), 1s);
  EXPECT_EQ(clock.look(3701s, 1s), 2s);
}

TEST(running_clock, a_little_lateness_is_no_freeze) {
  running_clock clock;
  clock.look(100s, 0s);
  EXPECT_EQ(clock.look(101s + 600ms, 1s), 1600ms);
}

TEST(loop, timers_run_in_order_and_can_be_cancelled) {
  loop loop;
  std::string ran;
  loop.after(2ms, [&] {
    ran += 'b';
    loop.stop();
  });
  loop.after(1ms, [&] { ran += 'a'; });
  auto never = loop.after(1ms, [&] { ran += 'x'; });
  loop.cancel(never);
  EXPECT_EQ(never, loop::no_timer);
  loop.run();
  EXPECT_EQ(ran, "ab");
}

TEST(loop, an_enormous_delay_is_no_fault) {
  loop loop;
  auto timer = loop.after(std::chrono::nanoseconds::max(), [] {});
  EXPECT_GT(timer.first, 0s);
  loop.soon([&] { loop.stop(); });
  loop.run();
}

class counting final : public loop::watcher {
public:
  explicit counting(std::function<void()> what) : what_(std::move(what)) {
  }
  void on_ready(std::uint32_t) override {
    what_();
  }

private:
  std::function<void()> what_;
};

TEST(loop, a_watch_removed_by_another_handler_of_the_same_turn_is_not_called) {
  loop loop;
  int pipes[2][2];
  ASSERT_EQ(::pipe(pipes[0]), 0);
  ASSERT_EQ(::pipe(pipes[1]), 0);
  int calls = 0;
  counting first{[&] {
    ++calls;
    loop.remove(pipes[0][0]);
    loop.remove(pipes[1][0]);
    loop.stop();
  }};
  loop.add(pipes[0][0], 1, first);
  loop.add(pipes[1][0], 1, first);
  EXPECT_EQ(::write(pipes[0][1], "x", 1), 1);
  EXPECT_EQ(::write(pipes[1][1], "x", 1), 1);
  loop.run();
  EXPECT_EQ(calls, 1);
  for (auto& pipe : pipes)
    for (int fd : pipe)
      ::close(fd);
}

} // namespace
} // namespace holt::agent
