#include "agent/session.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "protocols/agent_messages.hpp"

namespace holt::agent {

namespace {

namespace wire = protocols::agent;

/// A peer that neither reads nor is declared dead must not make the queue of control frames grow for ever.
constexpr std::size_t longest_queue = 8 * 1024 * 1024;
/// Chunks up to this travel in the queue, so that they and what follows leave in one write.
constexpr std::size_t small_chunk = 16 * 1024;
/// Bytes sent in one turn before other descriptors are looked at.
constexpr std::size_t turn_bytes = 1024 * 1024;

std::uint64_t last_serial = 0;

char* input_buffer() {
  // One for all connections: only the main thread reads, and what is cut is kept by the decoder.
  static char buffer[128 * 1024];
  return buffer;
}
constexpr std::size_t input_size = 128 * 1024;

} // namespace

session::session(loop& loop, unique_fd socket, session_limits limits, owner& owner)
  : serial_(++last_serial), loop_(loop), socket_(std::move(socket)), limits_(limits), owner_(owner) {
  last_heard_ = loop_.now();
  if (!loop_.add(socket_.get(), EPOLLIN, *this)) {
    close();
    return;
  }
  liveness_ = loop_.after(limits_.handshake, [this] {
    liveness_ = loop::no_timer;
    fail("protocol.timeout", "the handshake took too long");
  });
}

session::~session() {
  *alive_ = false;
  loop_.cancel(liveness_);
  for (auto& [id, outlet] : outlets_)
    loop_.cancel(outlet.stall);
  loop_.remove(socket_.get());
}

void session::activate(std::chrono::nanoseconds heartbeat, std::chrono::nanoseconds dead) {
  active_ = true;
  limits_.heartbeat = std::max<std::chrono::nanoseconds>(heartbeat, std::chrono::milliseconds{10});
  limits_.dead = std::max(dead, limits_.heartbeat);
  loop_.cancel(liveness_);
  check_liveness();
}

void session::check_liveness() {
  if (closed_)
    return;
  auto silent = loop_.now() - last_heard_;
  if (silent >= limits_.dead) {
    close();
    return;
  }
  auto next = last_heard_ + limits_.dead;
  if (!pinged_) {
    if (silent >= limits_.heartbeat) {
      pinged_ = true;
      queue_ += protocols::ping_frame();
      pump_soon();
    } else {
      next = last_heard_ + limits_.heartbeat;
    }
  }
  liveness_ = loop_.after(next - loop_.now(), [this] {
    liveness_ = loop::no_timer;
    check_liveness();
  });
}

void session::send_text(std::string_view json) {
  if (closed_ || failing_)
    return;
  if (queue_.size() - queue_at_ > longest_queue) {
    close();
    return;
  }
  protocols::append_frame(queue_, {.type = protocols::frame_type::control}, json.substr(0, protocols::max_payload));
  pump_soon();
}

void session::fail(std::string_view code, std::string_view message) {
  if (closed_ || failing_)
    return;
  send(wire::protocol_error{std::string{code}, std::string{message}});
  // Whoever doesn't read gets no reason.
  failing_ = true;
  flush();
  close();
}

void session::close() {
  if (closed_)
    return;
  closed_ = true;
  loop_.cancel(liveness_);
  loop_.remove(socket_.get());
  ::shutdown(socket_.get(), SHUT_RDWR);
  loop_.soon([this, alive = alive_] {
    if (*alive)
      owner_.on_closed(*this);
  });
}

void session::open_outlet(std::uint32_t id, stream_source& source, std::uint64_t position) {
  outlets_.emplace(id, outlet{&source, position, position + limits_.first_credit});
  ready(id);
}

void session::close_outlet(std::uint32_t id) {
  auto found = outlets_.find(id);
  if (found == outlets_.end())
    return;
  loop_.cancel(found->second.stall);
  outlets_.erase(found);
}

void session::ready(std::uint32_t id) {
  auto found = outlets_.find(id);
  if (found == outlets_.end() || found->second.queued || closed_)
    return;
  found->second.queued = true;
  turn_.push_back(id);
  pump_soon();
}

void session::skip(std::uint32_t id, std::uint64_t to) {
  auto found = outlets_.find(id);
  if (found == outlets_.end())
    return;
  auto& outlet = found->second;
  send(wire::gap{id, outlet.position, to});
  // What was left out costs no credit: as at the beginning of a stream, this much may follow.
  outlet.limit = std::max(outlet.limit, to + limits_.first_credit);
  outlet.position = to;
}

void session::send_last(std::uint32_t id, std::uint64_t position) {
  protocols::append_frame(queue_,
                          {.type = protocols::frame_type::data,
                           .flags = protocols::frame_last,
                           .stream = id,
                           .offset = position},
                          {});
  pump_soon();
}

void session::open_inlet(std::uint32_t id, stream_sink& sink, std::uint64_t received) {
  inlets_.emplace(id, inlet{&sink, received, received + limits_.first_credit});
}

void session::close_inlet(std::uint32_t id) {
  inlets_.erase(id);
}

void session::grant(std::uint32_t id, std::uint64_t limit, std::uint64_t consumed) {
  auto found = inlets_.find(id);
  if (found == inlets_.end() || closed_)
    return;
  found->second.limit = std::max(found->second.limit, limit);
  auto bytes = protocols::window_frame(id, found->second.limit, std::min(consumed, found->second.limit));
  queue_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  pump_soon();
}

void session::on_ready(std::uint32_t events) {
  if (closed_)
    return;
  if ((events & EPOLLOUT) != 0)
    pump();
  if (!closed_ && (events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0)
    read_some();
}

void session::read_some() {
  // A few buffers a turn: what one peer sends must not starve the processes.
  for (int round = 0; round < 4 && !closed_; ++round) {
    auto got = ::recv(socket_.get(), input_buffer(), input_size, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0 && errno == EAGAIN)
      return;
    if (got <= 0) {
      close();
      return;
    }
    last_heard_ = loop_.now();
    pinged_ = false;
    decoder_.feed({reinterpret_cast<const std::byte*>(input_buffer()), static_cast<std::size_t>(got)});
    while (!closed_) {
      auto next = decoder_.next();
      if (!next) {
        fail("protocol.malformed", protocols::to_string(next.error()));
        return;
      }
      if (!*next)
        break;
      handle(**next);
    }
    if (static_cast<std::size_t>(got) < input_size)
      break;
  }
  if (decoder_.pending() == 0)
    decoder_.trim();
}

void session::handle(const protocols::frame& frame) {
  using protocols::frame_type;
  switch (frame.header.type) {
    case frame_type::control:
      handle_control(frame.text());
      break;
    case frame_type::data:
      handle_data(frame);
      break;
    case frame_type::window:
      handle_window(frame);
      break;
    case frame_type::ping:
      if (queue_.size() - queue_at_ < longest_queue)
        queue_ += protocols::pong_frame(frame.text());
      pump_soon();
      break;
    case frame_type::pong:
      break;
  }
}

void session::handle_control(std::string_view payload) {
  auto message = protocols::parse_control(payload);
  if (!message) {
    fail("protocol.malformed", "a control frame is no JSON object: " + message.error().message);
    return;
  }
  auto kind = protocols::json::kind_of(*message);
  if (kind.empty()) {
    fail("protocol.malformed", "a control message has no kind");
    return;
  }
  owner_.on_message(*this, kind, *message);
}

void session::handle_data(const protocols::frame& frame) {
  if (!active_) {
    fail("protocol.malformed", "data before the welcome");
    return;
  }
  auto found = inlets_.find(frame.header.stream);
  // Late bytes of a stream that this side has closed.
  if (found == inlets_.end())
    return;
  auto& inlet = found->second;
  auto end = frame.header.offset + frame.payload.size();
  if (frame.header.offset > inlet.received || end > inlet.limit) {
    fail("protocol.malformed",
         end > inlet.limit ? "data beyond the stream's credit" : "data that leaves out a part of its stream");
    return;
  }
  auto text = frame.text();
  if (end < inlet.received || (end == inlet.received && !text.empty() && !frame.header.last()))
    return;
  // After a resume the sender may repeat what had arrived.
  text.remove_prefix(inlet.received - frame.header.offset);
  inlet.received = end;
  inlet.sink->on_bytes(text, frame.header.last());
}

void session::handle_window(const protocols::frame& frame) {
  auto found = outlets_.find(frame.header.stream);
  if (found == outlets_.end())
    return;
  auto& outlet = found->second;
  if (frame.header.offset <= outlet.limit)
    return;
  outlet.limit = frame.header.offset;
  loop_.cancel(outlet.stall);
  ready(frame.header.stream);
}

void session::pump_soon() {
  if (pump_scheduled_ || wants_write_ || closed_)
    return;
  pump_scheduled_ = true;
  loop_.soon([this, alive = alive_] {
    if (!*alive)
      return;
    pump_scheduled_ = false;
    pump();
  });
}

/// Whether everything on its way has left.
bool session::flush() {
  while (!closed_) {
    // What was queued before the frame was made, the frame, what was queued since.
    iovec parts[3];
    int count = 0;
    auto add = [&](const char* bytes, std::size_t size) {
      if (size > 0)
        parts[count++] = {const_cast<char*>(bytes), size};
    };
    auto before = std::max(queue_at_, queue_before_frame_);
    add(queue_.data() + queue_at_, before - queue_at_);
    add(frame_.get() + frame_at_, frame_end_ - frame_at_);
    add(queue_.data() + before, queue_.size() - before);
    if (count == 0)
      return true;
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = static_cast<std::size_t>(count);
    auto sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent < 0 && errno == EAGAIN)
      return false;
    if (sent <= 0) {
      close();
      return false;
    }
    auto left = static_cast<std::size_t>(sent);
    auto take = [&left](std::size_t& at, std::size_t end) {
      auto taken = std::min(left, end - at);
      at += taken;
      left -= taken;
    };
    take(queue_at_, before);
    take(frame_at_, frame_end_);
    take(queue_at_, queue_.size());
    if (queue_at_ == queue_.size()) {
      queue_at_ = queue_before_frame_ = 0;
      queue_.clear();
      if (queue_.capacity() > 64 * 1024)
        queue_.shrink_to_fit();
    }
  }
  return false;
}

void session::pump() {
  std::size_t sent = 0;
  while (!closed_) {
    // Small chunks gather; everything else leaves before the next is made.
    bool gathering = frame_at_ == frame_end_ && queue_.size() < small_chunk;
    if ((!gathering || turn_.empty()) && !flush()) {
      want_write(!closed_);
      return;
    }
    if (turn_.empty() || closed_)
      break;
    if (sent > turn_bytes) {
      want_write(false);
      pump_soon();
      return;
    }
    auto before = queue_.size();
    frame_at_ = frame_end_ = 0;
    produce_one();
    sent += frame_end_ + (queue_.size() > before ? queue_.size() - before : 0);
  }
  want_write(false);
}

void session::produce_one() {
  auto id = turn_.front();
  turn_.pop_front();
  auto found = outlets_.find(id);
  if (found == outlets_.end())
    return;
  auto& outlet = found->second;
  outlet.queued = false;
  if (outlet.position >= outlet.limit) {
    // Only a reader that has something to miss stalls; the source is asked again when credit comes.
    if (outlet.stall == loop::no_timer)
      outlet.stall = loop_.after(limits_.stall, [this, id] {
        auto stalled = outlets_.find(id);
        if (stalled == outlets_.end())
          return;
        stalled->second.stall = loop::no_timer;
        stalled->second.source->on_stalled();
      });
    return;
  }
  if (!frame_)
    frame_ = std::make_unique_for_overwrite<char[]>(protocols::frame_header_size + protocols::max_payload);
  auto room = std::min<std::uint64_t>(protocols::max_payload, outlet.limit - outlet.position);
  auto* payload = frame_.get() + protocols::frame_header_size;
  auto* source = outlet.source;
  auto chunk = source->produce(payload, room);
  found = outlets_.find(id);
  if (found == outlets_.end())
    return;
  if (chunk.size > 0 || chunk.last) {
    protocols::frame_header header{.length = static_cast<std::uint32_t>(chunk.size),
                                   .type = protocols::frame_type::data,
                                   .stream = id,
                                   .offset = found->second.position};
    header.flags = static_cast<std::uint8_t>((chunk.is_stderr ? protocols::frame_stderr : 0)
                                             | (chunk.last ? protocols::frame_last : 0));
    found->second.position += chunk.size;
    auto bytes = protocols::encode(header);
    if (chunk.size <= small_chunk) {
      queue_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      queue_.append(payload, chunk.size);
    } else {
      queue_before_frame_ = queue_.size();
      std::memcpy(frame_.get(), bytes.data(), bytes.size());
      frame_end_ = protocols::frame_header_size + chunk.size;
    }
    if (!found->second.queued) {
      found->second.queued = true;
      turn_.push_back(id);
    }
  }
  source->after_chunk();
}

void session::want_write(bool wanted) {
  if (wanted == wants_write_ || closed_)
    return;
  wants_write_ = wanted;
  loop_.modify(socket_.get(), wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

} // namespace holt::agent
