#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "agent/loop.hpp"
#include "protocols/control.hpp"
#include "protocols/frame.hpp"

namespace holt::agent {

class session;

/// What fills an outgoing stream.
class stream_source {
public:
  struct chunk {
    std::size_t size = 0; // 0: nothing now; session::ready() when there is
    bool is_stderr = false;
    bool last = false;
  };

  /// At most `room` bytes (never 0) of the stream's next ones.
  virtual chunk produce(char* buffer, std::size_t room) = 0;

  /// A chunk was put behind what is being sent. The source may close its stream, or die, in here.
  virtual void after_chunk() = 0;

  /// The receiver took nothing for session_limits::stall while bytes waited.
  virtual void on_stalled() = 0;

protected:
  ~stream_source() = default;
};

/// What takes an incoming stream's bytes.
class stream_sink {
public:
  /// In order, each byte once. The sink grants more by session::grant().
  virtual void on_bytes(std::string_view bytes, bool last) = 0;

protected:
  ~stream_sink() = default;
};

struct session_limits {
  std::size_t streams = 64;
  std::uint64_t first_credit = 64 * 1024;
  std::chrono::nanoseconds handshake = std::chrono::seconds{10};
  std::chrono::nanoseconds heartbeat = std::chrono::seconds{15};
  std::chrono::nanoseconds dead = std::chrono::seconds{40};
  std::chrono::nanoseconds stall = std::chrono::seconds{60};
};

/// One connection of the server: frames, liveness, credit, and the order of writing: control before data, streams in
/// turn, a result after its output (agent-protocol.md). Everything that arrives is checked; a fault closes the
/// connection with its reason.
///
/// Owned by the agent; main thread only.
class session final : loop::watcher {
public:
  /// What stands behind a session.
  class owner {
  public:
    /// A control message other than those that the session answers itself.
    virtual void on_message(session& from, std::string_view kind, const protocols::json::value& message) = 0;
    /// Once, and from a turn of the loop where nothing of the session is on the stack. The owner may destroy it.
    virtual void on_closed(session& from) = 0;

  protected:
    ~owner() = default;
  };

  session(loop& loop, unique_fd socket, session_limits limits, owner& owner);
  ~session();
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  /// From the welcome on: no handshake deadline, pings, streams.
  void activate(std::chrono::nanoseconds heartbeat, std::chrono::nanoseconds dead);
  bool active() const {
    return active_;
  }
  bool closed() const {
    return closed_;
  }
  /// Different for every session of this run.
  std::uint64_t serial() const {
    return serial_;
  }

  template <class T>
  void send(const T& message) {
    send_text(protocols::json::write_control(message));
  }
  void send_text(std::string_view json);

  /// Tells why, then closes.
  void fail(std::string_view code, std::string_view message);
  void close();

  /// Whether `count` more streams may be opened, and none of the ids is in use.
  bool stream_free(std::uint32_t id) const {
    return id != 0 && !outlets_.contains(id) && !inlets_.contains(id);
  }
  std::size_t streams() const {
    return outlets_.size() + inlets_.size();
  }
  const session_limits& limits() const {
    return limits_;
  }

  /// Outgoing. `position` is that of the first byte.
  void open_outlet(std::uint32_t id, stream_source& source, std::uint64_t position);
  void close_outlet(std::uint32_t id);
  void ready(std::uint32_t id);
  /// Bytes up to `to` will never come: says the gap, goes on from there.
  void skip(std::uint32_t id, std::uint64_t to);
  /// An empty last frame.
  void send_last(std::uint32_t id, std::uint64_t position);

  /// Incoming. The sender may send up to `limit` (initially received + first_credit).
  void open_inlet(std::uint32_t id, stream_sink& sink, std::uint64_t received);
  void close_inlet(std::uint32_t id);
  /// `consumed` bytes are done with, `limit` may come in all.
  void grant(std::uint32_t id, std::uint64_t limit, std::uint64_t consumed);

private:
  struct outlet {
    stream_source* source;
    std::uint64_t position;
    std::uint64_t limit;
    bool queued = false;
    loop::timer_id stall = loop::no_timer;
  };
  struct inlet {
    stream_sink* sink;
    std::uint64_t received;
    std::uint64_t limit;
  };

  void on_ready(std::uint32_t events) override;
  void read_some();
  void handle(const protocols::frame& frame);
  void handle_data(const protocols::frame& frame);
  void handle_window(const protocols::frame& frame);
  void handle_control(std::string_view payload);
  void pump();
  void pump_soon();
  bool flush();
  void produce_one();
  void check_liveness();
  void want_write(bool wanted);

  std::uint64_t serial_;
  loop& loop_;
  unique_fd socket_;
  session_limits limits_;
  owner& owner_;
  protocols::frame_decoder decoder_;
  std::map<std::uint32_t, outlet> outlets_;
  std::map<std::uint32_t, inlet> inlets_;
  std::deque<std::uint32_t> turn_;
  /// Bytes on their way: one large frame, and a queue of which the first part goes before it.
  std::unique_ptr<char[]> frame_;
  std::size_t frame_at_ = 0;
  std::size_t frame_end_ = 0;
  std::string queue_;
  std::size_t queue_at_ = 0;
  std::size_t queue_before_frame_ = 0;
  bool wants_write_ = false;
  bool pump_scheduled_ = false;
  bool active_ = false;
  bool failing_ = false;
  bool closed_ = false;
  running_time last_heard_{0};
  bool pinged_ = false;
  loop::timer_id liveness_ = loop::no_timer;
  /// Tells handlers scheduled for later that the session is gone.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

} // namespace holt::agent
