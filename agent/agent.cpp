#include "agent/agent.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "agent/jobs.hpp"
#include "protocols/control.hpp"

namespace holt::agent {

namespace json = protocols::json;
namespace wire = protocols::agent;

using std::chrono::milliseconds;

namespace {

constexpr const char* agent_version = "0.1.0";
/// Connections that have not said welcome yet.
constexpr std::size_t most_handshakes = 8;
constexpr std::size_t longest_id = 256;
/// Of a command, in its state: a result travels in one frame.
constexpr std::size_t longest_shown = 1000;
/// Ids of one query, for the same reason.
constexpr std::size_t most_queried = 200;
constexpr std::uint64_t input_credit = 64 * 1024;
/// How long nothing must have run before memory is given back.
constexpr std::chrono::seconds rest_after{10};
/// Ended processes that a list shows.
constexpr std::size_t most_listed = 100;
/// Caps that a caller may ask for.
constexpr std::uint64_t largest_log_cap = 1024ull * 1024 * 1024;

std::int64_t wall_now() {
  timespec ts;
  ::clock_gettime(CLOCK_REALTIME, &ts);
  return static_cast<std::int64_t>(ts.tv_sec) * 1'000'000 + ts.tv_nsec / 1000;
}

std::string random_id() {
  unsigned char bytes[16];
  std::size_t got = 0;
  while (got < sizeof bytes) {
    auto more = ::getrandom(bytes + got, sizeof bytes - got, 0);
    if (more > 0)
      got += static_cast<std::size_t>(more);
  }
  std::string out;
  for (auto byte : bytes) {
    out += "0123456789abcdef"[byte >> 4];
    out += "0123456789abcdef"[byte & 15];
  }
  return out;
}

std::string quoted(std::string_view text) {
  std::string out;
  json::detail::append_string(out, text);
  return out;
}

/// As a person would write it for a shell.
std::string shown(const wire::process_start& start) {
  if (start.command)
    return *start.command;
  std::string out;
  for (auto& word : *start.argv) {
    if (!out.empty())
      out += ' ';
    bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || std::strchr("_-./=:,@%+", c) != nullptr;
    });
    if (plain) {
      out += word;
      continue;
    }
    out += '\'';
    for (char c : word)
      out += c == '\'' ? "'\\''" : std::string(1, c);
    out += '\'';
  }
  return out;
}

bool has_nul(const std::string& text) {
  return text.find('\0') != text.npos;
}

/// What is wrong with a process.start, or nothing.
std::string fault_of(const wire::process_start& start) {
  if (start.argv.has_value() == start.command.has_value())
    return "exactly one of argv and command is needed";
  if (start.argv && (start.argv->empty() || start.argv->front().empty()))
    return "argv must name a program";
  if (start.argv && std::any_of(start.argv->begin(), start.argv->end(), has_nul))
    return "argv must not contain NUL";
  if ((start.command && has_nul(*start.command)) || (start.cwd && has_nul(*start.cwd)))
    return "command and cwd must not contain NUL";
  if (start.stdin_mode != "none" && start.stdin_mode != "pipe")
    return "stdin_mode must be \"none\" or \"pipe\"";
  if (start.log_head_bytes > largest_log_cap || start.log_tail_bytes > largest_log_cap)
    return "log_head_bytes and log_tail_bytes may be 1 GiB at most";
  if (start.env)
    for (auto& [name, value] : *start.env)
      if (name.empty() || name.find('=') != name.npos || has_nul(name) || has_nul(value))
        return "env has a name or value that no environment can hold";
  return {};
}

std::uint32_t stream_named(const std::vector<wire::stream_ref>& streams, std::string_view name) {
  for (auto& ref : streams)
    if (ref.name == name)
      return ref.stream;
  return 0;
}

} // namespace

/// Takes a stream into a process's standard input.
class agent::input_feed final : public stream_sink {
public:
  input_feed(agent& owner, session& from, process& to, std::string op_id, std::uint32_t stream, bool is_operation, bool close)
    : owner_(owner),
      session_(from),
      process_(&to),
      op_id_(std::move(op_id)),
      stream_(stream),
      is_operation_(is_operation),
      close_(close) {
    if (stream_ != 0)
      session_.open_inlet(stream_, *this, 0);
    else
      on_bytes({}, true);
  }
  ~input_feed() {
    if (stream_ != 0)
      session_.close_inlet(stream_);
  }

  void on_bytes(std::string_view bytes, bool last) override {
    received_ += bytes.size();
    if (process_ != nullptr) {
      if (!is_operation_)
        process_->input_position += bytes.size();
      process_->write_input(bytes);
    }
    if (last) {
      last_ = true;
      if (process_ != nullptr && (!is_operation_ || close_))
        process_->close_input();
    }
    look();
  }

  /// Grants what the process has room for; answers an operation when all is written.
  void look() {
    auto waiting = process_ == nullptr ? 0 : process_->input_waiting();
    if (stream_ != 0 && !last_ && waiting < input_credit) {
      auto limit = received_ + input_credit - waiting;
      if (limit >= granted_ + input_credit / 4) {
        granted_ = limit;
        session_.grant(stream_, limit, received_ - std::min<std::uint64_t>(waiting, received_));
      }
    }
    if (last_ && waiting == 0 && !done_) {
      done_ = true;
      if (is_operation_)
        owner_.finish_feed(*this);
    }
  }

  bool done() const {
    return done_;
  }
  void process_gone() {
    process_ = nullptr;
    look();
  }
  process* to() const {
    return process_;
  }
  session& from() const {
    return session_;
  }
  const std::string& op_id() const {
    return op_id_;
  }
  std::uint32_t stream() const {
    return stream_;
  }
  bool is_operation() const {
    return is_operation_;
  }
  std::string process_id;

private:
  agent& owner_;
  session& session_;
  process* process_;
  std::string op_id_;
  std::uint32_t stream_;
  bool is_operation_;
  bool close_;
  std::uint64_t received_ = 0;
  std::uint64_t granted_ = input_credit;
  bool last_ = false;
  bool done_ = false;
};

/// One process.read: a part of a log as a body, whose positions begin at 0.
class agent::body_reader final : public stream_source {
public:
  body_reader(agent& owner, session& to, std::string op_id, std::shared_ptr<output_log> log, std::uint32_t stream,
              wire::process_read ask, bool running)
    : owner_(owner), session_(to), op_id_(std::move(op_id)), log_(std::move(log)), stream_(stream) {
    result_.end = log_->end();
    result_.running = running;
    at_ = std::min(ask.from, result_.end);
    until_ = ask.max < result_.end - at_ ? at_ + ask.max : result_.end;
    if (auto gone = log_->omitted()) {
      result_.omitted = wire::byte_range{gone->from, gone->to};
      // Reading on from within the hole delivers what comes after it, as much as was asked for.
      if (at_ >= gone->from && at_ < gone->to) {
        at_ = gone->to;
        until_ = ask.max < result_.end - at_ ? at_ + ask.max : result_.end;
      } else if (at_ < gone->from && until_ > gone->from) {
        until_ = gone->from;
      }
    }
    result_.from = at_;
    if (ask.only)
      only_ = *ask.only == "stderr" ? output_kind::err : output_kind::out;
    if (stream_ != 0)
      session_.open_outlet(stream_, *this, 0);
    else
      until_ = at_;
  }
  ~body_reader() {
    if (stream_ != 0)
      session_.close_outlet(stream_);
  }

  chunk produce(char* buffer, std::size_t room) override {
    while (at_ < until_) {
      auto piece = log_->read(at_, buffer, std::min<std::uint64_t>(room, until_ - at_), false);
      at_ = piece.size == 0 ? until_ : std::max(at_, piece.at) + piece.size;
      if (piece.size == 0 || (only_ && piece.kind != *only_))
        continue;
      sent_ += piece.size;
      return {.size = piece.size, .is_stderr = piece.kind == output_kind::err};
    }
    return {};
  }
  void after_chunk() override {
    if (at_ >= until_)
      finish();
  }
  void on_stalled() override {
    give_up("nothing was taken of the log for a minute");
  }
  void give_up(std::string why) {
    if (done_)
      return;
    done_ = true;
    owner_.refuse(session_, op_id_, "operation.cancelled", std::move(why), "later");
    owner_.sweep_readers();
  }
  void finish() {
    if (done_)
      return;
    done_ = true;
    result_.next = at_;
    std::vector<wire::stream_final> finals;
    if (stream_ != 0) {
      session_.send_last(stream_, sent_);
      finals.push_back({stream_, sent_});
    }
    owner_.answer(session_, op_id_, "done", json::write(result_), finals);
    owner_.sweep_readers();
  }
  void finish_if_empty() {
    if (at_ >= until_)
      finish();
  }
  bool done() const {
    return done_;
  }
  session& to() const {
    return session_;
  }
  const std::string& op_id() const {
    return op_id_;
  }

private:
  agent& owner_;
  session& session_;
  std::string op_id_;
  std::shared_ptr<output_log> log_;
  std::uint32_t stream_;
  std::optional<output_kind> only_;
  wire::process_read_result result_;
  std::uint64_t at_ = 0;
  std::uint64_t until_ = 0;
  std::uint64_t sent_ = 0;
  bool done_ = false;
};

// -- beginning ----------------------------------------------------------------------------------------------------------

agent::agent(agent_options options) : options_(std::move(options)), run_id_(random_id()), init_(::getpid() == 1) {
  // A command takes three descriptors, five while it starts; some are the agent's own.
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0)
    options_.processes = std::clamp<std::size_t>((files.rlim_cur - std::min<rlim_t>(files.rlim_cur, 128)) / 5, 8,
                                                 options_.processes);
  ledger_ = std::make_unique<ledger>(options_.state.get(), options_.ledger, wall_now());
  if (!ledger_->ok()) {
    problem_ = std::string{"the state directory can't be written: "} + std::strerror(errno);
    return;
  }
  if (!open_roots())
    return;
  proc_.reset(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Orphans come to us also where we are not PID 1.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  struct sigaction quiet {};
  quiet.sa_handler = [](int) {};
  quiet.sa_flags = SA_NOCLDSTOP;
  ::sigaction(SIGCHLD, &quiet, nullptr);
  sigset_t watched;
  ::sigemptyset(&watched);
  ::sigaddset(&watched, SIGCHLD);
  if (!init_)
    ::sigaddset(&watched, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &watched, nullptr);
  for (int number : {SIGPIPE, SIGHUP, SIGINT})
    ::signal(number, SIG_IGN);
  if (init_)
    ::signal(SIGTERM, SIG_IGN);
  signals_.reset(::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_ || !loop_.add(signals_.get(), EPOLLIN, signal_watch_)
      || !loop_.add(options_.listener.get(), EPOLLIN, *this)) {
    problem_ = std::string{"the socket can't be waited for: "} + std::strerror(errno);
    return;
  }
  loop_.on_wake([this] { look_at_jobs(); });
  workers_ = std::make_unique<worker_pool>(options_.workers);
}

agent::~agent() {
  // Jobs first: they touch sessions and roots.
  for (auto& [id, job] : jobs_) {
    job->detach();
    job->cancel();
  }
  workers_.reset();
  jobs_.clear();
  // A process tells its readers that it is gone, so it goes before them.
  processes_.clear();
  feeds_.clear();
  bodies_.clear();
  readers_.clear();
  sessions_.clear();
}

bool agent::open_roots() {
  std::vector<files::root> roots;
  auto add = [&](const std::string& path, bool read_only) {
    root_fds_.emplace_back(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (root_fds_.back())
      roots.push_back({path, root_fds_.back().get(), read_only});
    return static_cast<bool>(root_fds_.back());
  };
  if (!add(options_.roots.workspace, false)) {
    problem_ = "the workspace " + options_.roots.workspace + " can't be opened: " + std::strerror(errno);
    return false;
  }
  // The other two may be missing on a person's machine.
  add(options_.roots.skills, true);
  add(options_.roots.tmp, false);
  roots_ = std::make_unique<files::root_table>(std::move(roots));
  return true;
}

void agent::on_ready(std::uint32_t) {
  accept_connection();
}

void agent::accept_connection() {
  unique_fd socket{::accept4(options_.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
  if (!socket)
    return;
  auto waiting = std::count_if(sessions_.begin(), sessions_.end(), [](auto& known) { return !known->active(); });
  if (static_cast<std::size_t>(waiting) >= most_handshakes)
    return;
  int buffer = 512 * 1024;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
  sessions_.push_back(std::unique_ptr<session>{new session{loop_, std::move(socket), options_.session, *this}});
}

void agent::on_signal() {
  // Two signals at most are watched, and each waits once.
  signalfd_siginfo infos[2];
  auto got = ::read(signals_.get(), infos, sizeof infos);
  for (std::size_t i = 0; got > 0 && i < static_cast<std::size_t>(got) / sizeof infos[0]; ++i)
    if (infos[i].ssi_signo == SIGTERM)
      loop_.stop();
  reap();
}

/// Leaders' ends go to their processes; everything else is an orphan, and only has to go.
void agent::reap() {
  while (true) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0)
      return;
    auto leader = leaders_.find(info.si_pid);
    if (leader == leaders_.end())
      continue;
    auto* ended = leader->second;
    leaders_.erase(leader);
    ended->on_leader_end(info.si_code, info.si_status);
  }
}

// -- the session --------------------------------------------------------------------------------------------------------

void agent::on_message(session& from, std::string_view kind, const json::value& message) {
  try {
    handle(from, kind, message);
  } catch (const std::bad_alloc&) {
    // Of one operation; whatever it was doing has let go of its memory by now.
    if (auto* object = message.if_object())
      if (auto* id = object->if_contains("op_id"); id != nullptr && id->is_string() && from.active())
        refuse(from, std::string{id->get_string()}, "agent.no_memory", "the environment is out of memory", "later");
  }
}

void agent::handle(session& from, std::string_view kind, const json::value& message) {
  auto with = [&]<class T>(auto&& what, std::type_identity<T>) {
    auto read = protocols::read_control<T>(message);
    if (!read) {
      from.fail("protocol.malformed", std::string{kind} + ": " + read.error().pointer + " " + read.error().message);
      return;
    }
    what(*read);
  };
  if (kind == wire::challenge::kind)
    return with([&](auto& read) { challenged(from, read); }, std::type_identity<wire::challenge>{});
  if (kind == wire::welcome::kind)
    return with([&](auto& read) { welcomed(from, read); }, std::type_identity<wire::welcome>{});
  if (kind == wire::protocol_error::kind)
    return from.close();
  if (!from.active()) {
    from.fail("protocol.malformed", "operations begin after the welcome");
    return;
  }
  if (kind == wire::op_start::kind)
    return with([&](auto& read) { started(from, read); }, std::type_identity<wire::op_start>{});
  if (kind == wire::op_attach::kind)
    return with([&](auto& read) { attached(from, read); }, std::type_identity<wire::op_attach>{});
  if (kind == wire::op_cancel::kind)
    return with([&](auto& read) { cancelled(read); }, std::type_identity<wire::op_cancel>{});
  if (kind == wire::op_detach::kind)
    return with([&](auto& read) { detached(from, read); }, std::type_identity<wire::op_detach>{});
  if (kind == wire::op_forget::kind)
    return with([&](auto& read) { ledger_->forget(read.op_id, wall_now()); }, std::type_identity<wire::op_forget>{});
  if (kind == wire::op_query::kind)
    return with([&](auto& read) { queried(from, read); }, std::type_identity<wire::op_query>{});
  // Of a newer server: it learns that this agent can't, and goes on.
  from.send(wire::protocol_error{"unsupported", "unknown kind: " + std::string{kind.substr(0, 64)}});
}

void agent::challenged(session& from, const wire::challenge& message) {
  if (from.active()) {
    from.fail("protocol.malformed", "a second challenge");
    return;
  }
  if (message.versions.min > wire::protocol_version || message.versions.max < wire::protocol_version) {
    from.fail("protocol.version", "this agent speaks version 1 of the protocol");
    return;
  }
  wire::hello hello;
  hello.process_id = run_id_;
  hello.agent_version = agent_version;
  hello.os = "linux";
  hello.shell = options_.shell;
  hello.roots = options_.roots;
  hello.capabilities = {"process", "terminal", "file", "watch", "search", "ledger"};
  std::vector<wire::resumed_operation> running;
  for (auto& [id, process] : processes_)
    if (!process->ended() && running.size() < 256)
      running.push_back({id, "running"});
  if (!running.empty())
    hello.operations = std::move(running);
  from.send(hello);
}

void agent::welcomed(session& from, const wire::welcome& message) {
  if (from.active()) {
    from.fail("protocol.malformed", "a second welcome");
    return;
  }
  if (message.incarnation.size() > longest_id) {
    from.fail("protocol.malformed", "the incarnation is too long");
    return;
  }
  auto highest = ledger_->epoch(message.incarnation);
  if (message.epoch < highest) {
    from.fail("protocol.stale_epoch", "a later session was accepted: epoch " + std::to_string(highest));
    return;
  }
  if (message.epoch > highest)
    ledger_->set_epoch(message.incarnation, message.epoch, wall_now());
  if (active_ != nullptr)
    active_->fail("protocol.superseded", "another session took over");
  active_ = &from;
  from.activate(milliseconds{message.heartbeat_ms}, milliseconds{message.dead_ms});
}

void agent::on_closed(session& from) {
  if (active_ == &from)
    active_ = nullptr;
  // Processes go on; only this session's view of them ends.
  std::vector<process*> left;
  std::erase_if(readers_, [&](auto& reader) {
    if (&reader->to() != &from)
      return false;
    if (auto found = processes_.find(reader->op_id()); found != processes_.end())
      found->second->remove_reader(*reader);
    return true;
  });
  std::erase_if(feeds_, [&](auto& feed) { return &feed->from() == &from; });
  std::erase_if(bodies_, [&](auto& body) { return &body->to() == &from; });
  for (auto& [id, job] : jobs_) {
    std::erase(job->waiting, &from);
    if (job->to() != &from)
      continue;
    job->detach();
    if (!job->ledgered)
      job->cancel();
  }
  std::erase_if(sessions_, [&](auto& known) { return known.get() == &from; });
  look_at_jobs();
}

// -- answers ------------------------------------------------------------------------------------------------------------

void agent::answer(session& to, const std::string& op_id, std::string_view outcome, std::string_view result,
                   const std::vector<wire::stream_final>& finals) {
  std::string text = R"({"kind":"op.result","op_id":)" + quoted(op_id) + R"(,"outcome":")";
  text += outcome;
  text += '"';
  text += result.substr(0, 1) == "," ? "" : R"(,"result":)";
  text += result;
  text += R"(,"finals":)" + json::write(finals) + "}";
  to.send_text(text);
}

void agent::refuse(session& to, const std::string& op_id, std::string code, std::string message, std::string_view retry,
                   std::string_view outcome, std::optional<json::value> details) {
  wire::op_result result;
  result.op_id = op_id;
  result.outcome = outcome;
  result.error = wire::operation_error{std::move(code), std::move(message), std::string{retry}, std::move(details)};
  to.send(result);
}

/// A kept result begins with R (a result) or E (an error).
void agent::answer_kept(session& to, const std::string& op_id, const ledger::entry& kept,
                        const std::vector<wire::stream_final>& finals) {
  std::string_view text{kept.result};
  if (text.starts_with('E'))
    answer(to, op_id, "done", R"(,"error":)" + std::string{text.substr(1)}, finals);
  else
    answer(to, op_id, "done", text.empty() ? "null" : text.substr(1), finals);
}

// -- operations ---------------------------------------------------------------------------------------------------------

bool agent::streams_usable(session& from, const std::string& op_id, const std::vector<wire::stream_ref>& streams) {
  if (from.streams() + streams.size() > from.limits().streams) {
    refuse(from, op_id, "environment.busy", "all streams of this connection are in use", "later");
    return false;
  }
  std::set<std::uint32_t> ids;
  for (auto& ref : streams)
    if (!from.stream_free(ref.stream) || !ids.insert(ref.stream).second) {
      refuse(from, op_id, "request.invalid", "a stream id is 0 or in use");
      return false;
    }
  return true;
}

/// Told once after the last activity, when nothing runs.
void agent::rest_later() {
  if (rest_timer_ != loop::no_timer || !options_.on_rest)
    return;
  active_since_rest_ = false;
  rest_timer_ = loop_.after(rest_after, [this] {
    rest_timer_ = loop::no_timer;
    if (active_since_rest_ || !processes_.empty() || !jobs_.empty())
      rest_later();
    else
      options_.on_rest();
  });
}

void agent::started(session& from, const wire::op_start& start) {
  active_since_rest_ = true;
  rest_later();
  if (start.op_id.empty() || start.op_id.size() > longest_id || has_nul(start.op_id)) {
    refuse(from, start.op_id.substr(0, longest_id), "request.invalid", "op_id must have 1 to 256 bytes and no NUL");
    return;
  }
  if (!streams_usable(from, start.op_id, start.streams))
    return;
  auto& name = start.operation;
  if (name == "process.start") {
    if (!known_before(from, start))
      start_process(from, start);
  } else if (name == "process.stdin") {
    if (!known_before(from, start))
      feed_input(from, start);
  } else if (name == "process.list") {
    list_processes(from, start.op_id);
  } else if (name == "process.read") {
    read_log(from, start);
  } else if (name.starts_with("process.")) {
    control_process(from, start);
  } else if (auto kind = kind_of_job(name); kind != job_kind::unknown) {
    bool ledgered = kind == job_kind::changes;
    // What only reads is done again at each asking, but not twice at once under one id.
    if (ledgered ? known_before(from, start) : jobs_.contains(start.op_id)) {
      if (!ledgered)
        refuse(from, start.op_id, "operation.conflict", "an operation with this id runs");
      return;
    }
    start_job(from, start, ledgered);
  } else {
    refuse(from, start.op_id, "unsupported", "this agent has no operation " + name.substr(0, 64));
  }
}

bool agent::known_before(session& from, const wire::op_start& start) {
  auto conflict = [&] {
    refuse(from, start.op_id, "operation.conflict", "this id was used with other arguments");
  };
  if (auto running = processes_.find(start.op_id); running != processes_.end()) {
    if (running->second->about().digest != start.digest) {
      conflict();
      return true;
    }
    follow_process(*running->second, from, start.streams, 0, true);
    return true;
  }
  if (auto running = jobs_.find(start.op_id); running != jobs_.end()) {
    if (running->second->digest != start.digest) {
      conflict();
      return true;
    }
    from.send(wire::op_accepted{.op_id = start.op_id, .attached = true, .pid = {}, .input_position = {}});
    running->second->waiting.push_back(&from);
    return true;
  }
  auto kept = ledger_->find(start.op_id);
  if (kept.state == ledger::state::never)
    return false;
  if (kept.digest != start.digest) {
    conflict();
    return true;
  }
  switch (kept.state) {
    case ledger::state::done:
      replay_process(start.op_id, kept, from, start.streams, 0);
      break;
    case ledger::state::expired:
      refuse(from, start.op_id, "operation.expired", "it was done, and its result is no longer kept", "never", "done");
      break;
    default:
      refuse(from, start.op_id, "operation.outcome_unknown", "it was begun by an earlier run of the agent", "never",
             "unknown");
      break;
  }
  return true;
}

void agent::start_process(session& from, const wire::op_start& start) {
  auto& op_id = start.op_id;
  auto arguments = json::read<wire::process_start>(start.arguments, json::unknown_fields::ignore);
  if (!arguments) {
    refuse(from, op_id, "request.invalid", arguments.error().pointer + " " + arguments.error().message);
    return;
  }
  if (auto fault = fault_of(*arguments); !fault.empty()) {
    refuse(from, op_id, "request.invalid", fault);
    return;
  }
  if (processes_.size() >= options_.processes) {
    refuse(from, op_id, "process.limit", "too many commands run already", "later", "not_started",
           json::value{{"reason", "process_limit"}});
    return;
  }
  auto path = arguments->cwd.value_or(options_.roots.workspace);
  if (path.empty() || path[0] != '/')
    path = options_.roots.workspace + "/" + path;
  unique_fd cwd{::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  if (!cwd) {
    refuse(from, op_id, "process.cwd_not_found", "the working directory " + path + ": " + std::strerror(errno));
    return;
  }

  process::plan plan;
  plan.op_id = op_id;
  plan.digest = start.digest;
  plan.shown = shown(*arguments).substr(0, longest_shown);
  plan.start = std::move(*arguments);
  auto& spawn = plan.spawn;
  if (plan.start.command)
    spawn.argv = {options_.shell, "-c", *plan.start.command};
  else
    spawn.argv = *plan.start.argv;
  spawn.cwd = cwd.get();
  spawn.shell = options_.shell.c_str();
  spawn.search_path = options_.search_path;
  std::map<std::string, std::string> env{{"PATH", options_.search_path}, {"HOME", options_.roots.workspace}};
  if (options_.roots.tmp != "/tmp")
    env["TMPDIR"] = options_.roots.tmp;
  if (plan.start.terminal)
    env["TERM"] = "xterm-256color";
  if (plan.start.env)
    for (auto& [name, value] : *plan.start.env)
      env[name] = value;
  spawn.search_path = env["PATH"];
  spawn.env.push_back("HOLT_OP=" + op_id);
  for (auto& [name, value] : env)
    if (name != "HOLT_OP")
      spawn.env.push_back(name + "=" + value);

  plan.log_id = ledger_->new_log_id();
  if (!ledger_->start(op_id, start.digest, start.operation, wall_now(), start.durable)) {
    refuse(from, op_id, "storage.full", "the ledger can't be written", "later");
    return;
  }
  auto log = std::make_shared<output_log>(options_.state.get(), ledger::log_name(plan.log_id),
                                          log_caps{plan.start.log_head_bytes, plan.start.log_tail_bytes});
  std::unique_ptr<process> made{new process{loop_, *this, log, std::move(plan)}};
  if (int error = made->launch(); error != 0) {
    ledger_->release(op_id, wall_now());
    bool limit = error == EAGAIN || error == EMFILE || error == ENFILE || error == ENOSPC;
    refuse(from, op_id, limit ? "process.limit" : error == ENOMEM ? "process.no_memory" : "process.not_started",
           std::string{"the process can't be started: "} + std::strerror(error), "later", "not_started",
           limit ? std::optional<json::value>{json::value{{"reason", "process_limit"}}} : std::nullopt);
    return;
  }
  auto& process = *(processes_[op_id] = std::move(made));
  leaders_[process.pid()] = &process;
  from.send(wire::op_accepted{.op_id = op_id, .attached = false, .pid = process.pid(), .input_position = {}});
  auto wishes = log_reader::wishes{.stream = stream_named(start.streams, "output")};
  add_reader(std::make_unique<log_reader>(
               op_id, process.log(), &process, from, wishes,
               [this, op_id](session& to, auto& finals) { answer(to, op_id, "done", process_json(op_id), finals); }),
             &process);
  if (auto stream = stream_named(start.streams, "stdin"); stream != 0)
    add_feed(from, process, op_id, stream, false, false);
}

void agent::add_feed(session& from, process& to, const std::string& op_id, std::uint32_t stream, bool is_operation,
                     bool close) {
  to.on_input_taken([this, id = to.op_id()] {
    for (auto& feed : feeds_)
      if (feed->process_id == id)
        feed->look();
  });
  auto feed = std::make_unique<input_feed>(*this, from, to, op_id, stream, is_operation, close);
  feed->process_id = to.op_id();
  feeds_.push_back(std::move(feed));
}

void agent::follow_process(process& what, session& to, const std::vector<wire::stream_ref>& streams, std::uint64_t from,
                           bool follow) {
  auto& op_id = what.op_id();
  to.send(wire::op_accepted{.op_id = op_id, .attached = true, .pid = what.pid(), .input_position = what.input_position});
  log_reader::wishes wishes{stream_named(streams, "output"), std::min(from, what.log()->end()), follow};
  auto reader = std::make_unique<log_reader>(
    op_id, what.log(), &what, to, wishes,
    [this, op_id](session& to, auto& finals) { answer(to, op_id, "done", process_json(op_id), finals); });
  auto* added = reader.get();
  add_reader(std::move(reader), &what);
  if (auto stream = stream_named(streams, "stdin"); stream != 0 && !what.ended())
    add_feed(to, what, op_id, stream, false, false);
  if (!follow)
    added->end_at(what.log()->end());
}

void agent::replay_process(const std::string& op_id, const ledger::entry& kept, session& to,
                           const std::vector<wire::stream_ref>& streams, std::uint64_t from) {
  to.send(wire::op_accepted{.op_id = op_id, .attached = true, .pid = {}, .input_position = {}});
  auto stream = stream_named(streams, "output");
  auto record = log_record::decode(kept.log);
  if (stream == 0 || !record) {
    answer_kept(to, op_id, kept, {});
    return;
  }
  auto log = std::make_shared<output_log>(options_.state.get(), ledger::log_name(kept.log_id), std::move(*record));
  auto end = log->end();
  log_reader::wishes wishes{stream, std::min(from, end), true};
  auto reader = std::make_unique<log_reader>(op_id, log, nullptr, to, wishes,
                                             [this, op_id, kept](session& to, auto& finals) {
                                               answer_kept(to, op_id, kept, finals);
                                             });
  auto* added = reader.get();
  add_reader(std::move(reader), nullptr);
  added->end_at(end);
}

void agent::add_reader(std::unique_ptr<log_reader> reader, process* of) {
  auto* added = reader.get();
  added->on_answered([this] { sweep_readers(); });
  readers_.push_back(std::move(reader));
  if (of != nullptr)
    of->add_reader(*added);
}

/// Answered readers, done bodies and feeds go, when nothing of them is on the stack.
void agent::sweep_readers() {
  if (sweeping_)
    return;
  sweeping_ = true;
  loop_.soon([this] {
    sweeping_ = false;
    std::erase_if(readers_, [this](auto& reader) {
      if (!reader->answered())
        return false;
      if (auto found = processes_.find(reader->op_id()); found != processes_.end())
        found->second->remove_reader(*reader);
      return true;
    });
    std::erase_if(bodies_, [](auto& body) { return body->done(); });
    std::erase_if(feeds_, [](auto& feed) { return feed->done(); });
    std::erase_if(processes_, [this](auto& known) {
      auto& process = *known.second;
      return process.over() && std::none_of(readers_.begin(), readers_.end(), [&](auto& reader) {
               return reader->op_id() == process.op_id();
             });
    });
  });
}

void agent::on_process_result(process& ended) {
  keep_result(ended);
  for (auto& feed : feeds_)
    if (feed->to() == &ended)
      feed->process_gone();
}

void agent::keep_result(process& ended) {
  ledger::entry entry;
  entry.digest = ended.about().digest;
  entry.operation = "process.start";
  entry.result = "R" + ended.result();
  entry.log = ended.log()->record().encode();
  if (ended.log()->record().in_files) {
    entry.log_id = ended.about().log_id;
    entry.stored = ended.log()->stored();
  }
  ledger_->finish(ended.op_id(), std::move(entry), wall_now());
}

void agent::on_process_over(process& over) {
  // What a child wrote after the answer is in the log as well.
  if (over.refresh_result())
    keep_result(over);
  sweep_readers();
}

bool agent::is_leader(pid_t pid, const process& but) const {
  auto found = leaders_.find(pid);
  return found != leaders_.end() && found->second != &but;
}

std::string agent::process_json(const std::string& op_id) {
  if (auto found = processes_.find(op_id); found != processes_.end())
    return found->second->ended() ? found->second->result() : json::write(found->second->state());
  auto kept = ledger_->find(op_id);
  if (kept.operation != "process.start")
    return {};
  if (kept.state == ledger::state::done && kept.result.starts_with('R'))
    return kept.result.substr(1);
  if (kept.state == ledger::state::unknown) {
    wire::process_state state;
    state.op_id = op_id;
    state.state = "unknown";
    return json::write(state);
  }
  return {};
}

void agent::list_processes(session& from, const std::string& op_id) {
  std::string out = R"({"processes":[)";
  bool first = true;
  // A result travels in one frame.
  auto add = [&](std::string_view text) {
    if (out.size() + text.size() > 60'000)
      return;
    out += first ? "" : ",";
    out += text;
    first = false;
  };
  for (auto& [id, process] : processes_)
    if (!process->ended())
      add(json::write(process->state()));
  for (auto& [id, kept] : ledger_->recent("process.start", most_listed))
    add(std::string_view{kept.result}.substr(1));
  answer(from, op_id, "done", out + "]}");
}

void agent::control_process(session& from, const wire::op_start& start) {
  auto& op_id = start.op_id;
  auto& name = start.operation;
  auto find = [&](const std::string& id) -> process* {
    auto found = processes_.find(id);
    if (found != processes_.end())
      return found->second.get();
    return nullptr;
  };
  // Of one that has ended: what there is to say is its state.
  auto state = [&](const std::string& id) {
    if (auto text = process_json(id); !text.empty())
      answer(from, op_id, "done", text);
    else if (ledger_->find(id).state == ledger::state::expired)
      refuse(from, op_id, "operation.expired", "the process has ended, and its result is no longer kept");
    else
      refuse(from, op_id, "process.not_found", "no process was started under this id");
  };
  auto read = [&]<class T>(std::type_identity<T>) {
    auto arguments = json::read<T>(start.arguments, json::unknown_fields::ignore);
    if (!arguments)
      refuse(from, op_id, "request.invalid", arguments.error().pointer + " " + arguments.error().message);
    return arguments;
  };
  if (name == "process.signal") {
    auto arguments = read(std::type_identity<wire::process_signal>{});
    if (!arguments)
      return;
    auto number = signal_number(arguments->signal);
    if (number == 0) {
      refuse(from, op_id, "request.invalid", "unknown signal");
      return;
    }
    if (auto* known = find(arguments->process); known != nullptr && known->signal(number) == EPERM) {
      refuse(from, op_id, "process.signal_refused", "the process runs under another user");
      return;
    }
    state(arguments->process);
  } else if (name == "process.resize") {
    auto arguments = read(std::type_identity<wire::process_resize>{});
    if (!arguments)
      return;
    if (auto* known = find(arguments->process); known != nullptr && !known->resize(arguments->size)) {
      refuse(from, op_id, "process.no_terminal", "the process has no terminal");
      return;
    }
    state(arguments->process);
  } else if (name == "process.stop") {
    auto arguments = read(std::type_identity<wire::process_ref>{});
    if (!arguments)
      return;
    auto* known = find(arguments->process);
    if (known == nullptr) {
      // Its leader has ended, and its pipes; children may live on.
      stop_remains(from, op_id, arguments->process);
      return;
    }
    auto grace = milliseconds{std::min<std::uint64_t>(arguments->grace_ms, 600'000)};
    known->stop(process::stop_reason::stopped, grace, [this, op_id, id = arguments->process, serial = from.serial()] {
      // Asked by a session that is gone: the next one sees the state.
      if (active_ != nullptr && active_->serial() == serial)
        answer(*active_, op_id, "done", process_json(id));
    });
  } else if (name == "process.background" || name == "process.get") {
    auto arguments = read(std::type_identity<wire::process_ref>{});
    if (!arguments)
      return;
    if (auto* known = find(arguments->process); known != nullptr && name == "process.background" && !known->ended())
      known->to_background();
    state(arguments->process);
  } else {
    refuse(from, op_id, "unsupported", "this agent has no operation " + name.substr(0, 64));
  }
}

/// Stops what a process that has ended left behind.
void agent::stop_remains(session& from, const std::string& op_id, const std::string& id) {
  auto text = process_json(id);
  if (text.empty()) {
    refuse(from, op_id, "process.not_found", "no process was started under this id");
    return;
  }
  tree_signs signs;
  signs.cookie = "HOLT_OP=" + id;
  std::unordered_set<pid_t> stopped;
  for (int pass = 0; pass < 32; ++pass) {
    bool fresh = false;
    for (auto pid : find_members(proc_.get(), signs))
      if (stopped.insert(pid).second) {
        fresh = true;
        ::kill(pid, SIGSTOP);
        signs.seen.insert(pid);
      }
    if (!fresh)
      break;
  }
  for (auto pid : stopped)
    ::kill(pid, SIGKILL);
  answer(from, op_id, "done", text);
}

void agent::read_log(session& from, const wire::op_start& start) {
  auto arguments = json::read<wire::process_read>(start.arguments, json::unknown_fields::ignore);
  if (!arguments || (arguments->only && *arguments->only != "stdout" && *arguments->only != "stderr")) {
    refuse(from, start.op_id, "request.invalid",
           arguments ? "only must be \"stdout\" or \"stderr\"" : arguments.error().pointer + " " + arguments.error().message);
    return;
  }
  std::shared_ptr<output_log> log;
  bool running = false;
  if (auto found = processes_.find(arguments->process); found != processes_.end()) {
    log = found->second->log();
    running = !found->second->ended();
  } else {
    auto kept = ledger_->find(arguments->process);
    auto record = log_record::decode(kept.log);
    if (kept.state == ledger::state::expired) {
      refuse(from, start.op_id, "operation.expired", "the process's output is no longer kept");
      return;
    }
    if (kept.state == ledger::state::unknown) {
      refuse(from, start.op_id, "operation.outcome_unknown", "the process's output went with the run that started it");
      return;
    }
    if (kept.state != ledger::state::done || !record) {
      refuse(from, start.op_id, "process.not_found", "no process was started under this id");
      return;
    }
    log = std::make_shared<output_log>(options_.state.get(), ledger::log_name(kept.log_id), std::move(*record));
  }
  from.send(wire::op_accepted{.op_id = start.op_id, .attached = false, .pid = {}, .input_position = {}});
  bodies_.push_back(std::make_unique<body_reader>(*this, from, start.op_id, std::move(log),
                                                  stream_named(start.streams, "body"), std::move(*arguments), running));
  bodies_.back()->finish_if_empty();
}

void agent::feed_input(session& from, const wire::op_start& start) {
  auto arguments = json::read<wire::process_stdin>(start.arguments, json::unknown_fields::ignore);
  if (!arguments) {
    refuse(from, start.op_id, "request.invalid", arguments.error().pointer + " " + arguments.error().message);
    return;
  }
  auto found = processes_.find(arguments->process);
  if (found == processes_.end() || found->second->ended()) {
    if (ledger_->find(arguments->process).state == ledger::state::never)
      refuse(from, start.op_id, "process.not_found", "no process was started under this id");
    else
      refuse(from, start.op_id, "process.ended", "the process has ended");
    return;
  }
  if (!found->second->has_input()) {
    refuse(from, start.op_id, "process.no_input", "the process has no open standard input");
    return;
  }
  if (!ledger_->start(start.op_id, start.digest, start.operation, wall_now(), start.durable)) {
    refuse(from, start.op_id, "storage.full", "the ledger can't be written", "later");
    return;
  }
  from.send(wire::op_accepted{.op_id = start.op_id, .attached = false, .pid = {}, .input_position = {}});
  input_digests_[start.op_id] = start.digest;
  add_feed(from, *found->second, start.op_id, stream_named(start.streams, "body"), true, arguments->close);
}

void agent::finish_feed(input_feed& done) {
  ledger::entry entry;
  entry.digest = std::exchange(input_digests_[done.op_id()], {});
  input_digests_.erase(done.op_id());
  entry.operation = "process.stdin";
  auto state = process_json(done.process_id);
  entry.result = "R" + (state.empty() ? "null" : state);
  ledger_->finish(done.op_id(), entry, wall_now());
  answer_kept(done.from(), done.op_id(), entry, {});
  sweep_readers();
}

// -- attaching, cancelling, asking --------------------------------------------------------------------------------------

void agent::attached(session& from, const wire::op_attach& attach) {
  if (!streams_usable(from, attach.op_id, attach.streams))
    return;
  if (auto found = processes_.find(attach.op_id); found != processes_.end()) {
    follow_process(*found->second, from, attach.streams, attach.from, attach.follow);
    return;
  }
  if (auto found = jobs_.find(attach.op_id); found != jobs_.end()) {
    from.send(wire::op_accepted{.op_id = attach.op_id, .attached = true, .pid = {}, .input_position = {}});
    found->second->waiting.push_back(&from);
    return;
  }
  auto kept = ledger_->find(attach.op_id);
  switch (kept.state) {
    case ledger::state::done:
      replay_process(attach.op_id, kept, from, attach.streams, attach.from);
      break;
    case ledger::state::expired:
      refuse(from, attach.op_id, "operation.expired", "it was done, and its result is no longer kept", "never", "done");
      break;
    case ledger::state::never:
      refuse(from, attach.op_id, "operation.not_found", "no operation was started under this id");
      break;
    default:
      refuse(from, attach.op_id, "operation.outcome_unknown", "it was begun by an earlier run of the agent", "never",
             "unknown");
  }
}

void agent::cancelled(const wire::op_cancel& message) {
  if (auto found = processes_.find(message.op_id); found != processes_.end()) {
    auto grace = milliseconds{std::min<std::uint64_t>(found->second->about().start.grace_ms, 600'000)};
    found->second->stop(process::stop_reason::stopped, grace, {});
    return;
  }
  if (auto found = jobs_.find(message.op_id); found != jobs_.end()) {
    found->second->cancel();
    return;
  }
  for (auto& body : bodies_)
    if (body->op_id() == message.op_id)
      body->give_up("the reading was cancelled");
}

void agent::detached(session& from, const wire::op_detach& message) {
  auto named = [&](std::uint32_t stream) {
    return message.streams.empty() || std::count(message.streams.begin(), message.streams.end(), stream) > 0;
  };
  // Without any streams named: all of the operation's, and its result goes to nobody here.
  std::vector<log_reader*> leaving;
  for (auto& reader : readers_)
    if (&reader->to() == &from && reader->op_id() == message.op_id && named(reader->stream()))
      leaving.push_back(reader.get());
  for (auto* reader : leaving)
    reader->detach(false);
  std::erase_if(feeds_, [&](auto& feed) {
    return !feed->is_operation() && &feed->from() == &from && feed->op_id() == message.op_id && named(feed->stream());
  });
}

std::string agent::state_of(const std::string& op_id) const {
  if (auto found = processes_.find(op_id); found != processes_.end() && !found->second->ended())
    return "running";
  switch (ledger_->find(op_id).state) {
    case ledger::state::never:
      return jobs_.contains(op_id) ? "running" : "never";
    case ledger::state::running:
      return "running";
    case ledger::state::done:
      return "done";
    case ledger::state::unknown:
      return "unknown";
    case ledger::state::expired:
      return "expired";
  }
  return "never";
}

void agent::queried(session& from, const wire::op_query& message) {
  if (message.op_ids.size() > most_queried || message.query_id.size() > longest_id) {
    from.fail("protocol.malformed", "op.query may ask for 200 ids");
    return;
  }
  wire::op_states out;
  out.query_id = message.query_id;
  for (auto& id : message.op_ids)
    out.states.push_back({id.substr(0, longest_id), state_of(id)});
  from.send(out);
}

// -- file and search operations -----------------------------------------------------------------------------------------

void agent::start_job(session& from, const wire::op_start& start, bool ledgered) {
  auto work = make_job(*roots_, locks_, start.operation, start.arguments);
  if (!work) {
    refuse(from, start.op_id, "request.invalid", work.error());
    return;
  }
  constexpr std::size_t most_jobs = 64;
  if (jobs_.size() >= most_jobs) {
    refuse(from, start.op_id, "environment.busy", "too many operations run at once", "later");
    return;
  }
  if (ledgered && !ledger_->start(start.op_id, start.digest, start.operation, wall_now(), start.durable)) {
    refuse(from, start.op_id, "storage.full", "the ledger can't be written", "later");
    return;
  }
  auto made = std::make_shared<job>(start.op_id, std::move(*work), [this] { loop_.wake(); });
  made->digest = start.digest;
  made->operation = start.operation;
  made->ledgered = ledgered;
  from.send(wire::op_accepted{.op_id = start.op_id, .attached = false, .pid = {}, .input_position = {}});
  auto body = stream_named(start.streams, "body");
  bool sends = takes_body(start.operation);
  made->attach(from, {.out = sends ? 0 : body, .in = sends ? body : 0});
  jobs_[start.op_id] = made;
  if (runs_for_long(start.operation))
    workers_->submit_apart(made);
  else
    workers_->submit(made);
}

void agent::look_at_jobs() {
  for (auto next = jobs_.begin(); next != jobs_.end();) {
    auto what = next->second;
    if (!what->look()) {
      ++next;
      continue;
    }
    next = jobs_.erase(next);
    finish_job(*what);
  }
}

void agent::finish_job(job& what) {
  auto& done = what.answer();
  auto finals = what.finals();
  auto* to = what.to();
  if (to != nullptr && what.has_output_stream())
    to->send_last(finals[0].stream, finals[0].position);
  what.detach();
  ledger::entry entry;
  entry.digest = what.digest;
  entry.operation = what.operation;
  entry.result = done.error ? "E" + json::write(*done.error) : "R" + done.result;
  if (what.ledgered) {
    if (done.not_started)
      ledger_->release(what.op_id(), wall_now());
    else
      ledger_->finish(what.op_id(), entry, wall_now());
  }
  auto tell = [&](session& whom, const std::vector<wire::stream_final>& ends) {
    if (done.error && done.not_started)
      refuse(whom, what.op_id(), done.error->code, done.error->message, done.error->retry, "not_started",
             done.error->details);
    else
      answer_kept(whom, what.op_id(), entry, ends);
  };
  if (to != nullptr)
    tell(*to, finals);
  for (auto* waiting : what.waiting)
    tell(*waiting, {});
}

} // namespace holt::agent
