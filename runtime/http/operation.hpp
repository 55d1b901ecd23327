#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/front.hpp"
#include "runtime/http/exchange.hpp"

/// One use of an environment, asked for by one request: the bridge from the actors' callbacks to the handler's coroutine.
namespace holt::runtime::http {

/// Bytes of the incoming stream, or (`gap_to` > `offset`) bytes that will never come.
struct piece {
  std::uint64_t offset = 0;
  actors::shared_bytes bytes;
  bool is_stderr = false;
  std::uint64_t gap_to = 0;
  std::uint64_t end() const {
    return gap_to > offset ? gap_to : offset + bytes.bytes.size();
  }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes.bytes.data()), bytes.bytes.size()};
  }
};

/// What an operation's incoming stream left, when it is collected rather than passed on.
struct collected {
  std::string out, err;                    // the first bytes, up to the limit each
  std::uint64_t out_bytes = 0, err_bytes = 0; // all that came
  std::vector<std::pair<std::uint64_t, std::uint64_t>> gaps;
};

struct operation_plan {
  // Declared, so that it is no aggregate: g++ 12 frees one that is made inside a co_await twice.
  operation_plan() = default;

  enum class intake : std::uint8_t { none, collect, queue };
  intake in = intake::none;
  std::string in_name = "output";
  std::uint64_t window = 1024 * 1024; // how far the agent may be ahead of the reader
  std::uint64_t collect_limit = 1024 * 1024;
  std::string out_name; // an outgoing stream, if any
  std::optional<std::string> input; // sent on it as a whole
};

/// Callbacks come on any thread; the rest is for the handler's executor. Lives as long as the handler or the actors hold it.
class operation final : public actors::operation_observer,
                        public actors::stream_consumer,
                        public std::enable_shared_from_this<operation> {
public:
  /// Asks the front. Answers of a held answer never block the connection: wait() for changes.
  static std::shared_ptr<operation> start(exchange& x, actors::use_request request, operation_plan plan);

  /// Until something changed, or `until`.
  task<> wait(clock::time_point until = clock::time_point::max());

  std::shared_ptr<wakeup> waker() const {
    return waker_;
  }
  const std::string& op_id() const {
    return op_id_;
  }
  bool accepted() const;
  protocols::agent::op_accepted acceptance() const;
  /// The use was answered; for a result, all its bytes came too, or never will.
  bool complete() const;
  /// REQUIRES: complete().
  const actors::use_result& result() const {
    return *result_;
  }
  /// REQUIRES: complete(). Bytes that should have come and did not, behind the last one that came.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> lost() const;

  /// Of intake::queue. Appends what came, in order.
  void take(std::vector<piece>& into);
  /// Everything before this position was passed on.
  void consumed(std::uint64_t position);
  /// Of intake::collect, after complete().
  http::collected& collection() {
    return collected_;
  }

  /// On the outgoing stream, when accepted. false: it is closed.
  task<bool> send(actors::shared_bytes bytes, bool last);

  /// The client left: the operation goes on without it (spec 43).
  void detach();
  void cancel();

  // -- any thread: of the actors --
  void on_accepted(std::shared_ptr<actors::agent_channel> channel, std::vector<std::uint32_t> streams,
                   const protocols::agent::op_accepted& accepted) override;
  void on_data(std::uint64_t offset, actors::shared_bytes bytes, bool is_stderr, bool last) override;
  void on_gap(std::uint64_t from, std::uint64_t to) override;
  void on_closed() override;

  operation(actors::front& front, const executor& home, operation_plan plan);

private:
  void on_reply(actors::use_result result);
  bool complete_locked() const;
  void collect(std::string_view bytes, bool is_stderr);
  /// Grants more when half of the window is used up.
  void grant_locked(std::unique_lock<std::mutex>& guard);

  actors::front& front_;
  operation_plan plan_;
  std::shared_ptr<wakeup> waker_;
  std::string environment_id_;
  std::string op_id_;

  mutable std::mutex mutex_;
  std::shared_ptr<actors::agent_channel> channel_;
  std::uint32_t in_stream_ = 0, out_stream_ = 0;
  std::optional<protocols::agent::op_accepted> accepted_;
  std::optional<actors::use_result> result_;
  clock::time_point answered_at_{};
  std::deque<piece> queue_;
  http::collected collected_;
  std::uint64_t received_ = 0, consumed_ = 0, granted_ = 0;
  bool closed_ = false, detached_ = false;
};

/// What every use of this request begins with: org and environment. nullopt: refused, and answered.
std::optional<actors::use_request> use_of(exchange& x);

void refuse_use(exchange& x, const actors::use_error& error);

/// Waits for a collected operation. False: the client went away, and the operation was left alone (or ended, if
/// `cancel_on_disconnect`).
task<bool> wait_complete(exchange& x, operation& running, bool cancel_on_disconnect = false);

/// Runs one operation with small arguments and an answer, and waits. nullptr: refused and answered, or nobody to answer.
task<std::shared_ptr<operation>> run(exchange& x, actors::use_request request, operation_plan plan = {});

/// A use's result as one of the agent's structs. nullopt: it isn't one, refused and answered.
template <class T>
std::optional<T> result_of(exchange& x, const actors::use_result& result) {
  auto read = protocols::json::read<T>(result.result ? *result.result : protocols::json::value{},
                                       protocols::json::unknown_fields::ignore);
  if (read)
    return std::move(*read);
  x.refuse("agent.failed", "The agent's answer is not what was asked for.");
  return std::nullopt;
}

} // namespace holt::runtime::http
