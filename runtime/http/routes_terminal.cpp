#include <boost/asio/co_spawn.hpp>

#include "protocols/api/processes.hpp"
#include "protocols/ids.hpp"
#include "runtime/http/commands.hpp"
#include "runtime/http/core.hpp"
#include "runtime/http/output.hpp"
#include "runtime/http/secrets.hpp"

/// GET …/terminal: a shell on a WebSocket (spec 37, 43). Binary messages are bytes both ways; text messages are JSON: from
/// the client {"resize": {"cols", "rows"}} and {"close": true} (ends the input), from the server {"started": …},
/// {"gap": …}, {"exit": …} and {"error": …}. The shell goes on when the socket drops, and is taken up again by op_id.
namespace holt::runtime::http {

namespace {

using namespace protocols;

/// From the client, in a text message.
struct terminal_control {
  std::optional<api::resize_request> resize;
  std::optional<bool> close;
};
BOOST_DESCRIBE_STRUCT(terminal_control, (), (resize, close))

std::optional<terminal_control> read_control(std::string_view text) {
  auto control = json::read_text<terminal_control>(text, json::unknown_fields::refuse, {.max_bytes = 4096, .max_depth = 4});
  return control ? std::optional{std::move(*control)} : std::nullopt;
}

/// What the reading and the writing coroutine share. Both on the connection's strand.
struct terminal_session {
  std::shared_ptr<web_socket> socket;
  std::shared_ptr<operation> running;
  std::shared_ptr<wakeup> changed; // the reader ended
  actors::front* front = nullptr;
  std::string org_id, environment_id;
  bool owns_input = false; // the stream "stdin" is this connection's; else input goes by process.stdin
  bool reading = true;
};

std::shared_ptr<actors::use_request> request_about(const terminal_session& session, std::string operation, json::value arguments) {
  auto request = std::make_shared<actors::use_request>();
  request->org_id = session.org_id;
  request->environment_id = session.environment_id;
  request->if_running = true;
  request->op_id = random_id(id_kind::operation);
  request->operation = std::move(operation);
  request->digest = sha256_hex(request->operation + "\n" + json::write_text(arguments));
  request->arguments = std::move(arguments);
  return request;
}

void resize_to(const terminal_session& session, const api::resize_request& size) {
  agent::process_resize what{session.running->op_id(), {size.cols, size.rows}};
  session.front->use(request_about(session, "process.resize", json::to_value(what)), [](actors::use_result) {});
}

/// Hands a body to the agent once it was accepted. Any thread.
class body_sender : public actors::operation_observer {
public:
  explicit body_sender(std::string bytes) : bytes_(std::make_shared<std::string>(std::move(bytes))) {
  }
  void on_accepted(std::shared_ptr<actors::agent_channel> channel, std::vector<std::uint32_t> streams,
                   const agent::op_accepted&) override {
    if (streams.empty())
      return;
    auto bytes = std::as_bytes(std::span{bytes_->data(), bytes_->size()});
    channel->send_data(streams.front(), {bytes_, bytes}, true, [](bool) {});
  }

private:
  std::shared_ptr<std::string> bytes_;
};

actors::shared_bytes shared_text(std::string text) {
  auto owner = std::make_shared<std::string>(std::move(text));
  auto bytes = std::as_bytes(std::span{owner->data(), owner->size()});
  return {std::move(owner), bytes};
}

std::shared_ptr<actors::use_request> input_request(const terminal_session& session, std::string bytes, bool close) {
  agent::process_stdin what{session.running->op_id(), close};
  auto request = request_about(session, "process.stdin", json::to_value(what));
  request->observer = std::make_shared<body_sender>(std::move(bytes));
  request->streams.push_back({"body", nullptr});
  return request;
}

task<bool> send_input(terminal_session& session, std::string bytes, bool close) {
  if (session.owns_input) {
    auto piece = shared_text(std::move(bytes));
    co_return co_await session.running->send(std::move(piece), close);
  }
  auto request = input_request(session, std::move(bytes), close);
  auto ask = [front = session.front, request](auto reply) { front->use(request, std::move(reply)); };
  auto done = co_await answer_of<actors::use_result>(std::move(ask));
  co_return !done.error;
}

/// From the client to the shell, until the client closes.
task<> read_client(std::shared_ptr<terminal_session> session) {
  while (auto message = co_await session->socket->read()) {
    if (!message->text) {
      if (!message->data.empty())
        co_await send_input(*session, std::move(message->data), false);
      continue;
    }
    auto control = read_control(message->data);
    if (control && control->resize)
      resize_to(*session, *control->resize);
    if (control && control->close.value_or(false))
      co_await send_input(*session, std::string{}, true);
  }
  session->reading = false;
  session->changed->notify();
}

// Braced lists stand in plain functions here: g++ 12 miscompiles them inside coroutines.

std::vector<asio::const_buffer> one_buffer(const void* data, std::size_t size) {
  return {asio::const_buffer{data, size}};
}

json::value started_message(const operation& running) {
  auto acceptance = running.acceptance();
  return json::object{{"op_id", running.op_id()}, {"attached", acceptance.attached}};
}

json::value gap_message(const piece& one) {
  return json::object{{"from", one.offset}, {"to", one.gap_to}};
}

task<bool> send_json(web_socket& socket, std::string_view name, json::value body) {
  json::object message;
  message[name] = std::move(body);
  auto text = json::write_text(message);
  auto buffers = one_buffer(text.data(), text.size());
  co_return co_await socket.write(true, std::move(buffers));
}

/// The last message: how the shell ended, or why its stream did.
task<> send_end(terminal_session& session) {
  auto& result = session.running->result();
  if (result.error) {
    auto problem = json::to_value(make_problem(result.error->code, result.error->message, result.error->details));
    co_await send_json(*session.socket, "error", std::move(problem));
    co_return;
  }
  auto state = json::read<agent::process_state>(result.result ? *result.result : json::value{}, json::unknown_fields::ignore);
  auto message = state ? json::to_value(view_of(*state))
                       : json::to_value(make_problem("agent.failed", "The agent's answer is no process's state."));
  co_await send_json(*session.socket, state ? "exit" : "error", std::move(message));
}

/// From the shell to the client. True: the shell ended and the client was told.
task<bool> write_client(exchange& x, std::shared_ptr<terminal_session> session) {
  auto& running = *session->running;
  std::vector<piece> pieces;
  while (true) {
    bool complete = running.complete();
    pieces.clear();
    running.take(pieces);
    for (auto& one : pieces) {
      bool sent = false;
      if (one.gap_to > one.offset) {
        auto message = gap_message(one);
        sent = co_await send_json(*session->socket, "gap", std::move(message));
      } else {
        auto buffers = one_buffer(one.bytes.bytes.data(), one.bytes.bytes.size());
        sent = co_await session->socket->write(false, std::move(buffers));
      }
      if (!sent)
        co_return false;
    }
    if (!pieces.empty())
      running.consumed(pieces.back().end());
    if (complete) {
      co_await send_end(*session);
      co_return true;
    }
    if (!session->reading || x.broken())
      co_return false;
    if (pieces.empty())
      co_await running.wait();
  }
}

struct terminal_asked {
  actors::use_request request;
  operation_plan plan;
};

/// From the query: a new terminal, or one that is taken up again. nullopt: refused, and answered.
std::optional<terminal_asked> read_query(exchange& x) {
  query_values query{x.query};
  auto cols = number(x, query, "cols", 80, 1, 4096);
  auto rows = cols ? number(x, query, "rows", 24, 1, 4096) : std::nullopt;
  auto from = rows ? number(x, query, "from", 0, 0, std::uint64_t{1} << 62) : std::nullopt;
  auto base = from ? use_of(x) : std::nullopt;
  if (!base)
    return std::nullopt;
  terminal_asked out{std::move(*base), {}};
  out.plan.in = operation_plan::intake::queue;
  out.plan.window = event_window;
  if (auto* holder = query.find("holder"))
    out.request.holder = *holder;
  if (auto* op_id = query.find("op_id")) {
    if (!is_op_id(*op_id)) {
      x.refuse_field("/query/op_id", "must be the op_id of a terminal");
      return std::nullopt;
    }
    out.request.kind = actors::use_kind::attach;
    out.request.op_id = *op_id;
    out.request.attach_from = *from;
    out.request.if_running = true;
    out.request.safe_to_repeat = true;
    return out;
  }
  agent::process_start what;
  if (auto* command = query.find("command"))
    what.command = *command;
  else
    what.command = "exec \"${SHELL:-/bin/sh}\" -i";
  what.terminal = agent::terminal_size{static_cast<std::uint16_t>(*cols), static_cast<std::uint16_t>(*rows)};
  what.stdin_mode = "pipe";
  what.env = std::map<std::string, std::string>{{"TERM", "xterm-256color"}};
  out.request.counted = true;
  out.request.releases_when_accepted = true;
  out.request.operation = "process.start";
  out.request.arguments = json::to_value(what);
  out.request.digest = sha256_hex("terminal\n" + json::write_text(out.request.arguments));
  out.plan.out_name = "stdin";
  return out;
}

task<> terminal(exchange& x) {
  auto asked = read_query(x);
  if (!asked)
    co_return;
  auto session = std::make_shared<terminal_session>();
  session->front = x.core().parts.front;
  session->org_id = asked->request.org_id;
  session->environment_id = asked->request.environment_id;
  session->owns_input = !asked->plan.out_name.empty();
  auto running = operation::start(x, std::move(asked->request), std::move(asked->plan));
  session->running = running;
  session->changed = running->waker();
  while (!running->accepted() && !running->complete()) {
    co_await running->wait();
    if (x.broken()) {
      running->detach();
      co_return x.cut();
    }
  }
  if (running->complete() && running->result().error && !running->accepted())
    co_return refuse_use(x, *running->result().error);
  session->socket = co_await x.upgrade();
  if (!session->socket) {
    running->detach();
    co_return;
  }
  // A named local, moved in (g++ 12).
  auto reader = [session]() -> task<> { return read_client(session); };
  asio::co_spawn(x.home(), std::move(reader), [session](std::exception_ptr) {
    session->reading = false;
    session->changed->notify();
  });
  auto started = started_message(*running);
  bool told = co_await send_json(*session->socket, "started", std::move(started));
  if (told)
    told = co_await write_client(x, session);
  if (!told)
    running->detach(); // the shell goes on
  // The last message, then the close, then the end of the connection.
  if (session->reading && told)
    co_await session->socket->close(1000, "the process ended");
  session->socket->cut();
  while (session->reading)
    co_await session->changed->wait(clock::now() + std::chrono::seconds{1});
}

} // namespace

void add_terminal_routes(route_table& table) {
  table.add({.doc = {.method = "GET", .path = "/v1/environments/{id}/terminal", .id = "terminal", .tag = "processes",
                     .summary = "A terminal on a WebSocket",
                     .doc = "Binary messages are bytes both ways. Text messages are JSON: `{\"resize\":{\"cols\",\"rows\"}}` and "
                            "`{\"close\":true}` from the client; `started`, `gap`, `exit` and `error` from the server. The shell goes on "
                            "when the socket drops: come back with its `op_id` and the position `from`.",
                     .parameters = {{.name = "cols", .schema = count_schema},
                                    {.name = "rows", .schema = count_schema},
                                    {.name = "command", .doc = "For the shell; default: an interactive one."},
                                    {.name = "op_id", .doc = "Take up this terminal again."},
                                    {.name = "from", .doc = "Position of its output to begin at.", .schema = count_schema},
                                    {.name = "holder"}},
                     .responses = {{101, "The WebSocket begins."}},
                     .errors = {"request.invalid", "environment.not_found", "environment.not_running", "environment.busy",
                                "environment.files_lost", "environment.unavailable", "sandbox.unavailable", "process.not_found"}},
             .run = terminal,
             .scopes = scope_use,
             .head_too = false});
}

} // namespace holt::runtime::http
