#include "tests/runtime/http/support/fake_front.hpp"

#include <algorithm>

#include "protocols/json_write.hpp"

namespace holt::tests::http {

namespace {
constexpr std::chrono::seconds patience{20};
}

void fake_channel::grant(std::uint32_t stream, std::uint64_t limit, std::uint64_t) {
  std::lock_guard guard{mutex_};
  limits_[stream] = std::max(limits_[stream], limit);
  changed_.notify_all();
}

void fake_channel::send_data(std::uint32_t stream, actors::shared_bytes bytes, bool last, std::function<void(bool)> done) {
  {
    std::lock_guard guard{mutex_};
    inputs_[stream].append(reinterpret_cast<const char*>(bytes.bytes.data()), bytes.bytes.size());
    ended_[stream] = last;
    changed_.notify_all();
  }
  done(true);
}

std::uint64_t fake_channel::granted(std::uint32_t stream) {
  std::lock_guard guard{mutex_};
  return limits_[stream];
}

std::string fake_channel::input(std::uint32_t stream) {
  std::lock_guard guard{mutex_};
  return inputs_[stream];
}

bool fake_channel::input_ended(std::uint32_t stream) {
  std::lock_guard guard{mutex_};
  return ended_[stream];
}

bool fake_channel::wait_granted(std::uint32_t stream, std::uint64_t limit) {
  std::unique_lock guard{mutex_};
  return changed_.wait_for(guard, patience, [&] { return limits_[stream] >= limit; });
}

bool fake_channel::wait_input_ended(std::uint32_t stream) {
  std::unique_lock guard{mutex_};
  return changed_.wait_for(guard, patience, [&] { return ended_[stream]; });
}

actors::stream_consumer* played_use::consumer() const {
  for (auto& one : request->streams)
    if (one.consumer)
      return one.consumer.get();
  return nullptr;
}

std::uint32_t played_use::in_stream() const {
  for (std::size_t i = 0; i < request->streams.size(); ++i)
    if (request->streams[i].consumer)
      return static_cast<std::uint32_t>(i + 1);
  return 0;
}

std::uint32_t played_use::out_stream() const {
  for (std::size_t i = 0; i < request->streams.size(); ++i)
    if (!request->streams[i].consumer)
      return static_cast<std::uint32_t>(i + 1);
  return 0;
}

void played_use::accept(bool attached) {
  std::vector<std::uint32_t> streams;
  for (std::size_t i = 0; i < request->streams.size(); ++i)
    streams.push_back(static_cast<std::uint32_t>(i + 1));
  position_ = request->attach_from;
  protocols::agent::op_accepted accepted;
  accepted.op_id = request->op_id;
  accepted.attached = attached;
  accepted.pid = 42;
  if (request->observer)
    request->observer->on_accepted(channel, streams, accepted);
}

void played_use::output(std::string_view bytes, bool is_stderr) {
  auto owner = std::make_shared<std::string>(bytes);
  auto view = std::as_bytes(std::span{owner->data(), owner->size()});
  consumer()->on_data(position_, {owner, view}, is_stderr, false);
  position_ += bytes.size();
}

bool played_use::output_with_credit(std::string_view bytes) {
  while (!bytes.empty()) {
    auto size = std::min<std::size_t>(bytes.size(), 64 * 1024);
    if (!channel->wait_granted(in_stream(), position_ + size))
      return false;
    output(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  return true;
}

void played_use::gap(std::uint64_t to) {
  consumer()->on_gap(position_, to);
  position_ = to;
}

void played_use::finish(protocols::json::value result, bool restarted) {
  actors::use_result out;
  out.result = std::move(result);
  out.restarted = restarted;
  if (consumer())
    out.finals.push_back(position_);
  reply_(std::move(out));
}

void played_use::finish_lost(protocols::json::value result, std::uint64_t final_position) {
  consumer()->on_closed();
  actors::use_result out;
  out.result = std::move(result);
  out.finals.push_back(final_position);
  reply_(std::move(out));
}

void played_use::fail(std::string code, std::string message, std::optional<std::chrono::milliseconds> retry_after) {
  actors::use_result out;
  out.error = actors::use_error{std::move(code), std::move(message), {}, retry_after};
  reply_(std::move(out));
}

void played_use::exit(int code, bool restarted) {
  protocols::agent::process_state state;
  state.op_id = request->op_id;
  state.state = "exited";
  state.exit_code = code;
  state.output_bytes = position_;
  state.duration_ms = 7;
  finish(protocols::json::to_value(state), restarted);
}

fake_front::fake_front() {
  thread_ = std::thread{[this] {
    std::unique_lock guard{mutex_};
    while (true) {
      changed_.wait(guard, [&] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty())
        return;
      auto job = std::move(jobs_.front());
      jobs_.pop_front();
      guard.unlock();
      job();
      guard.lock();
    }
  }};
}

fake_front::~fake_front() {
  {
    std::lock_guard guard{mutex_};
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void fake_front::post(std::function<void()> job) {
  std::lock_guard guard{mutex_};
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

void fake_front::play(const std::string& operation, script with) {
  std::lock_guard guard{mutex_};
  scripts_[operation] = std::move(with);
}

std::shared_ptr<played_use> fake_front::next() {
  std::unique_lock guard{mutex_};
  if (!changed_.wait_for(guard, patience, [&] { return !waiting_.empty(); }))
    throw std::runtime_error("no use came");
  auto out = std::move(waiting_.front());
  waiting_.pop_front();
  return out;
}

std::vector<std::string> fake_front::cancelled() {
  std::lock_guard guard{mutex_};
  return cancelled_;
}

std::vector<std::string> fake_front::detached() {
  std::lock_guard guard{mutex_};
  return detached_;
}

bool fake_front::wait_detached(const std::string& op_id) {
  std::unique_lock guard{mutex_};
  return changed_.wait_for(guard, patience, [&] { return std::count(detached_.begin(), detached_.end(), op_id) > 0; });
}

bool fake_front::wait_cancelled(const std::string& op_id) {
  std::unique_lock guard{mutex_};
  return changed_.wait_for(guard, patience, [&] { return std::count(cancelled_.begin(), cancelled_.end(), op_id) > 0; });
}

std::size_t fake_front::uses() {
  std::lock_guard guard{mutex_};
  return uses_;
}

void fake_front::use(std::shared_ptr<const actors::use_request> request, actors::use_reply reply) {
  auto name = request->kind == actors::use_kind::attach ? "attach" : request->operation;
  auto played = std::make_shared<played_use>(std::move(request), std::move(reply));
  std::lock_guard guard{mutex_};
  ++uses_;
  auto found = scripts_.find(name);
  if (found == scripts_.end())
    waiting_.push_back(std::move(played));
  else
    jobs_.push_back([script = found->second, played] { script(played); });
  changed_.notify_all();
}

void fake_front::cancel(const std::string&, const std::string& op_id) {
  std::lock_guard guard{mutex_};
  cancelled_.push_back(op_id);
  changed_.notify_all();
}

void fake_front::detach(const std::string&, const std::string& op_id, std::vector<std::uint32_t>) {
  std::lock_guard guard{mutex_};
  detached_.push_back(op_id);
  changed_.notify_all();
}

void fake_front::lifecycle(actors::lifecycle_request request, std::function<void(actors::lifecycle_result)> reply) {
  post([this, request, reply] {
    if (on_lifecycle)
      on_lifecycle(request, reply);
    else
      reply({});
  });
}

void fake_front::activity(const std::string&, std::function<void(actors::environment_activity)> reply) {
  post([reply] { reply({1, 0, {"conv_1"}, true}); });
}

void fake_front::providers(std::function<void(std::vector<actors::provider_report>)> reply) {
  post([reply] { reply({{"bubblewrap", true, {"seccomp"}, {"memory limits: no cgroup"}}}); });
}

} // namespace holt::tests::http
