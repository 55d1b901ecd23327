#include "agent/loop.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>

#include <sys/epoll.h>
#include <sys/eventfd.h>

namespace holt::agent {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

namespace {

nanoseconds monotonic() {
  timespec ts;
  ::clock_gettime(CLOCK_MONOTONIC, &ts);
  return seconds{ts.tv_sec} + nanoseconds{ts.tv_nsec};
}

/// What handling the events of one turn may take. A freeze meets a busy agent in the middle of that; where it was only a
/// slow turn (a walk of /proc in a fork storm), deadlines come that much later.
constexpr nanoseconds longest_handling = milliseconds{300};

} // namespace

running_time running_clock::look(nanoseconds monotonic, nanoseconds asked) {
  if (last_ < nanoseconds{0})
    last_ = monotonic;
  auto passed = monotonic - last_;
  last_ = monotonic;
  if (passed > asked + tolerance)
    passed = asked;
  now_ += passed;
  return now_;
}

loop::loop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)), event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = ~0ull;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, event_.get(), &event);
  update_clock(nanoseconds{0});
}

bool loop::add(int fd, std::uint32_t events, watcher& who) {
  auto index = static_cast<std::size_t>(fd);
  if (slots_.size() <= index)
    slots_.resize(index + 1);
  auto& slot = slots_[index];
  epoll_event event{};
  event.events = events;
  event.data.u64 = (static_cast<std::uint64_t>(++slot.generation) << 32) | index;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return false;
  slot.who = &who;
  return true;
}

void loop::modify(int fd, std::uint32_t events) {
  auto& slot = slots_.at(static_cast<std::size_t>(fd));
  epoll_event event{};
  event.events = events;
  event.data.u64 = (static_cast<std::uint64_t>(slot.generation) << 32) | static_cast<std::uint64_t>(fd);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void loop::remove(int fd) {
  auto index = static_cast<std::size_t>(fd);
  if (fd < 0 || index >= slots_.size() || slots_[index].who == nullptr)
    return;
  slots_[index].who = nullptr;
  ++slots_[index].generation;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

loop::timer_id loop::after(nanoseconds delay, std::function<void()> what) {
  // A caller's timeout may be anything; a year stands for ever.
  timer_id id{now_ + std::clamp<nanoseconds>(delay, nanoseconds{0}, std::chrono::hours{24 * 365}), next_timer_++};
  timers_.emplace(id, std::move(what));
  return id;
}

void loop::cancel(timer_id& id) {
  timers_.erase(id);
  id = no_timer;
}

void loop::soon(std::function<void()> what) {
  soon_.push_back(std::move(what));
}

void loop::wake() {
  std::uint64_t one = 1;
  [[maybe_unused]] auto written = ::write(event_.get(), &one, sizeof one);
}

void loop::update_clock(nanoseconds asked) {
  now_ = clock_.look(monotonic(), asked) + skipped_;
}

int loop::wait_ms() const {
  if (!soon_.empty())
    return 0;
  if (timers_.empty())
    return -1;
  auto left = std::max(nanoseconds{0}, timers_.begin()->first.first - now_);
  left = std::min<nanoseconds>(left, precise_ > 0 ? seconds{1} : seconds{60});
  // Rounded up: a timer that is asked for too early only makes the loop spin.
  return static_cast<int>((left + nanoseconds{999'999}) / milliseconds{1});
}

void loop::run() {
  while (!stopped_)
    turn();
}

void loop::turn() {
  epoll_event events[32];
  update_clock(longest_handling);
  auto wait = wait_ms();
  auto count = ::epoll_wait(epoll_.get(), events, 32, wait);
  update_clock(wait < 0 ? nanoseconds::max() / 4 : milliseconds{wait});
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == ~0ull) {
      std::uint64_t drained;
      [[maybe_unused]] auto got = ::read(event_.get(), &drained, sizeof drained);
      if (woken_)
        woken_();
      continue;
    }
    auto index = events[i].data.u64 & 0xffffffffu;
    auto generation = static_cast<std::uint32_t>(events[i].data.u64 >> 32);
    // Removed, or its descriptor was used again, by a handler of this turn.
    if (index < slots_.size() && slots_[index].who != nullptr && slots_[index].generation == generation)
      slots_[index].who->on_ready(events[i].events);
  }
  while (!timers_.empty() && timers_.begin()->first.first <= now_) {
    auto due = timers_.extract(timers_.begin());
    due.mapped()();
  }
  auto ready = std::exchange(soon_, {});
  for (auto& what : ready)
    what();
}

} // namespace holt::agent
