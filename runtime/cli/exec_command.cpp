#include "runtime/cli/exec_command.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "protocols/base64.hpp"
#include "protocols/json.hpp"
#include "protocols/utf8.hpp"
#include "runtime/cli/exec_events.hpp"
#include "runtime/cli/local_file.hpp"

namespace holt::runtime::cli {

namespace json = protocols::json;
using namespace std::chrono_literals;

namespace {

/// A server that is quiet for longer is asked again: its own signs of life come more often.
constexpr auto longest_silence = 45s;
/// An event of the server is far smaller; a longer one is of something else.
constexpr std::size_t max_event_bytes = 4 * 1024 * 1024;
/// How long a lost connection is tried again without any progress: a restart of the server fits in.
constexpr auto longest_outage = 60s;
constexpr auto first_pause = 100ms;
constexpr auto longest_pause = 5000ms;
/// For requests beside the command's stream: Ctrl-C must get through, or past, a server that doesn't answer.
constexpr auto control_timeout = 5s;
constexpr std::size_t stdin_piece = 64 * 1024;

/// The command as the three threads of this program share it.
struct running_command {
  server_access access;
  std::string target; // /v1/environments/…/processes/…
  std::atomic<bool> started = false;
  file_descriptor wake{::eventfd(0, EFD_CLOEXEC)};  // readable once the command is over
  file_descriptor begun{::eventfd(0, EFD_CLOEXEC)}; // readable once it has started

  void tell(const file_descriptor& event) const {
    std::uint64_t one = 1;
    [[maybe_unused]] auto n = ::write(event.get(), &one, sizeof one);
  }
};

bool stdin_is_nothing() {
  struct stat status {};
  return ::fstat(0, &status) != 0
         || (S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 3)); // closed, or /dev/null
}

/// Waits until one of two descriptors can be read; whether it was the first.
bool first_ready(int first, int second) {
  pollfd both[2] = {{first, POLLIN, 0}, {second, POLLIN, 0}};
  while (::poll(both, 2, -1) < 0) {
  }
  return both[1].revents == 0;
}

/// Carries this program's stdin to the command. One thread.
class stdin_pump {
public:
  explicit stdin_pump(running_command& command) : command_(command), server_(command.access) {
  }

  void run() {
    if (!first_ready(command_.begun.get(), command_.wake.get()))
      return;
    std::string buffer(stdin_piece, '\0');
    for (;;) {
      if (!first_ready(0, command_.wake.get()))
        return;
      auto n = ::read(0, buffer.data(), buffer.size());
      if (n < 0 && (errno == EINTR || errno == EAGAIN))
        continue;
      bool end = n <= 0;
      if (!send(std::string_view(buffer.data(), end ? 0 : static_cast<std::size_t>(n)), end) || end)
        return;
    }
  }

  /// Any thread: the command is over, and a piece that the server still holds is not waited for.
  void interrupt() {
    server_.client().interrupt();
  }

  /// Read it after the thread was joined.
  const std::optional<failure>& lost() const {
    return lost_;
  }

private:
  bool send(std::string_view bytes, bool end) {
    http_request request{.method = "POST",
                         .target = command_.target + "/stdin" + (end ? "?close=true" : ""),
                         .headers = {{"Content-Type", "application/octet-stream"}},
                         .body = std::string(bytes),
                         .timeout = 24h}; // a command that doesn't read yet makes its writer wait, as any pipe does
    auto response = server_.client().call(request);
    if (response && response->head.status / 100 == 2)
      return true;
    if (pollfd over{command_.wake.get(), POLLIN, 0}; ::poll(&over, 1, 0) > 0)
      return false;
    if (response && (response->head.status == 404 || response->head.status == 409))
      return false; // the command closed its input or is over: as with any pipe, the rest is not wanted
    // Whether the bytes arrived is unknown, and a command must not work on half of its input: it is stopped.
    lost_ = response ? failure_of(response->head, response->body) : response.error();
    stop_command();
    return false;
  }

  /// Until the server took it, or the command is over: the server may just be starting again.
  void stop_command() {
    auto end = std::chrono::steady_clock::now() + longest_outage;
    while (std::chrono::steady_clock::now() < end) {
      auto stopped = api(command_.access, control_timeout).post(command_.target + "/stop", json::object{});
      if (stopped || stopped.error().code != exit_unavailable)
        return;
      if (pollfd over{command_.wake.get(), POLLIN, 0}; ::poll(&over, 1, 500) > 0)
        return;
    }
  }

  running_command& command_;
  api server_;
  std::optional<failure> lost_;
};

/// Carries Ctrl-C and TERM to the command. One thread.
class signal_pump {
public:
  signal_pump(running_command& command, const sigset_t& signals)
      : command_(command), signals_(::signalfd(-1, &signals, SFD_CLOEXEC)) {
  }

  void run() {
    while (first_ready(signals_.get(), command_.wake.get())) {
      signalfd_siginfo info{};
      if (::read(signals_.get(), &info, sizeof info) != sizeof info)
        continue;
      ++seen_;
      bool interrupt = info.ssi_signo == SIGINT;
      if (seen_ == 1) {
        // A command that is still to start gets it as soon as it has.
        pollfd begun{command_.begun.get(), POLLIN, 0};
        if (::poll(&begun, 1, 0) == 0 && !wait_for_start())
          return;
        if (seen_ == 1) {
          (void)server().post(command_.target + "/signal", json::object{{"signal", interrupt ? "SIGINT" : "SIGTERM"}});
          continue;
        }
      }
      if (seen_ == 2)
        (void)server().post(command_.target + "/stop", json::object{});
      if (seen_ > 2 || !command_.started)
        ::_exit(interrupt ? 130 : 143);
    }
  }

private:
  /// False: the command is over. Counts further signals while it waits.
  bool wait_for_start() {
    for (;;) {
      pollfd events[3] = {
          {command_.begun.get(), POLLIN, 0}, {command_.wake.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
      if (::poll(events, 3, -1) < 0)
        continue;
      if (events[1].revents)
        return false;
      if (events[2].revents) {
        signalfd_siginfo info{};
        if (::read(signals_.get(), &info, sizeof info) == sizeof info)
          ++seen_;
        return true;
      }
      if (events[0].revents)
        return true;
    }
  }

  api server() const { // one each: no idle connection is kept for it
    return api(command_.access, control_timeout);
  }

  running_command& command_;
  file_descriptor signals_;
  int seen_ = 0;
};

/// Follows the command's events to its end, over as many connections as it takes.
class event_follower {
public:
  event_follower(api& server, running_command& command, const exec_options& options, std::string environment_id,
                 std::string op_id)
      : client_(server.client()), command_(command), options_(options), environment_id_(std::move(environment_id)),
        op_id_(std::move(op_id)) {
  }

  result<int> run() {
    auto outage_since = std::chrono::steady_clock::now();
    auto pause = std::chrono::milliseconds(first_pause);
    bool first = true;
    for (;;) {
      auto progress = events_seen_;
      auto step = asked_ ? attach() : ask();
      if (ended_)
        return finish(*ended_);
      if (!step && step.error().code != exit_unavailable)
        return tl::unexpected(step.error());
      if (!step && first && !client_.sent())
        return tl::unexpected(step.error()); // there is no server at all, and nothing was asked
      if (!step && final_)
        return tl::unexpected(step.error());
      first = false;
      auto now = std::chrono::steady_clock::now();
      if (events_seen_ != progress) {
        outage_since = now;
        pause = first_pause;
      }
      if (now - outage_since > longest_outage)
        return fail(exit_unavailable,
                    "the connection was lost and could not be made again; the command may still run, and `holt "
                    "exec --op-id "
                        + op_id_ + "` with the same arguments goes on with it");
      std::this_thread::sleep_for(pause); // a client's pause between tries; nothing else happens here
      pause = std::min<std::chrono::milliseconds>(pause * 2, longest_pause);
    }
  }

private:
  /// The first request. Sent again only when the server says that it never heard of it.
  result<void> ask() {
    json::object body{{"op_id", op_id_}, {"output_encoding", "base64"}};
    if (options_.command)
      body["command"] = *options_.command;
    else
      body["argv"] = json::array(options_.argv.begin(), options_.argv.end());
    if (options_.cwd)
      body["cwd"] = *options_.cwd;
    if (!options_.env.empty()) {
      json::object env;
      for (const auto& [name, value] : options_.env)
        env[name] = value;
      body["env"] = std::move(env);
    }
    if (options_.timeout_ms)
      body["timeout_ms"] = *options_.timeout_ms;
    if (!options_.no_stdin)
      body["keep_stdin_open"] = true;
    asked_ = true;
    auto head = client_.open({.method = "POST",
                              .target = "/v1/environments/" + environment_id_ + "/exec",
                              .headers = {{"Content-Type", "application/json"}, {"Accept", "text/event-stream"}},
                              .body = json::write_text(body)});
    if (head && head->status / 100 != 2)
      final_ = true;
    return follow(head);
  }

  result<void> attach() {
    auto target = command_.target + "/events?output_encoding=base64";
    if (auto colon = last_id_.rfind(':'); colon != std::string::npos)
      target += "&after=" + percent_encode(last_id_.substr(colon + 1), false);
    auto head = client_.open({.target = target, .headers = {{"Accept", "text/event-stream"}}, .timeout = 30s});
    auto followed = follow(head);
    if (!followed && !command_.started
        && (followed.error().problem == "process.not_found" || followed.error().problem == "environment.not_running")) {
      asked_ = false; // the same op_id: if the first request arrives late after all, it is the same command
      return {};
    }
    return followed;
  }

  result<void> follow(const result<http_head>& head) {
    if (!head)
      return tl::unexpected(head.error());
    if (head->status / 100 != 2) {
      auto body = client_.read_rest();
      return tl::unexpected(failure_of(*head, body ? *body : std::string{}));
    }
    protocols::sse_parser parser{max_event_bytes};
    std::vector<protocols::sse_event> events;
    std::string buffer(64 * 1024, '\0');
    for (;;) {
      auto n = client_.read_body(buffer, longest_silence);
      if (!n)
        return tl::unexpected(n.error());
      if (*n == 0) // a stream ends with `exit`; any other end is a lost one (spec 39)
        return fail(exit_unavailable, "the command's stream ended early");
      events.clear();
      bool whole = parser.feed({buffer.data(), *n}, events);
      for (const auto& event : events) {
        auto taken = take(event);
        if (!taken || ended_)
          return taken;
      }
      if (!whole)
        return fail(exit_bug, "the server sent an event of over 4 MiB; it may be of another version than this client");
    }
  }

  result<void> take(const protocols::sse_event& event) {
    auto read = read_exec_event(event);
    if (!read) {
      // A server that stops, or can't reach the sandbox for a while, is waited for; the command itself goes on.
      bool passing = command_.started && read.error().code == exit_unavailable
                     && read.error().problem != "operation.outcome_unknown";
      final_ = !passing;
      return tl::unexpected(read.error());
    }
    ++events_seen_;
    if (std::holds_alternative<command_started>(*read)) {
      if (!command_.started.exchange(true))
        command_.tell(command_.begun);
    } else if (auto* output = std::get_if<command_output>(&*read)) {
      if (!write(*output))
        return {};
    } else if (auto* gap = std::get_if<output_gap>(&*read)) {
      auto words = "holt: " + std::to_string(gap->to - gap->from) + " bytes of output at position "
                   + std::to_string(gap->from) + " are not kept any more\n";
      (void)write_all(2, words);
    } else if (auto* ended = std::get_if<command_exit>(&*read)) {
      ended_ = std::move(*ended);
    }
    if (!event.id.empty())
      last_id_ = event.id; // only now: what was not written is asked for again
    return {};
  }

  /// False: nobody reads this program's output any more, and the command is stopped as by a broken pipe.
  bool write(const command_output& output) {
    if (options_.json) {
      (output.stderr_ ? kept_stderr_ : kept_stdout_) += output.bytes;
      return true;
    }
    if (!write_all(output.stderr_ ? 2 : 1, output.bytes))
      return true;
    (void)api(command_.access, control_timeout).post(command_.target + "/stop", json::object{});
    command_exit broken;
    broken.exit_code = 128 + SIGPIPE;
    ended_ = std::move(broken);
    return false;
  }

  result<int> finish(const command_exit& ended) {
    auto status = exit_status(ended);
    if (options_.json) {
      auto data = json::parse_text(ended.json);
      json::object shown = data && data->is_object() ? data->get_object() : json::object{};
      shown["op_id"] = op_id_;
      for (auto [name, bytes] : {std::pair{"stdout", &kept_stdout_}, std::pair{"stderr", &kept_stderr_}}) {
        if (protocols::utf8::valid(*bytes))
          shown[name] = *bytes;
        else
          shown[name] = json::object{{"b64", protocols::base64_encode(*bytes)}};
      }
      (void)write_all(1, json::write_text(shown) + '\n');
    }
    if (!status)
      return fail(
          exit_unavailable,
          "it is not known how the command ended (its sandbox was gone before it); look at what it did before you "
          "run it again");
    if (ended.state == "timed_out")
      (void)write_all(2, "holt: the command was ended at its time limit\n");
    else if (ended.reason == "out_of_memory")
      (void)write_all(2, "holt: the command was ended for using up the environment's memory\n");
    else if (ended.reason == "process_limit")
      (void)write_all(2, "holt: the environment's limit of processes was reached\n");
    return *status;
  }

  http_client& client_;
  running_command& command_;
  const exec_options& options_;
  std::string environment_id_;
  std::string op_id_;
  bool asked_ = false;
  bool final_ = false; // the failure at hand ends it all
  std::uint64_t events_seen_ = 0;
  std::string last_id_;
  std::optional<command_exit> ended_;
  std::string kept_stdout_;
  std::string kept_stderr_;
};

} // namespace

result<int> exec_in_environment(api& server, const exec_options& given) {
  auto options = given;
  if (!options.interactive && (::isatty(0) || stdin_is_nothing()))
    options.no_stdin = true;

  // Before the first request: a Ctrl-C must never end this program while the command runs on unseen.
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);

  auto environment_id = server.find_environment(options.environment);
  if (!environment_id)
    return tl::unexpected(environment_id.error());
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  auto op_id = options.op_id.value_or(new_op_id());
  running_command command;
  command.access = server.client().access();
  command.target = "/v1/environments/" + *environment_id + "/processes/" + percent_encode(op_id, false);

  signal_pump signal_side(command, signals);
  stdin_pump stdin_side(command);
  std::thread signal_thread([&] { signal_side.run(); });
  std::thread stdin_thread;
  if (!options.no_stdin)
    stdin_thread = std::thread([&] { stdin_side.run(); });

  auto outcome = event_follower(server, command, options, *environment_id, op_id).run();

  command.tell(command.wake);
  stdin_side.interrupt();
  signal_thread.join();
  if (stdin_thread.joinable())
    stdin_thread.join();
  if (stdin_side.lost())
    return fail(exit_unavailable,
                "standard input could not be passed on, and the command was stopped: " + stdin_side.lost()->message);
  return outcome;
}

} // namespace holt::runtime::cli
