#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "actors/front.hpp"

/// The actors' door, played by a test. Every call is recorded; answers come from a thread of its own, as the real ones do.
namespace holt::tests::http {

/// The wire of a use: records credit and input.
class fake_channel : public actors::agent_channel {
public:
  void send_control(std::string) override {
  }
  std::uint32_t open_stream(std::shared_ptr<actors::stream_consumer>) override {
    return 0;
  }
  void close_stream(std::uint32_t) override {
  }
  void grant(std::uint32_t stream, std::uint64_t limit, std::uint64_t consumed) override;
  void send_data(std::uint32_t stream, actors::shared_bytes bytes, bool last, std::function<void(bool)> done) override;
  void close(std::string) override {
  }

  std::uint64_t granted(std::uint32_t stream);
  std::string input(std::uint32_t stream);
  bool input_ended(std::uint32_t stream);
  /// Waits until the peer may send up to `limit`. False: not in time.
  bool wait_granted(std::uint32_t stream, std::uint64_t limit);
  bool wait_input_ended(std::uint32_t stream);

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint32_t, std::uint64_t> limits_;
  std::map<std::uint32_t, std::string> inputs_;
  std::map<std::uint32_t, bool> ended_;
};

/// One use as the front got it, with the means to play its other side.
class played_use {
public:
  played_use(std::shared_ptr<const actors::use_request> request, actors::use_reply reply)
      : request(std::move(request)), reply_(std::move(reply)) {
  }
  std::shared_ptr<const actors::use_request> request;
  std::shared_ptr<fake_channel> channel = std::make_shared<fake_channel>();

  void accept(bool attached = false);
  /// On the first stream that has a consumer.
  void output(std::string_view bytes, bool is_stderr = false);
  void gap(std::uint64_t to);
  /// All of it, as credit allows. False: none came in time.
  bool output_with_credit(std::string_view bytes);
  void finish(protocols::json::value result, bool restarted = false);
  /// With a final position that was not reached: the stream broke off.
  void finish_lost(protocols::json::value result, std::uint64_t final_position);
  void fail(std::string code, std::string message, std::optional<std::chrono::milliseconds> retry_after = {});
  void exit(int code, bool restarted = false);
  std::uint32_t in_stream() const;
  std::uint32_t out_stream() const;
  std::uint64_t position() const {
    return position_;
  }

private:
  actors::stream_consumer* consumer() const;
  actors::use_reply reply_;
  std::uint64_t position_ = 0;
  bool has_consumer_ = false;
};

class fake_front : public actors::front {
public:
  fake_front();
  ~fake_front() override;

  using script = std::function<void(std::shared_ptr<played_use>)>;
  /// For uses of this operation ("process.start"; "attach" for attaching). Runs on the fake's thread.
  void play(const std::string& operation, script with);
  /// Waits for the next use that no script took.
  std::shared_ptr<played_use> next();

  std::vector<std::string> cancelled();
  std::vector<std::string> detached();
  bool wait_detached(const std::string& op_id);
  bool wait_cancelled(const std::string& op_id);
  std::size_t uses();
  std::function<void(actors::lifecycle_request, std::function<void(actors::lifecycle_result)>)> on_lifecycle;

  void use(std::shared_ptr<const actors::use_request> request, actors::use_reply reply) override;
  void cancel(const std::string& environment_id, const std::string& op_id) override;
  void detach(const std::string& environment_id, const std::string& op_id, std::vector<std::uint32_t> streams) override;
  void lifecycle(actors::lifecycle_request request, std::function<void(actors::lifecycle_result)> reply) override;
  void activity(const std::string& environment_id, std::function<void(actors::environment_activity)> reply) override;
  void providers(std::function<void(std::vector<actors::provider_report>)> reply) override;

private:
  void post(std::function<void()> job);
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::deque<std::shared_ptr<played_use>> waiting_;
  std::map<std::string, script> scripts_;
  std::vector<std::string> cancelled_, detached_;
  std::size_t uses_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

} // namespace holt::tests::http
