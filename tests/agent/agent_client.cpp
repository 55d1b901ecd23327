#include "tests/agent/agent_client.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace holt::tests {

using clock = std::chrono::steady_clock;
namespace json = protocols::json;

namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error{what};
}

} // namespace

temporary_directory::temporary_directory() {
  std::string name = std::filesystem::temp_directory_path() / "holt-agent-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr)
    fail("no temporary directory");
  path_ = name;
}

temporary_directory::~temporary_directory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

agent_process::agent_process(const std::filesystem::path& home, std::vector<std::string> program) : home_(home) {
  for (auto name : {"workspace", "skills", "tmp", "state"})
    std::filesystem::create_directories(home_ / name);
  std::filesystem::remove(socket());
  for (auto& [option, value] : std::vector<std::pair<std::string, std::string>>{{"--listen-path", socket()},
                                                                                {"--state-dir", home_ / "state"},
                                                                                {"--workspace", home_ / "workspace"},
                                                                                {"--skills", home_ / "skills"},
                                                                                {"--tmp", home_ / "tmp"}}) {
    program.push_back(option);
    program.push_back(value);
  }
  std::vector<char*> argv;
  for (auto& word : program)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  int orders[2];
  if (::pipe2(orders, O_CLOEXEC) != 0)
    fail("no pipe");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, orders[0], 0);
  auto error = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(orders[0]);
  orders_ = orders[1];
  if (error != 0)
    fail("the agent can't be started: " + std::string{std::strerror(error)});
}

agent_process::~agent_process() {
  end();
  ::close(orders_);
}

std::string agent_process::socket() const {
  return home_ / "socket";
}

void agent_process::kill(int signal) {
  if (pid_ > 0)
    ::kill(pid_, signal);
}

int agent_process::end() {
  if (pid_ <= 0)
    return 0;
  ::kill(pid_, SIGKILL);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return status;
}

long agent_process::resident_kib() const {
  std::ifstream status{"/proc/" + std::to_string(pid_) + "/status"};
  std::string line;
  while (std::getline(status, line))
    if (line.starts_with("VmRSS:"))
      return std::stol(line.substr(6));
  return -1;
}

void agent_process::order(const std::string& line) {
  auto text = line + "\n";
  if (::write(orders_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    fail("the program takes no orders");
}

std::string received_stream::of(bool is_stderr) const {
  std::string out;
  for (auto& piece : pieces)
    if (piece.is_stderr == is_stderr)
      out += piece.bytes;
  return out;
}

agent_client::agent_client(const std::string& socket, std::uint64_t epoch, std::string incarnation) {
  connect(socket);
  handshake(epoch, incarnation);
}

agent_client::agent_client(agent_client&& other) noexcept
  : fd_(std::exchange(other.fd_, -1)) {
  // Only of raw(): nothing has come yet.
}

agent_client agent_client::raw(const std::string& socket) {
  agent_client out;
  out.connect(socket);
  return out;
}

agent_client::~agent_client() {
  if (fd_ >= 0)
    ::close(fd_);
}

void agent_client::connect(const std::string& socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket.c_str(), sizeof address.sun_path - 1);
  fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (!eventually(
        [&] { return ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0; }, seconds{20}))
    fail("the agent doesn't listen");
}

void agent_client::handshake(std::uint64_t epoch, const std::string& incarnation) {
  wire::challenge challenge;
  challenge.purpose = "agent";
  challenge.issuer = "test";
  challenge.nonce = "nonce";
  send(challenge);
  auto deadline = clock::now() + seconds{20};
  while (!greeted_)
    if (!take_one(deadline) || closed_)
      fail("no hello");
  wire::welcome welcome;
  welcome.session_id = "session";
  welcome.incarnation = incarnation;
  welcome.epoch = epoch;
  welcome.dead_ms = 3'600'000;
  send(welcome);
}

void agent_client::send_bytes(std::string_view bytes) {
  while (!bytes.empty()) {
    auto sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent <= 0) {
      closed_ = true;
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

void agent_client::send_data(std::uint32_t stream, std::uint64_t at, std::string_view bytes, bool last) {
  std::string frame;
  protocols::append_frame(frame,
                          {.type = protocols::frame_type::data,
                           .flags = static_cast<std::uint8_t>(last ? protocols::frame_last : 0),
                           .stream = stream,
                           .offset = at},
                          bytes);
  send_bytes(frame);
}

void agent_client::grant(std::uint32_t stream, std::uint64_t limit, std::uint64_t consumed) {
  auto bytes = protocols::window_frame(stream, limit, consumed);
  send_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

operation agent_client::start_value(const std::string& op_id, const std::string& name, json::value arguments,
                                    const std::vector<std::string>& streams, bool durable, const std::string& digest) {
  wire::op_start start;
  start.op_id = op_id;
  start.operation = name;
  start.arguments = std::move(arguments);
  start.digest = digest;
  start.durable = durable;
  operation out{op_id, {}};
  for (auto& stream : streams) {
    out.streams[stream] = next_stream_;
    start.streams.push_back({stream, next_stream_++});
  }
  send(start);
  return out;
}

operation agent_client::attach(const std::string& op_id, std::uint64_t from, const std::vector<std::string>& streams,
                               bool follow) {
  wire::op_attach attach;
  attach.op_id = op_id;
  attach.from = from;
  attach.follow = follow;
  operation out{op_id, {}};
  for (auto& stream : streams) {
    out.streams[stream] = next_stream_;
    attach.streams.push_back({stream, next_stream_++});
  }
  send(attach);
  return out;
}

bool agent_client::take_one(clock::time_point deadline) {
  while (true) {
    auto next = decoder_.next();
    if (!next)
      fail("the agent sent a malformed frame: " + std::string{protocols::to_string(next.error())});
    if (*next) {
      handle(**next);
      return true;
    }
    auto left = std::chrono::ceil<milliseconds>(deadline - clock::now()).count();
    pollfd ready{fd_, POLLIN, 0};
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) <= 0)
      return false;
    auto got = ::recv(fd_, buffer_.data(), buffer_.size(), 0);
    if (got <= 0) {
      closed_ = true;
      return true;
    }
    decoder_.feed({reinterpret_cast<const std::byte*>(buffer_.data()), static_cast<std::size_t>(got)});
  }
}

void agent_client::handle(const protocols::frame& frame) {
  switch (frame.header.type) {
    case protocols::frame_type::data: {
      auto& stream = streams_[frame.header.stream];
      if (stream.begun && frame.header.offset != stream.end)
        fail("a stream leaves out a part without a gap");
      stream.begun = true;
      stream.end = frame.header.offset + frame.payload.size();
      if (!frame.payload.empty() && !discard) {
        stream.all += frame.text();
        stream.pieces.push_back({frame.header.offset, frame.header.is_stderr(), std::string{frame.text()}});
      }
      stream.last = stream.last || frame.header.last();
      if (credit > 0 && !stream.last && stream.end + credit >= stream.granted + credit / 2)
        grant(frame.header.stream, stream.granted = stream.end + credit, stream.end);
      break;
    }
    case protocols::frame_type::window:
      windows_[frame.header.stream] = frame.header.offset;
      break;
    case protocols::frame_type::ping:
      send_bytes(protocols::pong_frame(frame.text()));
      break;
    case protocols::frame_type::pong:
      break;
    case protocols::frame_type::control: {
      auto message = protocols::parse_control(frame.text());
      if (!message)
        fail("the agent sent no JSON: " + message.error().message);
      auto kind = json::kind_of(*message);
      if (kind == wire::hello::kind) {
        hello_ = protocols::read_control<wire::hello>(*message).value();
        greeted_ = true;
      } else if (kind == wire::op_accepted::kind) {
        auto accepted = protocols::read_control<wire::op_accepted>(*message).value();
        accepted_[accepted.op_id] = accepted;
      } else if (kind == wire::op_result::kind) {
        auto result = protocols::read_control<wire::op_result>(*message).value();
        results_[result.op_id].push_back(result);
      } else if (kind == wire::gap::kind) {
        auto gap = protocols::read_control<wire::gap>(*message).value();
        auto& stream = streams_[gap.stream];
        stream.gaps.push_back(gap);
        stream.begun = true;
        stream.end = gap.to;
      } else if (kind == wire::protocol_error::kind) {
        errors_.push_back(protocols::read_control<wire::protocol_error>(*message).value());
      } else {
        others_.emplace_back(kind, *message);
      }
    }
  }
}

operation_end agent_client::finish(const operation& of, milliseconds patience) {
  auto deadline = clock::now() + patience;
  auto& results = results_[of.op_id];
  // Two that follow one operation have a result each: its finals name the stream.
  auto mine = [&] {
    return std::find_if(results.begin(), results.end(), [&](auto& result) {
      return result.finals.empty() || std::any_of(of.streams.begin(), of.streams.end(), [&](auto& stream) {
               return stream.second == result.finals.front().stream;
             });
    });
  };
  while (mine() == results.end()) {
    if (closed_)
      fail("the connection ended before the result of " + of.op_id);
    if (!take_one(deadline))
      fail("no result of " + of.op_id + " in time");
  }
  operation_end out;
  out.result = *mine();
  results.erase(mine());
  if (auto accepted = accepted_.find(of.op_id); accepted != accepted_.end()) {
    out.accepted = accepted->second;
    accepted_.erase(accepted);
  }
  for (auto name : {"output", "body"})
    if (auto stream = of.streams.find(name); stream != of.streams.end())
      out.output = streams_[stream->second];
  for (auto& final : out.result.finals)
    if (streams_[final.stream].end < final.position)
      fail("the result came before its output");
  if (out.result.error)
    out.error_code = out.result.error->code;
  if (out.result.result)
    if (auto* object = out.result.result->if_object(); object != nullptr && object->contains("state"))
      out.process = json::read<wire::process_state>(*out.result.result, json::unknown_fields::ignore).value();
  return out;
}

std::optional<wire::op_accepted> agent_client::accepted(const operation& of, milliseconds patience) {
  auto deadline = clock::now() + patience;
  while (!accepted_.contains(of.op_id) && results_[of.op_id].empty())
    if (closed_ || !take_one(deadline))
      fail(of.op_id + " was not accepted");
  if (auto found = accepted_.find(of.op_id); found != accepted_.end())
    return found->second;
  return std::nullopt;
}

void agent_client::wait_output(const operation& of, std::uint64_t bytes, milliseconds patience) {
  auto deadline = clock::now() + patience;
  auto id = of.streams.begin()->second;
  for (auto& [name, stream] : of.streams)
    if (name == "output" || name == "body")
      id = stream;
  while (streams_[id].all.size() < bytes)
    if (closed_ || !take_one(deadline))
      fail("no output of " + of.op_id);
}

bool agent_client::take_for(milliseconds time) {
  auto deadline = clock::now() + time;
  while (!closed_ && take_one(deadline)) {
    // nop
  }
  return closed_;
}

bool agent_client::wait_closed(milliseconds patience) {
  return take_for(patience);
}

json::value agent_client::wait_kind(std::string_view kind, milliseconds patience) {
  auto deadline = clock::now() + patience;
  while (true) {
    for (auto next = others_.begin(); next != others_.end(); ++next)
      if (next->first == kind) {
        auto message = next->second;
        others_.erase(next);
        return message;
      }
    if (closed_ || !take_one(deadline))
      fail("no message " + std::string{kind});
  }
}

operation_end agent_client::run(const std::string& op_id, const wire::process_start& start, milliseconds patience) {
  return finish(this->start(op_id, "process.start", start, {"output"}), patience);
}

operation_end agent_client::shell(const std::string& op_id, const std::string& command) {
  wire::process_start start;
  start.command = command;
  return run(op_id, start);
}

operation_end agent_client::control(const std::string& name, const std::string& op_id, milliseconds patience) {
  wire::process_ref ref;
  ref.process = op_id;
  return finish(start("control-" + std::to_string(next_id_++), name, ref, {}), patience);
}

std::vector<wire::process_state> agent_client::list() {
  auto end = finish(start_value("list-" + std::to_string(next_id_++), "process.list", json::object{}, {}, false, "d"));
  return json::read<wire::process_list>(*end.result.result, json::unknown_fields::ignore).value().processes;
}

std::string agent_client::state_of(const std::string& op_id) {
  wire::op_query query;
  query.query_id = "query-" + std::to_string(next_id_++);
  query.op_ids = {op_id};
  send(query);
  auto states = protocols::read_control<wire::op_states>(wait_kind(wire::op_states::kind)).value();
  return states.states.at(0).state;
}

std::pair<std::string, wire::process_read_result> agent_client::read_log(const std::string& op_id, std::uint64_t from,
                                                                          std::uint64_t max) {
  wire::process_read read;
  read.process = op_id;
  read.from = from;
  read.max = max;
  auto end = finish(start("read-" + std::to_string(next_id_++), "process.read", read, {"body"}));
  if (!end.result.result)
    fail("process.read: " + end.error_code);
  return {end.output.all,
          json::read<wire::process_read_result>(*end.result.result, json::unknown_fields::ignore).value()};
}

bool alive(pid_t pid) {
  std::ifstream stat{"/proc/" + std::to_string(pid) + "/stat"};
  std::string text;
  if (!std::getline(stat, text))
    return false;
  auto close = text.rfind(')');
  return close != text.npos && close + 2 < text.size() && text[close + 2] != 'Z' && text[close + 2] != 'X';
}

} // namespace holt::tests
