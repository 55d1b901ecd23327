#include "runtime/transport/socket_channel.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "protocols/control.hpp"
#include "protocols/frame.hpp"

namespace holt::runtime::transport {
namespace {

using namespace std::chrono_literals;
using protocols::frame_header;
using protocols::frame_type;

/// Collects what happened, for the test's thread to wait for.
template <class T>
class inbox {
public:
  void put(T value) {
    {
      std::lock_guard guard{mutex_};
      values_.push_back(std::move(value));
    }
    changed_.notify_all();
  }
  T take() {
    std::unique_lock guard{mutex_};
    if (!changed_.wait_for(guard, 10s, [this] { return !values_.empty(); }))
      throw std::runtime_error("nothing came");
    auto value = std::move(values_.front());
    values_.pop_front();
    return value;
  }
  bool empty() {
    std::lock_guard guard{mutex_};
    return values_.empty();
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> values_;
};

struct piece {
  std::uint64_t offset;
  std::string text;
  bool is_stderr;
  bool last;
};

class collecting_consumer : public actors::stream_consumer {
public:
  void on_data(std::uint64_t offset, actors::shared_bytes bytes, bool is_stderr, bool last) override {
    pieces.put({offset, {reinterpret_cast<const char*>(bytes.bytes.data()), bytes.bytes.size()}, is_stderr, last});
  }
  void on_gap(std::uint64_t from, std::uint64_t to) override {
    gaps.put({from, to});
  }
  void on_closed() override {
    closed.put(true);
  }
  inbox<piece> pieces;
  inbox<std::pair<std::uint64_t, std::uint64_t>> gaps;
  inbox<bool> closed;
};

/// A channel on one end of a socket pair, and the test playing the agent at the other.
class channel_test : public ::testing::Test {
protected:
  void open(channel_limits limits = {}) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    peer_ = ends[1];
    channel = open_socket_channel(context_.get_executor(), ends[0],
                                  {[this](std::string json) { controls.put(std::move(json)); },
                                   [this](std::string reason) { ends_of_channel.put(std::move(reason)); }},
                                  limits);
    thread_ = std::thread{[this] { context_.run(); }};
  }

  void TearDown() override {
    if (channel)
      channel->close("the test ends");
    channel.reset();
    guard_.reset();
    if (thread_.joinable())
      thread_.join();
    if (peer_ >= 0)
      ::close(peer_);
  }

  void peer_sends(const std::string& bytes) {
    for (std::size_t done = 0; done < bytes.size();) {
      auto sent = ::send(peer_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      ASSERT_GT(sent, 0);
      done += static_cast<std::size_t>(sent);
    }
  }

  static std::string data(std::uint32_t stream, std::uint64_t offset, std::string_view text, std::uint8_t flags = 0) {
    std::string out;
    protocols::append_frame(out, {0, frame_type::data, flags, stream, offset}, text);
    return out;
  }

  static std::string window(std::uint32_t stream, std::uint64_t limit, std::uint64_t consumed) {
    auto frame = protocols::window_frame(stream, limit, consumed);
    return {reinterpret_cast<const char*>(frame.data()), frame.size()};
  }

  bool peer_sees_more() {
    pollfd waiting{peer_, POLLIN, 0};
    return ::poll(&waiting, 1, 100) > 0;
  }

  std::string peer_reads(std::size_t size) {
    std::string bytes(size, '\0');
    for (std::size_t done = 0; done < size;) {
      pollfd waiting{peer_, POLLIN, 0};
      if (::poll(&waiting, 1, 10000) <= 0)
        throw std::runtime_error("the channel sent nothing");
      auto got = ::recv(peer_, bytes.data() + done, size - done, 0);
      if (got <= 0)
        throw std::runtime_error("the channel closed");
      done += static_cast<std::size_t>(got);
    }
    return bytes;
  }

  std::pair<frame_header, std::string> peer_frame() {
    auto head = peer_reads(protocols::frame_header_size);
    auto raw = protocols::bytes_of(head);
    auto header = protocols::decode_header(raw.first<protocols::frame_header_size>());
    if (!header)
      throw std::runtime_error("malformed frame from the channel");
    return {*header, peer_reads(header->length)};
  }

  static actors::shared_bytes share(std::string text) {
    auto kept = std::make_shared<std::string>(std::move(text));
    return {kept, protocols::bytes_of(*kept)};
  }

  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_{context_.get_executor()};
  std::thread thread_;
  int peer_ = -1;
  inbox<std::string> controls;
  inbox<std::string> ends_of_channel;
  std::shared_ptr<actors::agent_channel> channel;
};

TEST_F(channel_test, control_messages_arrive_whole_and_in_order) {
  open();
  auto both = protocols::control_frame(R"({"kind":"a"})") + protocols::control_frame(R"({"kind":"b"})");
  for (char c : both)
    peer_sends(std::string(1, c));
  EXPECT_EQ(controls.take(), R"({"kind":"a"})");
  EXPECT_EQ(controls.take(), R"({"kind":"b"})");
}

TEST_F(channel_test, output_reaches_its_consumer_with_its_position_and_mark) {
  open();
  auto consumer = std::make_shared<collecting_consumer>();
  auto id = channel->open_stream(consumer);
  peer_sends(data(id, 100, "out") + data(id, 103, "err", protocols::frame_stderr) + data(id, 106, "", protocols::frame_last));
  auto first = consumer->pieces.take();
  EXPECT_EQ(first.offset, 100u);
  EXPECT_EQ(first.text, "out");
  auto second = consumer->pieces.take();
  EXPECT_TRUE(second.is_stderr);
  EXPECT_EQ(second.offset, 103u);
  EXPECT_TRUE(consumer->pieces.take().last);
}

TEST_F(channel_test, a_hole_in_a_stream_closes_the_channel) {
  open();
  auto consumer = std::make_shared<collecting_consumer>();
  auto id = channel->open_stream(consumer);
  peer_sends(data(id, 0, "abc") + data(id, 4, "e"));
  EXPECT_NE(ends_of_channel.take().find("out of order"), std::string::npos);
  EXPECT_TRUE(consumer->closed.take());
}

TEST_F(channel_test, a_gap_is_said_and_the_stream_goes_on_behind_it) {
  open();
  auto consumer = std::make_shared<collecting_consumer>();
  auto id = channel->open_stream(consumer);
  peer_sends(data(id, 0, "abc") +
             protocols::control_frame(R"({"kind":"gap","stream":)" + std::to_string(id) + R"(,"from":3,"to":10})") +
             data(id, 10, "k"));
  EXPECT_EQ(consumer->pieces.take().text, "abc");
  EXPECT_EQ(consumer->gaps.take(), (std::pair<std::uint64_t, std::uint64_t>{3, 10}));
  EXPECT_EQ(consumer->pieces.take().offset, 10u);
}

TEST_F(channel_test, data_beyond_its_credit_closes_the_channel) {
  open({.initial_credit = 10});
  auto consumer = std::make_shared<collecting_consumer>();
  auto id = channel->open_stream(consumer);
  peer_sends(data(id, 0, "0123456789x"));
  ends_of_channel.take();
  EXPECT_TRUE(consumer->pieces.empty());
}

TEST_F(channel_test, a_malformed_frame_closes_the_channel_with_a_reason) {
  open();
  auto frame = protocols::control_frame("{}");
  frame[4] = 77;
  peer_sends(frame);
  EXPECT_NE(ends_of_channel.take().find("malformed frame"), std::string::npos);
}

TEST_F(channel_test, what_is_sent_waits_for_the_peers_credit) {
  open({.initial_credit = 4});
  auto id = channel->open_stream(nullptr);
  inbox<bool> done;
  channel->send_data(id, share("abcdefgh"), true, [&](bool all) { done.put(all); });
  auto [first, text] = peer_frame();
  EXPECT_EQ(text, "abcd");
  EXPECT_FALSE(first.last());
  EXPECT_FALSE(peer_sees_more());
  EXPECT_TRUE(done.empty());
  peer_sends(window(id, 8, 4));
  auto [second, rest] = peer_frame();
  EXPECT_EQ(rest, "efgh");
  EXPECT_EQ(second.offset, 4u);
  EXPECT_TRUE(second.last());
  EXPECT_TRUE(done.take());
}

TEST_F(channel_test, slow_reader_stalls_only_itself) {
  open({.initial_credit = 8});
  auto slow = channel->open_stream(nullptr);
  auto quick = channel->open_stream(nullptr);
  inbox<bool> slow_done, quick_done;
  channel->send_data(slow, share("0123456789"), true, [&](bool all) { slow_done.put(all); });
  EXPECT_EQ(peer_frame().second, "01234567");
  channel->send_data(quick, share("quick"), true, [&](bool all) { quick_done.put(all); });
  auto [header, text] = peer_frame();
  EXPECT_EQ(header.stream, quick);
  EXPECT_EQ(text, "quick");
  EXPECT_TRUE(quick_done.take());
  EXPECT_TRUE(slow_done.empty());
  channel->close_stream(slow);
  EXPECT_FALSE(slow_done.take());
}

TEST_F(channel_test, a_large_transfer_lets_control_pass) {
  open({.initial_credit = 64 * 1024 * 1024});
  auto id = channel->open_stream(nullptr);
  channel->send_data(id, share(std::string(32 * 1024 * 1024, 'x')), true, [](bool) {});
  channel->send_control(R"({"kind":"now"})");
  std::uint64_t before = 0;
  while (true) {
    auto [header, text] = peer_frame();
    if (header.type == frame_type::control)
      break;
    before += text.size();
  }
  // What the socket and one turn of the writer hold, not the transfer.
  EXPECT_LT(before, 4u * 1024 * 1024);
}

TEST_F(channel_test, streams_are_counted) {
  open({.max_streams = 2});
  auto first = channel->open_stream(nullptr);
  EXPECT_NE(first, 0u);
  EXPECT_NE(channel->open_stream(nullptr), 0u);
  EXPECT_EQ(channel->open_stream(nullptr), 0u);
  channel->close_stream(first);
  EXPECT_NE(channel->open_stream(nullptr), 0u);
}

TEST_F(channel_test, result_before_close_is_delivered) {
  open();
  peer_sends(protocols::control_frame(R"({"kind":"op.result"})"));
  ::close(peer_);
  peer_ = -1;
  EXPECT_EQ(controls.take(), R"({"kind":"op.result"})");
  ends_of_channel.take();
}

TEST_F(channel_test, a_silent_peer_is_pinged_then_dead) {
  open({.heartbeat_ms = 20, .dead_ms = 60});
  EXPECT_EQ(peer_frame().first.type, frame_type::ping);
  EXPECT_NE(ends_of_channel.take().find("silent"), std::string::npos);
}

TEST_F(channel_test, a_ping_is_answered) {
  open();
  peer_sends(protocols::ping_frame());
  EXPECT_EQ(peer_frame().first.type, frame_type::pong);
}

TEST_F(channel_test, a_peer_that_never_reads_is_closed) {
  open({.max_queued_bytes = 256 * 1024});
  for (int i = 0; i < 200; ++i)
    channel->send_control(std::string(10'000, ' '));
  EXPECT_NE(ends_of_channel.take().find("doesn't read"), std::string::npos);
}

TEST_F(channel_test, many_frames_cross_every_buffer_boundary_unchanged) {
  open({.initial_credit = 1ull << 40});
  auto consumer = std::make_shared<collecting_consumer>();
  auto id = channel->open_stream(consumer);
  std::string expected, wire;
  std::uint32_t seed = 1;
  while (expected.size() < 8 * 1024 * 1024) {
    seed = seed * 1664525 + 1013904223;
    std::string text(seed % 65537, static_cast<char>('a' + seed % 26));
    wire += data(id, expected.size(), text);
    expected += text;
  }
  std::thread sender{[&] { peer_sends(wire); }};
  std::string got;
  while (got.size() < expected.size())
    got += consumer->pieces.take().text;
  sender.join();
  EXPECT_TRUE(got == expected);
}

} // namespace
} // namespace holt::runtime::transport
