#include "runtime/http/operation.hpp"

#include <algorithm>

#include "protocols/ids.hpp"
#include "protocols/json_bytes.hpp"
#include "runtime/http/core.hpp"
#include "runtime/http/secrets.hpp"

namespace holt::runtime::http {

namespace {

/// A result's bytes come before it, or right behind on the same wire.
constexpr std::chrono::seconds tail_wait{30};
/// A client that closed its sending half may still read; one that is gone altogether looks the same.
constexpr std::chrono::seconds half_closed_wait{60};
/// A command that takes longer than this may have lost its client: begin to look.
constexpr std::chrono::seconds watch_after{1};

} // namespace

operation::operation(actors::front& front, const executor& home, operation_plan plan)
    : front_(front), plan_(std::move(plan)), waker_(std::make_shared<wakeup>(home)) {
}

std::shared_ptr<operation> operation::start(exchange& x, actors::use_request request, operation_plan plan) {
  auto made = std::make_shared<operation>(*x.core().parts.front, x.home(), std::move(plan));
  if (request.op_id.empty())
    request.op_id = random_id(protocols::id_kind::operation);
  made->op_id_ = request.op_id;
  made->environment_id_ = request.environment_id;
  made->received_ = made->consumed_ = request.attach_from;
  if (made->plan_.in != operation_plan::intake::none)
    request.streams.push_back({made->plan_.in_name, made});
  if (!made->plan_.out_name.empty())
    request.streams.push_back({made->plan_.out_name, nullptr});
  request.observer = made;
  x.set_waker(made->waker_);
  made->front_.use(std::make_shared<const actors::use_request>(std::move(request)),
                   [made](actors::use_result result) { made->on_reply(std::move(result)); });
  return made;
}

task<> operation::wait(clock::time_point until) {
  {
    std::lock_guard guard{mutex_};
    if (result_)
      until = std::min(until, answered_at_ + tail_wait);
  }
  co_await waker_->wait(until);
}

bool operation::accepted() const {
  std::lock_guard guard{mutex_};
  return accepted_.has_value();
}

protocols::agent::op_accepted operation::acceptance() const {
  std::lock_guard guard{mutex_};
  return accepted_.value_or(protocols::agent::op_accepted{});
}

bool operation::complete() const {
  std::lock_guard guard{mutex_};
  return complete_locked();
}

bool operation::complete_locked() const {
  if (!result_)
    return false;
  if (result_->error || plan_.in == operation_plan::intake::none || result_->finals.empty())
    return true;
  return received_ >= result_->finals.front() || closed_ || clock::now() >= answered_at_ + tail_wait;
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> operation::lost() const {
  std::lock_guard guard{mutex_};
  if (!result_ || result_->finals.empty() || plan_.in == operation_plan::intake::none ||
      received_ >= result_->finals.front())
    return std::nullopt;
  return std::pair{received_, result_->finals.front()};
}

void operation::take(std::vector<piece>& into) {
  std::lock_guard guard{mutex_};
  into.insert(into.end(), std::make_move_iterator(queue_.begin()), std::make_move_iterator(queue_.end()));
  queue_.clear();
}

void operation::consumed(std::uint64_t position) {
  std::unique_lock guard{mutex_};
  consumed_ = std::max(consumed_, position);
  grant_locked(guard);
}

void operation::grant_locked(std::unique_lock<std::mutex>& guard) {
  auto limit = consumed_ + plan_.window;
  if (!channel_ || result_ || in_stream_ == 0 || limit < granted_ + plan_.window / 2)
    return;
  granted_ = limit;
  auto channel = channel_;
  auto stream = in_stream_;
  auto taken = consumed_;
  guard.unlock();
  channel->grant(stream, limit, taken);
}

task<bool> operation::send(actors::shared_bytes bytes, bool last) {
  std::shared_ptr<actors::agent_channel> channel;
  std::uint32_t stream;
  {
    std::lock_guard guard{mutex_};
    channel = channel_;
    stream = out_stream_;
  }
  if (!channel || stream == 0)
    co_return false;
  auto start = [channel, stream, bytes, last](auto done) { channel->send_data(stream, bytes, last, std::move(done)); };
  co_return co_await answer_of<bool>(std::move(start));
}

void operation::detach() {
  std::vector<std::uint32_t> streams;
  {
    std::lock_guard guard{mutex_};
    if (result_ || detached_)
      return;
    detached_ = true;
    queue_.clear();
    if (!channel_)
      return; // on_accepted does it
    for (auto stream : {in_stream_, out_stream_})
      if (stream != 0)
        streams.push_back(stream);
    channel_.reset();
  }
  front_.detach(environment_id_, op_id_, std::move(streams));
}

void operation::cancel() {
  front_.cancel(environment_id_, op_id_);
}

void operation::on_accepted(std::shared_ptr<actors::agent_channel> channel, std::vector<std::uint32_t> streams,
                            const protocols::agent::op_accepted& accepted) {
  std::unique_lock guard{mutex_};
  if (detached_) {
    guard.unlock();
    front_.detach(environment_id_, op_id_, std::move(streams));
    return;
  }
  std::size_t next = 0;
  if (plan_.in != operation_plan::intake::none && next < streams.size())
    in_stream_ = streams[next++];
  if (!plan_.out_name.empty() && next < streams.size())
    out_stream_ = streams[next];
  bool first = !accepted_;
  accepted_ = accepted;
  channel_ = channel;
  closed_ = false;
  granted_ = 0;
  auto stream = out_stream_;
  auto in_stream = in_stream_;
  auto taken = consumed_;
  granted_ = taken + plan_.window;
  auto limit = granted_;
  guard.unlock();
  if (in_stream != 0)
    channel->grant(in_stream, limit, taken);
  // An operation that was known already has its input from whoever began it.
  if (plan_.input && stream != 0 && first && !accepted.attached) {
    auto owner = std::make_shared<std::string>(std::move(*plan_.input));
    auto bytes = std::as_bytes(std::span{owner->data(), owner->size()});
    channel->send_data(stream, {std::move(owner), bytes}, true, [](bool) {});
  }
  // Who collects waits for the end alone.
  if (plan_.in != operation_plan::intake::collect)
    waker_->notify();
}

void operation::collect(std::string_view bytes, bool is_stderr) {
  auto& text = is_stderr ? collected_.err : collected_.out;
  auto& total = is_stderr ? collected_.err_bytes : collected_.out_bytes;
  total += bytes.size();
  auto room = plan_.collect_limit - std::min<std::uint64_t>(plan_.collect_limit, text.size());
  text.append(bytes.substr(0, room));
}

void operation::on_data(std::uint64_t offset, actors::shared_bytes bytes, bool is_stderr, bool) {
  std::unique_lock guard{mutex_};
  if (detached_)
    return;
  auto end = offset + bytes.bytes.size();
  if (offset > received_) { // a hole that nobody told of
    if (plan_.in == operation_plan::intake::queue)
      queue_.push_back({received_, {}, false, offset});
    else
      collected_.gaps.emplace_back(received_, offset);
    received_ = offset;
  }
  if (end > received_) {
    bytes.bytes = bytes.bytes.subspan(received_ - offset); // what came before a resumed session came twice
    if (plan_.in == operation_plan::intake::queue) {
      queue_.push_back({received_, std::move(bytes), is_stderr, 0});
      received_ = end;
    } else {
      collect({reinterpret_cast<const char*>(bytes.bytes.data()), bytes.bytes.size()}, is_stderr);
      received_ = consumed_ = end;
    }
  }
  bool wake = plan_.in == operation_plan::intake::queue || complete_locked();
  if (plan_.in == operation_plan::intake::collect)
    grant_locked(guard);
  if (guard.owns_lock())
    guard.unlock();
  if (wake)
    waker_->notify();
}

void operation::on_gap(std::uint64_t from, std::uint64_t to) {
  {
    std::lock_guard guard{mutex_};
    if (detached_ || to <= received_)
      return;
    from = std::max(from, received_);
    received_ = to;
    if (plan_.in == operation_plan::intake::queue) {
      queue_.push_back({from, {}, false, to});
    } else {
      collected_.gaps.emplace_back(from, to);
      consumed_ = to;
    }
  }
  waker_->notify();
}

void operation::on_closed() {
  {
    std::lock_guard guard{mutex_};
    closed_ = true;
    channel_.reset(); // a resumed session comes with a new one
  }
  waker_->notify();
}

void operation::on_reply(actors::use_result result) {
  {
    std::lock_guard guard{mutex_};
    result_ = std::move(result);
    answered_at_ = clock::now();
    channel_.reset();
  }
  waker_->notify();
}

// -- what handlers share -----------------------------------------------------------------------------------------------

std::optional<actors::use_request> use_of(exchange& x) {
  actors::use_request request;
  request.org_id = x.who->org_id;
  request.environment_id = std::string{x.params[0]};
  if (!protocols::is_id(protocols::id_kind::environment, request.environment_id)) {
    x.refuse("environment.not_found", "There is no such environment.");
    return std::nullopt;
  }
  return request;
}

void refuse_use(exchange& x, const actors::use_error& error) {
  auto problem = protocols::make_problem(error.code, error.message, error.details);
  if (problem.code == "server.internal")
    problem.detail = "A fault of the server; its log has more under this request's id.";
  if (error.retry_after)
    x.add_header("Retry-After", std::to_string(std::max<std::int64_t>(1, (error.retry_after->count() + 999) / 1000)));
  else if (problem.status == 503 || problem.status == 429)
    x.add_header("Retry-After", "1");
  x.refuse(problem);
}

task<bool> wait_complete(exchange& x, operation& running, bool cancel_on_disconnect) {
  if (cancel_on_disconnect)
    x.watch_client();
  auto until = clock::now() + watch_after;
  std::optional<clock::time_point> left_at;
  while (!running.complete()) {
    co_await running.wait(until);
    if (running.complete())
      break;
    auto now = clock::now();
    if (x.client_left() && !left_at)
      left_at = now;
    bool gone = x.broken() || (left_at && (cancel_on_disconnect || now >= *left_at + half_closed_wait));
    if (gone) {
      if (cancel_on_disconnect)
        running.cancel();
      else
        running.detach();
      x.cut();
      co_return false;
    }
    if (now >= until) {
      x.watch_client();
      until = clock::time_point::max();
    }
    if (left_at)
      until = *left_at + half_closed_wait;
  }
  co_return true;
}

task<std::shared_ptr<operation>> run(exchange& x, actors::use_request request, operation_plan plan) {
  auto running = operation::start(x, std::move(request), std::move(plan));
  if (!co_await wait_complete(x, *running))
    co_return nullptr;
  if (running->result().error) {
    refuse_use(x, *running->result().error);
    co_return nullptr;
  }
  co_return running;
}

} // namespace holt::runtime::http
