#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

/// The few Asio words that runtime/http shares, and the bridges from callbacks of other threads to coroutines.
namespace holt::runtime::http {

namespace asio = boost::asio;
using clock = std::chrono::steady_clock;

/// A connection's own strand. A concrete type: any_io_executor costs a virtual call and an allocation a hop.
using executor = asio::strand<asio::io_context::executor_type>;
template <class T = void>
using task = asio::awaitable<T, executor>;
inline constexpr asio::use_awaitable_t<executor> use_task{};
using timer = asio::basic_waitable_timer<clock, asio::wait_traits<clock>, executor>;

/// Waits for the one answer of `start(reply)`, where `reply` is a copyable callable that any thread may call once. Goes on
/// on the coroutine's own executor.
template <class T, class Start>
task<T> answer_of(Start start) {
  auto home = co_await asio::this_coro::executor;
  // A named local, moved in: g++ 12 frees the captures of a lambda written inside the co_await twice.
  auto initiate = [home, start = std::move(start)](auto handler) mutable {
    auto shared = std::make_shared<decltype(handler)>(std::move(handler));
    start([home, shared](T answer) {
      asio::post(home, [shared, answer = std::move(answer)]() mutable { std::move (*shared)(std::move(answer)); });
    });
  };
  co_return co_await asio::async_initiate<const asio::use_awaitable_t<executor>, void(T)>(std::move(initiate), use_task);
}

/// Wakes one waiting coroutine. Any thread may notify; many notifications before the coroutine runs are one.
class wakeup : public std::enable_shared_from_this<wakeup> {
public:
  explicit wakeup(const executor& home) : timer_(home) {
  }

  void notify() {
    if (posted_.exchange(true, std::memory_order_acq_rel))
      return;
    asio::post(timer_.get_executor(), [self = shared_from_this()] {
      self->posted_.store(false, std::memory_order_release);
      self->signalled_ = true;
      self->timer_.cancel();
    });
  }

  /// Until notified since the last wait, or `until`. On the home executor, one waiter.
  task<> wait(clock::time_point until) {
    if (!signalled_) {
      timer_.expires_at(until);
      boost::system::error_code ignored;
      co_await timer_.async_wait(asio::redirect_error(use_task, ignored));
    }
    signalled_ = false;
  }

private:
  timer timer_;
  std::atomic<bool> posted_{false};
  bool signalled_ = false; // home executor only
};

} // namespace holt::runtime::http
