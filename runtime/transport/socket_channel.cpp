#include "runtime/transport/socket_channel.hpp"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

#include "protocols/agent_messages.hpp"
#include "protocols/control.hpp"
#include "protocols/frame.hpp"
#include "protocols/json_read.hpp"

namespace holt::runtime::transport {

namespace {

namespace asio = boost::asio;
using clock = std::chrono::steady_clock;
using protocols::frame_header;
using protocols::frame_type;

constexpr std::size_t header_bytes = protocols::frame_header_size;
constexpr std::size_t max_payload = protocols::max_payload;

/// Read buffers: a frame's payload is handed on where it was read. Big enough for several whole frames, and never
/// zero-filled, which halved the rate of large streams.
constexpr std::size_t slab_bytes = 512 * 1024;
constexpr std::size_t idle_slab_bytes = 8 * 1024;

struct slab {
  explicit slab(std::size_t size) : size(size), data(new std::byte[size]) {}
  std::size_t size;
  std::unique_ptr<std::byte[]> data;
};

/// Slabs are given back by their last reader, and reused: fresh pages cost more than the copy.
class slab_pool : public std::enable_shared_from_this<slab_pool> {
public:
  std::shared_ptr<slab> take() {
    std::unique_ptr<slab> found;
    {
      std::lock_guard guard{mutex_};
      if (!free_.empty()) {
        found = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (!found)
      found = std::make_unique<slab>(slab_bytes);
    return {found.release(), [weak = weak_from_this()](slab* used) {
              std::unique_ptr<slab> owned{used};
              if (auto pool = weak.lock())
                pool->give_back(std::move(owned));
            }};
  }

private:
  static constexpr std::size_t max_kept = 8;

  void give_back(std::unique_ptr<slab> used) {
    std::lock_guard guard{mutex_};
    if (free_.size() < max_kept)
      free_.push_back(std::move(used));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<slab>> free_;
};

std::shared_ptr<slab_pool> shared_pool() {
  static auto pool = std::make_shared<slab_pool>();
  return pool;
}

class socket_channel : public actors::agent_channel, public std::enable_shared_from_this<socket_channel> {
public:
  socket_channel(asio::any_io_executor executor, int socket, actors::channel_events events, channel_limits limits)
      : strand_(asio::make_strand(executor)),
        socket_(strand_),
        timer_(strand_),
        events_(std::move(events)),
        limits_(limits),
        last_received_(clock::now()) {
    socket_.assign(asio::local::stream_protocol{}, socket);
    socket_.non_blocking(true);
  }

  void start() {
    asio::post(strand_, [self = shared_from_this()] {
      self->wait_readable();
      self->arm_heartbeat();
    });
  }

  void send_control(std::string json) override {
    if (json.size() > max_payload)
      return close("a control message of " + std::to_string(json.size()) + " bytes is too long");
    std::unique_lock guard{mutex_};
    enqueue(guard, frame_type::control, 0, 0, 0, std::move(json));
  }

  std::uint32_t open_stream(std::shared_ptr<actors::stream_consumer> consumer) override {
    std::lock_guard guard{mutex_};
    if (closed_ || streams_.size() >= limits_.max_streams)
      return 0;
    auto id = next_stream_++;
    auto& opened = streams_[id];
    opened.consumer = std::move(consumer);
    opened.send_limit = limits_.initial_credit;
    return id;
  }

  void close_stream(std::uint32_t stream) override {
    std::function<void(bool)> cut;
    {
      std::lock_guard guard{mutex_};
      auto found = streams_.find(stream);
      if (found == streams_.end())
        return;
      cut = std::move(found->second.done);
      streams_.erase(found);
    }
    if (cut)
      cut(false);
  }

  void grant(std::uint32_t stream, std::uint64_t limit, std::uint64_t consumed) override {
    auto whole = protocols::window_frame(stream, limit, consumed);
    auto payload = std::span{whole}.subspan(header_bytes);
    std::unique_lock guard{mutex_};
    auto found = streams_.find(stream);
    if (found == streams_.end() || limit <= found->second.receive_limit)
      return;
    found->second.receive_limit = limit;
    enqueue(guard, frame_type::window, 0, stream, limit,
            std::string(reinterpret_cast<const char*>(payload.data()), payload.size()));
  }

  void send_data(std::uint32_t stream, actors::shared_bytes bytes, bool last, std::function<void(bool)> done) override {
    std::unique_lock guard{mutex_};
    auto found = streams_.find(stream);
    bool open = !closed_ && found != streams_.end() && !found->second.done && !found->second.ended;
    bool nothing = bytes.bytes.empty() && !last;
    if (!open || nothing) {
      guard.unlock();
      done(open);
      return;
    }
    auto& outgoing = found->second;
    outgoing.pending = std::move(bytes);
    outgoing.last = last;
    outgoing.done = std::move(done);
    pump(guard);
  }

  void close(std::string reason) override {
    asio::post(strand_, [self = shared_from_this(), reason = std::move(reason)] { self->shut(reason); });
  }

private:
  struct stream_state {
    // incoming
    std::shared_ptr<actors::stream_consumer> consumer;
    bool started = false;
    std::uint64_t next_offset = 0;
    std::uint64_t receive_limit = 0; // 0: the initial credit, counted from the first byte
    // outgoing
    std::uint64_t send_offset = 0;
    std::uint64_t send_limit = 0;
    actors::shared_bytes pending;
    bool last = false;
    bool ended = false;
    std::function<void(bool)> done; // set while a send is outstanding
  };

  /// One frame that waits for the socket: its header, and the payload as text or as shared bytes.
  struct queued {
    std::array<std::byte, header_bytes> header;
    std::string text;
    actors::shared_bytes bytes;
    std::function<void(bool)> done;
    std::span<const std::byte> payload() const {
      return bytes.owner ? bytes.bytes : std::as_bytes(std::span{text.data(), text.size()});
    }
    std::size_t size() const {
      return header_bytes + payload().size();
    }
  };

  using lock = std::unique_lock<std::mutex>;

  // -- writing: under the mutex, from whichever thread has something to say, straight into the socket -----------------

  void enqueue(lock& guard, frame_type type, std::uint8_t flags, std::uint32_t stream, std::uint64_t offset,
               std::string payload) {
    if (closed_)
      return;
    queued frame;
    frame.header = protocols::encode(
        frame_header{static_cast<std::uint32_t>(payload.size()), type, flags, stream, offset});
    frame.text = std::move(payload);
    control_bytes_ += frame.size();
    control_.push_back(std::move(frame));
    if (control_bytes_ > limits_.max_queued_bytes) {
      guard.unlock();
      return close("the agent doesn't read");
    }
    pump(guard);
  }

  /// Takes what may be sent now and writes until the socket is full. Control goes before data; streams take turns.
  void pump(lock& guard) {
    std::vector<std::function<void(bool)>> finished;
    while (!closed_ && !write_blocked_) {
      if (in_flight_.empty() && !take_frames())
        break;
      write_some(finished);
    }
    guard.unlock();
    for (auto& done : finished)
      done(true);
  }

  bool take_frames() {
    while (!control_.empty() && in_flight_.size() < 16) {
      control_bytes_ -= control_.front().size();
      in_flight_.push_back(std::move(control_.front()));
      control_.pop_front();
    }
    for (std::size_t turn = 0; turn < streams_.size() && in_flight_.size() < 16; ++turn) {
      auto next = streams_.upper_bound(last_served_);
      if (next == streams_.end())
        next = streams_.begin();
      last_served_ = next->first;
      take_data(next->first, next->second);
    }
    written_ = 0;
    return !in_flight_.empty();
  }

  void take_data(std::uint32_t id, stream_state& outgoing) {
    if (!outgoing.done || outgoing.ended)
      return;
    auto credit = outgoing.send_limit > outgoing.send_offset ? outgoing.send_limit - outgoing.send_offset : 0;
    auto size = std::min<std::uint64_t>({outgoing.pending.bytes.size(), credit, max_payload});
    bool everything = size == outgoing.pending.bytes.size();
    if (size == 0 && !everything)
      return;
    queued frame;
    std::uint8_t flags = everything && outgoing.last ? protocols::frame_last : 0;
    frame.header =
        protocols::encode(frame_header{static_cast<std::uint32_t>(size), frame_type::data, flags, id, outgoing.send_offset});
    frame.bytes = {outgoing.pending.owner, outgoing.pending.bytes.first(size)};
    outgoing.send_offset += size;
    outgoing.pending.bytes = outgoing.pending.bytes.subspan(size);
    if (everything) {
      outgoing.ended = outgoing.last;
      outgoing.pending.owner.reset();
      frame.done = std::move(outgoing.done);
      outgoing.done = nullptr;
    }
    in_flight_.push_back(std::move(frame));
  }

  void write_some(std::vector<std::function<void(bool)>>& finished) {
    std::array<iovec, 32> parts;
    std::size_t count = 0, skip = written_;
    auto add = [&](const std::byte* data, std::size_t size) {
      auto skipped = std::min(skip, size);
      skip -= skipped;
      if (size > skipped && count < parts.size())
        parts[count++] = {const_cast<std::byte*>(data + skipped), size - skipped};
    };
    for (auto& frame : in_flight_) {
      add(frame.header.data(), frame.header.size());
      add(frame.payload().data(), frame.payload().size());
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    auto sent = ::sendmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR)
        return;
      // Errors other than a full socket show up as the end of reading.
      write_blocked_ = true;
      if (errno == EAGAIN || errno == EWOULDBLOCK)
        asio::post(strand_, [self = shared_from_this()] { self->wait_writable(); });
      else
        close(std::string{"writing failed: "} + std::strerror(errno));
      return;
    }
    written_ += static_cast<std::size_t>(sent);
    while (!in_flight_.empty() && written_ >= in_flight_.front().size()) {
      written_ -= in_flight_.front().size();
      if (in_flight_.front().done)
        finished.push_back(std::move(in_flight_.front().done));
      in_flight_.pop_front();
    }
    if (in_flight_.empty())
      written_ = 0;
  }

  void wait_writable() {
    socket_.async_wait(asio::socket_base::wait_write, [self = shared_from_this()](boost::system::error_code error) {
      if (error)
        return;
      lock guard{self->mutex_};
      self->write_blocked_ = false;
      self->pump(guard);
    });
  }

  // -- reading: on the strand ------------------------------------------------------------------------------------------

  void wait_readable() {
    socket_.async_wait(asio::socket_base::wait_read, [self = shared_from_this()](boost::system::error_code error) {
      if (error)
        return;
      if (self->read_some())
        self->wait_readable();
    });
  }

  /// Reads what is there, a few slabs at most so that others have their turn. False: the channel is shut.
  bool read_some() {
    for (int turn = 0; turn < 4; ++turn) {
      make_room();
      auto got = ::recv(socket_.native_handle(), buffer_->data.get() + filled_, buffer_->size - filled_, MSG_DONTWAIT);
      if (got < 0) {
        if (errno == EINTR)
          continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
          release_idle_buffer();
          return true;
        }
        shut(std::string{"reading failed: "} + std::strerror(errno));
        return false;
      }
      if (got == 0) {
        shut("the agent closed the connection");
        return false;
      }
      bool was_full = static_cast<std::size_t>(got) == buffer_->size - filled_;
      filled_ += static_cast<std::size_t>(got);
      last_received_ = clock::now();
      if (!take_frames_read())
        return false;
      if (!was_full) {
        release_idle_buffer();
        return true;
      }
    }
    return true;
  }

  /// Small until a frame needs more: an idle connection costs little.
  void make_room() {
    if (!buffer_) {
      buffer_ = std::make_shared<slab>(idle_slab_bytes);
      filled_ = parsed_ = 0;
      return;
    }
    auto left = filled_ - parsed_;
    if (left == 0 && buffer_.use_count() == 1) {
      filled_ = parsed_ = 0;
      return;
    }
    auto room = buffer_->size - filled_;
    if (buffer_->size == idle_slab_bytes ? room > 0 : room >= header_bytes + max_payload)
      return;
    auto fresh = shared_pool()->take();
    std::memcpy(fresh->data.get(), buffer_->data.get() + parsed_, left);
    buffer_ = std::move(fresh);
    parsed_ = 0;
    filled_ = left;
  }

  void release_idle_buffer() {
    if (buffer_ && filled_ == parsed_ && buffer_->size > idle_slab_bytes)
      buffer_.reset();
  }

  bool take_frames_read() {
    while (filled_ - parsed_ >= header_bytes) {
      std::span<const std::byte, header_bytes> raw{buffer_->data.get() + parsed_, header_bytes};
      auto header = protocols::decode_header(raw);
      if (!header) {
        shut("malformed frame: " + std::string{to_string(header.error())});
        return false;
      }
      if (filled_ - parsed_ < header_bytes + header->length)
        return true;
      std::span<const std::byte> payload{buffer_->data.get() + parsed_ + header_bytes, header->length};
      parsed_ += header_bytes + header->length;
      if (!on_frame(*header, payload))
        return false;
    }
    return true;
  }

  bool on_frame(const frame_header& header, std::span<const std::byte> payload) {
    switch (header.type) {
      case frame_type::control:
        return on_control(std::string(reinterpret_cast<const char*>(payload.data()), payload.size()));
      case frame_type::data:
        return on_data(header, payload);
      case frame_type::window:
        on_window(header);
        return true;
      case frame_type::ping: {
        lock guard{mutex_};
        enqueue(guard, frame_type::pong, 0, 0, 0, {});
        return true;
      }
      case frame_type::pong:
        return true;
    }
    return true;
  }

  bool on_control(std::string json) {
    // A gap belongs to a stream, in its order; the session has no part in it.
    if (json.starts_with(R"({"kind":"gap")"))
      return on_gap(json);
    if (events_.on_control)
      events_.on_control(std::move(json));
    return true;
  }

  bool on_gap(const std::string& json) {
    auto message = protocols::parse_control(json);
    auto told = message ? protocols::read_control<protocols::agent::gap>(*message)
                        : tl::expected<protocols::agent::gap, protocols::json::error>{tl::unexpected(message.error())};
    if (!told || told->to < told->from) {
      shut("malformed gap");
      return false;
    }
    std::shared_ptr<actors::stream_consumer> consumer;
    {
      std::lock_guard guard{mutex_};
      auto found = streams_.find(told->stream);
      if (found == streams_.end())
        return true;
      auto& incoming = found->second;
      if (incoming.started && told->from != incoming.next_offset) {
        consumer = nullptr;
      } else {
        incoming.started = true;
        incoming.next_offset = told->to;
        incoming.receive_limit = std::max(incoming.receive_limit, told->to + limits_.initial_credit);
        consumer = incoming.consumer;
      }
    }
    if (consumer)
      consumer->on_gap(told->from, told->to);
    return true;
  }

  bool on_data(const frame_header& header, std::span<const std::byte> payload) {
    std::shared_ptr<actors::stream_consumer> consumer;
    {
      std::lock_guard guard{mutex_};
      auto found = streams_.find(header.stream);
      if (found == streams_.end())
        return true; // closed by us a moment ago
      auto& incoming = found->second;
      if (!incoming.started) {
        incoming.started = true;
        incoming.next_offset = header.offset;
        incoming.receive_limit = std::max(incoming.receive_limit, header.offset + limits_.initial_credit);
      }
      if (header.offset != incoming.next_offset || header.offset + payload.size() > incoming.receive_limit)
        consumer = nullptr;
      else {
        incoming.next_offset += payload.size();
        consumer = incoming.consumer;
        if (!consumer)
          return true;
      }
    }
    if (!consumer) {
      shut("data out of order or beyond its credit");
      return false;
    }
    consumer->on_data(header.offset, {buffer_, payload}, header.is_stderr(), header.last());
    return true;
  }

  void on_window(const frame_header& header) {
    lock guard{mutex_};
    auto found = streams_.find(header.stream);
    if (found == streams_.end() || header.offset <= found->second.send_limit)
      return;
    found->second.send_limit = header.offset;
    pump(guard);
  }

  // -- liveness and end ------------------------------------------------------------------------------------------------

  void arm_heartbeat() {
    timer_.expires_after(std::chrono::milliseconds{limits_.heartbeat_ms});
    timer_.async_wait([self = shared_from_this()](boost::system::error_code error) {
      if (error)
        return;
      self->beat();
    });
  }

  void beat() {
    auto silent = clock::now() - last_received_;
    if (silent >= std::chrono::milliseconds{limits_.dead_ms})
      return shut("the agent has been silent for too long");
    if (silent >= std::chrono::milliseconds{limits_.heartbeat_ms}) {
      lock guard{mutex_};
      enqueue(guard, frame_type::ping, 0, 0, 0, {});
    }
    arm_heartbeat();
  }

  void shut(const std::string& reason) {
    std::map<std::uint32_t, stream_state> streams;
    std::vector<std::function<void(bool)>> cut;
    {
      std::lock_guard guard{mutex_};
      if (closed_)
        return;
      closed_ = true;
      streams.swap(streams_);
      for (auto& frame : in_flight_)
        if (frame.done)
          cut.push_back(std::move(frame.done));
      in_flight_.clear();
      control_.clear();
    }
    boost::system::error_code ignored;
    socket_.close(ignored);
    timer_.cancel();
    buffer_.reset();
    for (auto& [id, state] : streams)
      if (state.done)
        cut.push_back(std::move(state.done));
    for (auto& done : cut)
      done(false);
    for (auto& [id, state] : streams)
      if (state.consumer)
        state.consumer->on_closed();
    auto events = std::exchange(events_, {});
    if (events.on_closed)
      events.on_closed(reason);
  }

  asio::strand<asio::any_io_executor> strand_;
  asio::local::stream_protocol::socket socket_;
  asio::steady_timer timer_;
  actors::channel_events events_; // on the strand
  const channel_limits limits_;

  // Reading: on the strand.
  std::shared_ptr<slab> buffer_;
  std::size_t filled_ = 0;
  std::size_t parsed_ = 0;
  clock::time_point last_received_;

  // Streams and writing: any thread.
  std::mutex mutex_;
  bool closed_ = false;
  std::map<std::uint32_t, stream_state> streams_;
  std::uint32_t next_stream_ = 1;
  std::uint32_t last_served_ = 0;
  std::deque<queued> control_;
  std::size_t control_bytes_ = 0;
  std::deque<queued> in_flight_; // being written, in order
  std::size_t written_ = 0;      // of in_flight_, from its front
  bool write_blocked_ = false;
};

} // namespace

std::shared_ptr<actors::agent_channel> open_socket_channel(asio::any_io_executor executor, int socket,
                                                           actors::channel_events events, channel_limits limits) {
  auto channel = std::make_shared<socket_channel>(std::move(executor), socket, std::move(events), limits);
  channel->start();
  return channel;
}

} // namespace holt::runtime::transport
