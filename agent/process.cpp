#include "agent/process.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>

namespace holt::agent {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

namespace {

namespace wire = protocols::agent;

/// A reader this far behind holds the process back, also when another reader is not.
constexpr std::uint64_t pace_limit = 256 * 1024;
/// Output after which a pipe is worth a megabyte.
constexpr std::uint64_t grow_pipe_at = 256 * 1024;
constexpr int large_pipe = 1024 * 1024;
/// Bytes taken from pipes into a log in one turn.
constexpr std::size_t drain_turn = 1024 * 1024;
constexpr std::size_t scratch_size = 64 * 1024;
/// How long KILL is repeated before what still lives is reported.
constexpr nanoseconds kill_patience = seconds{5};

char* scratch() {
  // Only the main thread drains pipes, one at a time.
  static char buffer[scratch_size];
  return buffer;
}

std::int64_t wall_now() {
  timespec ts;
  ::clock_gettime(CLOCK_REALTIME, &ts);
  return static_cast<std::int64_t>(ts.tv_sec) * 1'000'000 + ts.tv_nsec / 1000;
}

struct named_signal {
  const char* name;
  int number;
};
constexpr named_signal signals[] = {
  {"SIGHUP", SIGHUP},   {"SIGINT", SIGINT},   {"SIGQUIT", SIGQUIT}, {"SIGILL", SIGILL},     {"SIGTRAP", SIGTRAP},
  {"SIGABRT", SIGABRT}, {"SIGBUS", SIGBUS},   {"SIGFPE", SIGFPE},   {"SIGKILL", SIGKILL},   {"SIGUSR1", SIGUSR1},
  {"SIGSEGV", SIGSEGV}, {"SIGUSR2", SIGUSR2}, {"SIGPIPE", SIGPIPE}, {"SIGALRM", SIGALRM},   {"SIGTERM", SIGTERM},
  {"SIGCHLD", SIGCHLD}, {"SIGCONT", SIGCONT}, {"SIGSTOP", SIGSTOP}, {"SIGTSTP", SIGTSTP},   {"SIGTTIN", SIGTTIN},
  {"SIGTTOU", SIGTTOU}, {"SIGURG", SIGURG},   {"SIGXCPU", SIGXCPU}, {"SIGXFSZ", SIGXFSZ},   {"SIGVTALRM", SIGVTALRM},
  {"SIGPROF", SIGPROF}, {"SIGWINCH", SIGWINCH}, {"SIGIO", SIGIO},   {"SIGPWR", SIGPWR},     {"SIGSYS", SIGSYS},
};

} // namespace

int signal_number(std::string_view name) {
  for (auto& [known, number] : signals)
    if (name == known || name == std::string_view{known}.substr(3))
      return number;
  return 0;
}

std::string signal_name(int number) {
  for (auto& [name, known] : signals)
    if (known == number)
      return name;
  return "SIG" + std::to_string(number);
}

// -- readers ------------------------------------------------------------------------------------------------------------

log_reader::log_reader(std::string op_id, std::shared_ptr<output_log> log, process* running, session& to, wishes wishes,
                       answer done)
  : op_id_(std::move(op_id)),
    log_(std::move(log)),
    process_(running),
    session_(to),
    wishes_(wishes),
    done_(std::move(done)),
    position_(wishes.from) {
  if (wishes_.stream != 0) {
    attached_ = true;
    session_.open_outlet(wishes_.stream, *this, position_);
  }
}

log_reader::~log_reader() {
  if (attached_)
    session_.close_outlet(wishes_.stream);
}

void log_reader::poke() {
  if (attached_)
    session_.ready(wishes_.stream);
}

void log_reader::end_at(std::uint64_t position) {
  // Of one that doesn't follow, the end stands already.
  if (end_)
    return;
  end_ = position;
  poke();
  maybe_answer();
}

void log_reader::detach(bool tell) {
  if (!attached_)
    return;
  attached_ = false;
  session_.close_outlet(wishes_.stream);
  if (tell)
    session_.send(wire::op_detach{op_id_, {wishes_.stream}});
  if (process_ != nullptr)
    process_->readers_changed();
  maybe_answer();
}

stream_source::chunk log_reader::produce(char* buffer, std::size_t room) {
  auto limit = end_.value_or(log_->end());
  if (position_ < limit) {
    auto piece = log_->read(position_, buffer, std::min<std::uint64_t>(room, limit - position_), true);
    if (piece.at > position_) {
      auto to = std::min(piece.at, limit);
      session_.skip(wishes_.stream, to);
      position_ = to;
    }
    position_ += piece.size;
    return {.size = piece.size, .is_stderr = piece.kind == output_kind::err};
  }
  if (process_ == nullptr || end_)
    return {};
  auto chunk = process_->pull(buffer, room);
  position_ += chunk.size;
  return chunk;
}

void log_reader::after_chunk() {
  maybe_answer();
}

void log_reader::on_stalled() {
  detach(true);
}

void log_reader::maybe_answer() {
  if (answered_ || !end_ || (attached_ && position_ < *end_))
    return;
  answered_ = true;
  std::vector<wire::stream_final> finals;
  if (wishes_.stream != 0) {
    auto final = std::max(*end_, position_);
    if (position_ < *end_)
      session_.send(wire::gap{wishes_.stream, position_, *end_});
    else if (attached_)
      session_.send_last(wishes_.stream, final);
    finals.push_back({wishes_.stream, final});
  }
  if (attached_) {
    attached_ = false;
    session_.close_outlet(wishes_.stream);
  }
  done_(session_, finals);
  if (answered_hook_)
    answered_hook_();
}

// -- the process --------------------------------------------------------------------------------------------------------

process::process(loop& loop, process_owner& owner, std::shared_ptr<output_log> log, plan plan)
  : loop_(loop), owner_(owner), log_(std::move(log)), plan_(std::move(plan)) {
  out_.owner = this;
  err_.owner = this;
  input_watch_.owner = this;
}

process::~process() {
  *alive_ = false;
  for (auto* timer : {&timeout_timer_, &grace_timer_, &check_timer_, &drain_timer_})
    loop_.cancel(*timer);
  if (precise_)
    loop_.release_precise();
  close_pipe(out_);
  close_pipe(err_);
  drop_input();
  for (auto* reader : readers_)
    reader->process_gone();
}

int process::launch() {
  started_ = loop_.now();
  started_wall_ = wall_now();
  started_ticks_ = ticks_now();
  int error = plan_.start.terminal ? launch_on_terminal() : launch_on_pipes();
  if (error != 0)
    return error;
  // What outlives a use is what the timeout is for; a background process may have one as well.
  if (plan_.start.timeout_ms) {
    precise_ = true;
    loop_.hold_precise();
    auto timeout = milliseconds{std::min<std::uint64_t>(*plan_.start.timeout_ms, 1ull << 40)};
    timeout_timer_ = loop_.after(timeout, [this] {
      timeout_timer_ = loop::no_timer;
      stop(stop_reason::timed_out, milliseconds{std::min<std::uint64_t>(plan_.start.grace_ms, 1ull << 40)}, {});
    });
  }
  return 0;
}

int process::launch_on_pipes() {
  int out[2], err[2], in[2] = {-1, -1};
  if (::pipe2(out, O_CLOEXEC) != 0)
    return errno;
  unique_fd out_read{out[0]}, out_write{out[1]};
  if (::pipe2(err, O_CLOEXEC) != 0)
    return errno;
  unique_fd err_read{err[0]}, err_write{err[1]};
  unique_fd in_read, in_write;
  if (plan_.start.stdin_mode == "pipe") {
    if (::pipe2(in, O_CLOEXEC) != 0)
      return errno;
    in_read.reset(in[0]);
    in_write.reset(in[1]);
    ::fcntl(in_write.get(), F_SETFL, O_NONBLOCK);
  } else {
    in_read.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!in_read)
      return errno;
  }
  ::fcntl(out_read.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(err_read.get(), F_SETFL, O_NONBLOCK);
  plan_.spawn.in = in_read.get();
  plan_.spawn.out = out_write.get();
  plan_.spawn.err = err_write.get();
  auto spawned = spawn(plan_.spawn);
  if (spawned.pid < 0)
    return spawned.error;
  pid_ = spawned.pid;
  input_ = std::move(in_write);
  watch(out_, out_read.release(), output_kind::out);
  watch(err_, err_read.release(), output_kind::err);
  return 0;
}

int process::launch_on_terminal() {
  unique_fd master{::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
  if (!master || ::grantpt(master.get()) != 0 || ::unlockpt(master.get()) != 0)
    return errno;
  winsize size{};
  size.ws_col = plan_.start.terminal->cols;
  size.ws_row = plan_.start.terminal->rows;
  ::ioctl(master.get(), TIOCSWINSZ, &size);
  unique_fd slave{::ioctl(master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC)};
  if (!slave)
    return errno;
  // A second descriptor writes, so that each has its own watch.
  unique_fd writer{::fcntl(master.get(), F_DUPFD_CLOEXEC, 3)};
  if (!writer)
    return errno;
  ::fcntl(master.get(), F_SETFL, O_NONBLOCK);
  plan_.spawn.in = plan_.spawn.out = plan_.spawn.err = slave.get();
  plan_.spawn.terminal = true;
  auto spawned = spawn(plan_.spawn);
  if (spawned.pid < 0)
    return spawned.error;
  pid_ = spawned.pid;
  terminal_ = true;
  input_ = std::move(writer);
  watch(out_, master.release(), output_kind::out);
  return 0;
}

void process::watch(pipe& pipe, int fd, output_kind kind) {
  pipe.fd.reset(fd);
  pipe.kind = kind;
  pipe.closed = !loop_.add(fd, EPOLLIN | EPOLLET, pipe);
}

void process::pipe::on_ready(std::uint32_t) {
  readable = true;
  owner->on_output_ready();
}

void process::close_pipe(pipe& pipe) {
  if (pipe.fd) {
    loop_.remove(pipe.fd.get());
    pipe.fd.reset();
  }
  pipe.closed = true;
  pipe.readable = false;
}

std::size_t process::read_pipe(pipe& pipe, char* buffer, std::size_t room) {
  while (true) {
    auto got = ::read(pipe.fd.get(), buffer, room);
    if (got > 0) {
      pipe.read += static_cast<std::uint64_t>(got);
      if (!pipe.grown && pipe.read > grow_pipe_at && !terminal_) {
        pipe.grown = true;
        ::fcntl(pipe.fd.get(), F_SETPIPE_SZ, large_pipe);
      }
      return static_cast<std::size_t>(got);
    }
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0 && errno == EAGAIN) {
      pipe.readable = false;
      return 0;
    }
    // The end; EIO is how a terminal says that nobody has it open.
    close_pipe(pipe);
    return 0;
  }
}

process::pipe* process::next_readable() {
  err_first_ = !err_first_;
  auto* first = err_first_ ? &err_ : &out_;
  auto* second = err_first_ ? &out_ : &err_;
  return first->readable ? first : second->readable ? second : nullptr;
}

stream_source::chunk process::pull(char* buffer, std::size_t room) {
  // What is over its pace waits for its slowest reader; after the leader's end the pipes are emptied into the log.
  if (readers_.size() > 1)
    for (auto* reader : readers_)
      if (reader->attached() && log_->end() - std::min(reader->position(), log_->end()) >= pace_limit)
        return {};
  while (auto* pipe = next_readable()) {
    auto got = read_pipe(*pipe, buffer, room);
    if (got == 0)
      continue;
    log_->append(pipe->kind, {buffer, got});
    if (readers_.size() > 1)
      readers_changed();
    return {.size = got, .is_stderr = pipe->kind == output_kind::err};
  }
  maybe_end();
  return {};
}

bool process::paced() const {
  return !reaped_ && std::any_of(readers_.begin(), readers_.end(), [](auto* reader) { return reader->attached(); });
}

void process::on_output_ready() {
  if (!paced()) {
    drain_to_log();
    return;
  }
  for (auto* reader : readers_)
    reader->poke();
}

void process::drain_to_log() {
  std::size_t total = 0;
  while (auto* pipe = next_readable()) {
    if (total >= drain_turn) {
      if (!drain_scheduled_) {
        drain_scheduled_ = true;
        loop_.soon([this, alive = alive_] {
          if (!*alive)
            return;
          drain_scheduled_ = false;
          on_output_ready();
        });
      }
      break;
    }
    auto got = read_pipe(*pipe, scratch(), scratch_size);
    log_->append(pipe->kind, {scratch(), got});
    total += got;
  }
  if (total > 0)
    for (auto* reader : readers_)
      reader->poke();
  maybe_end();
}

void process::add_reader(log_reader& reader) {
  readers_.push_back(&reader);
  if (ended_)
    reader.end_at(log_->end());
}

void process::remove_reader(log_reader& reader) {
  readers_.remove(&reader);
  readers_changed();
}

void process::readers_changed() {
  // Not from within whoever is changing: draining may end the process, and its readers with it.
  loop_.soon([this, alive = alive_] {
    if (*alive)
      on_output_ready();
  });
}

void process::on_leader_end(int code, int status) {
  reaped_ = true;
  if (code == CLD_EXITED)
    exit_code_ = status;
  else
    exit_signal_ = status;
  loop_.cancel(timeout_timer_);
  ended_at_ = loop_.now();
  for (auto* pipe : {&out_, &err_}) {
    int held = 0;
    if (!pipe->closed && ::ioctl(pipe->fd.get(), FIONREAD, &held) == 0)
      pipe->must_read = pipe->read + static_cast<std::uint64_t>(std::max(held, 0));
    pipe->readable = !pipe->closed;
  }
  drain_timer_ = loop_.after(milliseconds{std::min<std::uint64_t>(plan_.start.drain_ms, 60'000)}, [this] {
    drain_timer_ = loop::no_timer;
    drained_ = true;
    maybe_end();
  });
  // The pipes' pace was for the leader: what is left goes into the log, where readers find it.
  drain_to_log();
  if (stopping_ && !tree_dead_)
    check_tree();
}

void process::maybe_end() {
  if (ended_) {
    if (over())
      owner_.on_process_over(*this);
    return;
  }
  if (!reaped_ || (stopping_ && !tree_dead_))
    return;
  bool open = !out_.closed || !err_.closed;
  if (open) {
    for (auto* pipe : {&out_, &err_})
      if (!pipe->closed && pipe->read < pipe->must_read)
        return;
    if (!drained_)
      return;
  }
  output_open_ = open;
  end();
}

void process::end() {
  ended_ = true;
  loop_.cancel(drain_timer_);
  loop_.cancel(timeout_timer_);
  if (precise_) {
    precise_ = false;
    loop_.release_precise();
  }
  drop_input();
  final_state_ = stopping_ == stop_reason::timed_out ? "timed_out"
                 : stopping_                          ? "stopped"
                 : exit_signal_ != 0                  ? "killed"
                                                      : "exited";
  result_end_ = log_->end();
  result_ = protocols::json::write(state());
  owner_.on_process_result(*this);
  auto end = log_->end();
  // A reader that is answered may leave the list.
  auto readers = readers_;
  for (auto* reader : readers)
    reader->end_at(end);
  answer_stops();
  if (over())
    owner_.on_process_over(*this);
}

bool process::refresh_result() {
  if (!ended_ || log_->end() == result_end_)
    return false;
  result_end_ = log_->end();
  result_ = protocols::json::write(state());
  return true;
}

wire::process_state process::state() const {
  wire::process_state out;
  out.op_id = plan_.op_id;
  out.background = plan_.start.background;
  out.terminal = terminal_;
  out.command = plan_.shown;
  out.pid = pid_;
  out.output_bytes = log_->end();
  if (auto gone = log_->omitted())
    out.omitted = wire::byte_range{gone->from, gone->to};
  out.output_open = output_open_;
  out.started_at = started_wall_;
  auto until = reaped_ ? ended_at_ : loop_.now();
  out.duration_ms = static_cast<std::uint64_t>((until - started_) / milliseconds{1});
  out.survivors = survivors_;
  if (reaped_) {
    if (exit_signal_ != 0)
      out.signal = signal_name(exit_signal_);
    else
      out.exit_code = exit_code_;
  }
  out.state = ended_ ? final_state_ : "running";
  return out;
}

// -- input --------------------------------------------------------------------------------------------------------------

void process::write_input(std::string_view bytes) {
  if (!input_ || input_closing_) {
    // Nobody reads it any more: taken and dropped, so that its sender isn't stuck.
    if (input_taken_)
      input_taken_();
    return;
  }
  input_waiting_ += bytes;
  flush_input();
}

void process::close_input() {
  if (terminal_ && input_ && !input_closing_)
    input_waiting_ += '\x04';
  input_closing_ = !terminal_;
  flush_input();
}

void process::flush_input() {
  bool taken = false;
  std::size_t at = 0;
  while (input_ && at < input_waiting_.size()) {
    auto written = ::write(input_.get(), input_waiting_.data() + at, input_waiting_.size() - at);
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0 && errno == EAGAIN)
      break;
    if (written <= 0) {
      // EPIPE: it has closed its standard input.
      drop_input();
      return;
    }
    at += static_cast<std::size_t>(written);
    taken = true;
  }
  input_waiting_.erase(0, at);
  if (!input_)
    return;
  if (input_waiting_.empty() && input_closing_) {
    drop_input();
    return;
  }
  bool wait = !input_waiting_.empty();
  if (wait && !input_watched_)
    input_watched_ = loop_.add(input_.get(), EPOLLOUT, input_watch_);
  else if (!wait && input_watched_) {
    loop_.remove(input_.get());
    input_watched_ = false;
  }
  if (taken && input_taken_)
    input_taken_();
}

void process::input_watch::on_ready(std::uint32_t) {
  owner->flush_input();
}

void process::drop_input() {
  if (input_) {
    if (input_watched_)
      loop_.remove(input_.get());
    input_watched_ = false;
    input_.reset();
  }
  input_waiting_ = {};
  if (input_taken_ && *alive_)
    input_taken_();
}

// -- stopping -----------------------------------------------------------------------------------------------------------

tree_signs process::signs() const {
  tree_signs out;
  out.cookie = "HOLT_OP=" + plan_.op_id;
  out.leader = reaped_ ? 0 : pid_;
  out.seen = seen_;
  out.since = started_ticks_;
  out.session = reaped_ && owner_.is_leader(pid_, *this) ? 0 : pid_;
  return out;
}

void process::ask_to_end() {
  for (auto pid : find_members(owner_.proc_directory(), signs())) {
    seen_.insert(pid);
    ::kill(pid, SIGTERM);
    // A stopped process acts on nothing but KILL.
    ::kill(pid, SIGCONT);
  }
}

void process::stop(stop_reason reason, nanoseconds grace, std::function<void()> done) {
  if (tree_dead_) {
    if (done)
      done();
    return;
  }
  if (done)
    when_stopped_.push_back(std::move(done));
  if (!stopping_) {
    stopping_ = reason;
    ask_to_end();
    check_every_ = milliseconds{2};
  }
  if (killing_)
    return;
  // The shortest grace asked for counts.
  auto deadline = loop_.now() + grace;
  if (grace_timer_ == loop::no_timer || deadline < grace_timer_.first) {
    loop_.cancel(grace_timer_);
    grace_timer_ = loop_.after(grace, [this] {
      grace_timer_ = loop::no_timer;
      begin_kill();
    });
  }
  if (check_timer_ == loop::no_timer)
    check_timer_ = loop_.after(check_every_, [this] {
      check_timer_ = loop::no_timer;
      check_tree();
    });
}

void process::begin_kill() {
  killing_ = true;
  kill_began_ = loop_.now();
  check_every_ = milliseconds{2};
  check_tree();
}

void process::check_tree() {
  if (tree_dead_)
    return;
  loop_.cancel(check_timer_);
  std::vector<pid_t> living;
  if (killing_) {
    // Whoever forks faster than it is killed is stopped first: passes go on until one finds nobody new.
    std::unordered_set<pid_t> stopped;
    for (int pass = 0; pass < 32; ++pass) {
      living = find_members(owner_.proc_directory(), signs());
      bool fresh = false;
      for (auto pid : living)
        if (stopped.insert(pid).second) {
          fresh = true;
          ::kill(pid, SIGSTOP);
          seen_.insert(pid);
        }
      if (!fresh)
        break;
    }
    for (auto pid : stopped)
      ::kill(pid, SIGKILL);
  } else if (!reaped_) {
    // The leader's own end, which the reaper tells of, comes first.
    living.push_back(pid_);
  } else {
    living = find_members(owner_.proc_directory(), signs());
    for (auto pid : living)
      seen_.insert(pid);
  }
  if (living.empty()) {
    if (++empty_passes_ >= 2 && reaped_) {
      tree_is_dead();
      return;
    }
    // The second look, at once: nothing was found, so it is cheap.
    if (reaped_) {
      check_tree();
      return;
    }
  } else {
    empty_passes_ = 0;
    if (killing_ && loop_.now() - kill_began_ > kill_patience) {
      survivors_ = static_cast<std::uint32_t>(living.size());
      // A leader that can't be killed was not reaped, and its end can't be told.
      if (reaped_) {
        tree_is_dead();
        return;
      }
    }
  }
  check_timer_ = loop_.after(check_every_, [this] {
    check_timer_ = loop::no_timer;
    check_tree();
  });
  check_every_ = std::min<nanoseconds>(check_every_ * 2, killing_ ? milliseconds{20} : milliseconds{100});
}

void process::tree_is_dead() {
  tree_dead_ = true;
  loop_.cancel(grace_timer_);
  loop_.cancel(check_timer_);
  // With nobody left to write, the pipes are at their end, or held by a survivor or somebody else's process.
  for (auto* pipe : {&out_, &err_})
    pipe->readable = !pipe->closed;
  if (ended_)
    answer_stops();
  drain_to_log();
}

/// Stops are answered when the final state stands.
void process::answer_stops() {
  auto done = std::exchange(when_stopped_, {});
  for (auto& what : done)
    what();
}

int process::signal(int number) {
  if (reaped_ && owner_.is_leader(pid_, *this))
    return ESRCH;
  return ::kill(-pid_, number) == 0 ? 0 : errno;
}

bool process::resize(wire::terminal_size size) {
  if (!terminal_ || out_.closed)
    return false;
  winsize window{};
  window.ws_col = size.cols;
  window.ws_row = size.rows;
  plan_.start.terminal = size;
  return ::ioctl(out_.fd.get(), TIOCSWINSZ, &window) == 0;
}

void process::to_background() {
  plan_.start.background = true;
  loop_.cancel(timeout_timer_);
  if (precise_) {
    precise_ = false;
    loop_.release_precise();
  }
}

} // namespace holt::agent
