#include "protocols/api/processes.hpp"
#include "protocols/ids.hpp"
#include "protocols/sse.hpp"
#include "protocols/utf8.hpp"
#include "runtime/http/commands.hpp"
#include "runtime/http/core.hpp"
#include "runtime/http/output.hpp"

/// …/processes: what runs or ran, by op_id: its state, its log by position, its events, and steering it (spec 37 to 44).
/// All but starting use a running instance only: looking never wakes one (spec 19).
namespace holt::runtime::http {

namespace {

using namespace protocols;

constexpr std::uint64_t max_log_read = 8 * 1024 * 1024;
constexpr std::uint64_t max_stdin_bytes = 64 * 1024 * 1024;

/// A use of the running instance about the process in the path. nullopt: refused, and answered.
std::optional<actors::use_request> use_of_process(exchange& x) {
  auto request = use_of(x);
  if (!request)
    return std::nullopt;
  if (!is_op_id(x.params[1])) {
    x.refuse("process.not_found", "There is no such process.");
    return std::nullopt;
  }
  request->if_running = true;
  return request;
}

task<> answer_state(exchange& x, actors::use_request request) {
  auto done = co_await run(x, std::move(request));
  if (!done)
    co_return;
  if (auto state = result_of<agent::process_state>(x, done->result()))
    x.answer_json(200, view_of(*state));
}

task<> start(exchange& x) {
  auto body = co_await x.read_json_value();
  if (!body)
    co_return;
  auto asked = json::read<api::start_process>(*body);
  if (!asked)
    co_return x.refuse(make_problem(asked.error()));
  if (!check_command(x, asked->command, asked->argv, asked->env))
    co_return;
  auto op_id = chosen_op_id(x, asked->op_id);
  auto request = op_id ? use_of(x) : std::nullopt;
  if (!request)
    co_return;
  agent::process_start what;
  what.argv = asked->argv;
  what.command = asked->command;
  what.cwd = asked->cwd;
  what.env = asked->env;
  what.timeout_ms = asked->timeout_ms;
  what.stdin_mode = asked->keep_stdin_open ? "pipe" : "none";
  what.background = true;
  request->holder = asked->holder.value_or("");
  request->counted = true;
  request->releases_when_accepted = true;
  request->caller_chose_id = !op_id->empty();
  request->op_id = *op_id;
  request->operation = "process.start";
  request->arguments = json::to_value(what);
  request->digest = digest_of("start", std::move(*body));
  auto running = operation::start(x, std::move(*request), {});
  while (!running->accepted() && !running->complete()) {
    co_await running->wait();
    if (x.broken()) {
      running->detach();
      co_return x.cut();
    }
  }
  api::process_started out;
  out.op_id = running->op_id();
  out.state = "running";
  out.attached = running->acceptance().attached;
  out.pid = running->acceptance().pid;
  if (running->complete()) { // it ended already, or never began
    auto& result = running->result();
    if (result.error && !running->accepted())
      co_return refuse_use(x, *result.error);
    out.restarted = result.restarted;
    if (result.result)
      if (auto state = json::read<agent::process_state>(*result.result, json::unknown_fields::ignore)) {
        out.state = state->state;
        out.pid = state->pid ? state->pid : out.pid;
      }
  }
  x.add_header("Holt-Op-Id", out.op_id);
  x.answer_json(202, out);
}

task<> list(exchange& x) {
  auto request = use_of(x);
  if (!request)
    co_return;
  request->if_running = true;
  request->safe_to_repeat = true;
  request->operation = "process.list";
  request->arguments = json::object{};
  auto done = co_await run(x, std::move(*request));
  if (!done)
    co_return;
  auto all = result_of<agent::process_list>(x, done->result());
  if (!all)
    co_return;
  api::process_views out;
  for (auto& state : all->processes)
    out.items.push_back(view_of(state));
  x.answer_json(200, out);
}

task<> show_one(exchange& x) {
  auto request = use_of_process(x);
  if (!request)
    co_return;
  request->safe_to_repeat = true;
  request->operation = "process.get";
  request->arguments = json::to_value(agent::process_ref{std::string{x.params[1]}, 0});
  co_await answer_state(x, std::move(*request));
}

/// The pieces of a log as JSON: text cut only between characters of its stream.
/// `more`: bytes follow, so that a character that is open at the end is left to the next reading.
void add_pieces(api::log_view& out, const std::vector<piece>& pieces, bool base64, bool more) {
  for (auto& one : pieces) {
    if (one.gap_to > one.offset)
      continue;
    const char* stream = one.is_stderr ? "stderr" : "stdout";
    if (!out.pieces.empty() && out.pieces.back().stream == stream &&
        out.pieces.back().offset + out.pieces.back().data.size() == one.offset)
      out.pieces.back().data += one.text();
    else
      out.pieces.push_back({stream, one.offset, std::string{one.text()}});
  }
  if (more && !base64 && !out.pieces.empty()) {
    auto& data = out.pieces.back().data;
    auto open = data.size() - utf8::complete_prefix(data);
    if (open < data.size()) {
      data.resize(data.size() - open);
      out.next -= open;
    }
  }
  for (auto& one : out.pieces) {
    auto shown = show(one.data, base64, false);
    one.data = std::move(shown.text);
    out.lossy = out.lossy || shown.lossy;
  }
}

task<> log_of(exchange& x) {
  query_values query{x.query};
  auto from = number(x, query, "from", 0, 0, std::uint64_t{1} << 62);
  auto max = from ? number(x, query, "max", 1024 * 1024, 1, max_log_read) : std::nullopt;
  if (!max)
    co_return;
  agent::process_read what;
  what.from = *from;
  what.max = *max;
  if (auto* stream = query.find("stream"); stream && *stream != "all") {
    if (*stream != "stdout" && *stream != "stderr")
      co_return x.refuse_field("/query/stream", "must be stdout, stderr or all");
    what.only = *stream;
  }
  auto* encoding = query.find("output_encoding");
  if (encoding && *encoding != "utf-8" && *encoding != "base64")
    co_return x.refuse_field("/query/output_encoding", "must be utf-8 or base64");
  auto request = use_of_process(x);
  if (!request)
    co_return;
  what.process = std::string{x.params[1]};
  request->safe_to_repeat = true;
  request->operation = "process.read";
  request->arguments = json::to_value(what);
  operation_plan plan;
  plan.in = operation_plan::intake::queue;
  plan.in_name = "body";
  plan.window = max_log_read + 64 * 1024; // bounded by `max`: it is held as a whole
  auto done = co_await run(x, std::move(*request), std::move(plan));
  if (!done)
    co_return;
  auto result = result_of<agent::process_read_result>(x, done->result());
  if (!result)
    co_return;
  if (done->lost())
    co_return x.refuse("environment.unavailable", "The log broke off on its way; try again.");
  std::vector<piece> pieces;
  done->take(pieces);
  if (x.accepts("application/json")) {
    // The stream's own positions begin at 0; the log's at `from`, unless one of its streams alone was asked for.
    if (!what.only)
      for (auto& one : pieces)
        one.offset += result->from;
    api::log_view out;
    out.from = result->from;
    out.next = result->next;
    out.end = result->end;
    out.running = result->running;
    out.output_encoding = encoding ? *encoding : "utf-8";
    if (result->omitted)
      out.omitted = api::missing_range{result->omitted->from, result->omitted->to};
    add_pieces(out, pieces, out.output_encoding == "base64", !what.only && (result->running || result->next < result->end));
    co_return x.answer_json(200, out);
  }
  std::string bytes;
  for (auto& one : pieces)
    bytes += one.text();
  x.add_header("Holt-Log-From", std::to_string(result->from));
  x.add_header("Holt-Log-Next", std::to_string(result->next));
  x.add_header("Holt-Log-End", std::to_string(result->end));
  x.add_header("Holt-Log-Running", result->running ? "true" : "false");
  if (result->omitted)
    x.add_header("Holt-Log-Omitted", std::to_string(result->omitted->from) + "-" + std::to_string(result->omitted->to));
  x.answer(200, "application/octet-stream", std::move(bytes));
}

task<> events_of(exchange& x) {
  query_values query{x.query};
  auto from = number(x, query, "after", 0, 0, std::uint64_t{1} << 62);
  auto request = from ? use_of_process(x) : std::nullopt;
  if (!request)
    co_return;
  auto* encoding = query.find("output_encoding");
  if (encoding && *encoding != "utf-8" && *encoding != "base64")
    co_return x.refuse_field("/query/output_encoding", "must be utf-8 or base64");
  // What a client that comes back has seen counts more than where it began.
  if (std::string last{x.header("Last-Event-ID")}; !last.empty()) {
    auto colon = last.rfind(':');
    query_values position{colon == std::string::npos ? "after=x" : "after=" + last.substr(colon + 1)};
    if (colon == std::string::npos || last.substr(0, colon) != x.params[1])
      co_return x.refuse_field("/Last-Event-ID", "must be an event id of this process, op_id:position");
    from = number(x, position, "after", 0, 0, std::uint64_t{1} << 62);
    if (!from)
      co_return;
  }
  request->kind = actors::use_kind::attach;
  request->op_id = std::string{x.params[1]};
  request->attach_from = *from;
  request->safe_to_repeat = true;
  operation_plan plan;
  plan.in = operation_plan::intake::queue;
  plan.window = event_window;
  auto running = operation::start(x, std::move(*request), std::move(plan));
  co_await stream_events(x, running, encoding && *encoding == "base64", *from, false);
}

task<> stop(exchange& x) {
  auto asked = co_await x.read_json<api::stop_request>();
  auto request = asked ? use_of_process(x) : std::nullopt;
  if (!request)
    co_return;
  request->operation = "process.stop";
  request->arguments = json::to_value(agent::process_ref{std::string{x.params[1]}, asked->grace_ms});
  co_await answer_state(x, std::move(*request));
}

task<> send_signal(exchange& x) {
  auto asked = co_await x.read_json<api::signal_request>();
  auto request = asked ? use_of_process(x) : std::nullopt;
  if (!request)
    co_return;
  request->operation = "process.signal";
  request->arguments = json::to_value(agent::process_signal{std::string{x.params[1]}, asked->signal});
  co_await answer_state(x, std::move(*request));
}

task<> to_background(exchange& x) {
  auto asked = co_await x.read_json<api::empty_request>();
  auto request = asked ? use_of_process(x) : std::nullopt;
  if (!request)
    co_return;
  request->operation = "process.background";
  request->arguments = json::to_value(agent::process_ref{std::string{x.params[1]}, 0});
  co_await answer_state(x, std::move(*request));
}

task<> resize(exchange& x) {
  auto asked = co_await x.read_json<api::resize_request>();
  auto request = asked ? use_of_process(x) : std::nullopt;
  if (!request)
    co_return;
  request->operation = "process.resize";
  request->arguments = json::to_value(agent::process_resize{std::string{x.params[1]}, {asked->cols, asked->rows}});
  co_await answer_state(x, std::move(*request));
}

task<> write_stdin(exchange& x) {
  query_values query{x.query};
  auto close = flag(x, query, "close");
  auto request = close ? use_of_process(x) : std::nullopt;
  if (!request)
    co_return;
  auto body = co_await x.read_body(max_stdin_bytes);
  if (!body)
    co_return x.refuse(body.error());
  request->operation = "process.stdin";
  request->arguments = json::to_value(agent::process_stdin{std::string{x.params[1]}, *close});
  operation_plan plan;
  plan.out_name = "body";
  auto size = body->size();
  plan.input = std::move(*body);
  auto done = co_await run(x, std::move(*request), std::move(plan));
  if (!done)
    co_return;
  if (auto state = result_of<agent::process_state>(x, done->result()))
    x.answer_json(200, api::stdin_answer{size, *close, state->state});
}

constexpr const char* process_path = "/v1/environments/{id}/processes/{op_id}";

std::vector<std::string> process_errors() {
  return {"environment.not_found", "environment.not_running", "environment.unavailable", "process.not_found",
          "operation.expired"};
}

void add_steering(route_table& table, const char* verb_in_path, const char* id, const char* summary, media_doc body,
                  bool body_required, handler run) {
  auto errors = process_errors();
  errors.push_back("process.ended");
  table.add({.doc = {.method = "POST",
                     .path = std::string{process_path} + verb_in_path,
                     .id = id,
                     .tag = "processes",
                     .summary = summary,
                     .request = {std::move(body)},
                     .request_required = body_required,
                     .responses = {{200, "Its state now.", {json_answer<api::process_view>()}}},
                     .errors = errors},
             .run = run,
             .scopes = scope_use});
}

} // namespace

void add_process_routes(route_table& table) {
  parameter_doc encoding{.name = "output_encoding", .doc = "`utf-8` (repaired, marked lossy) or `base64`."};
  table.add({.doc = {.method = "GET", .path = "/v1/environments/{id}/processes", .id = "list_processes", .tag = "processes",
                     .summary = "Processes that run or ran",
                     .responses = {{200, "As the running instance knows them.", {json_answer<api::process_views>()}}},
                     .errors = {"environment.not_found", "environment.not_running", "environment.unavailable"}},
             .run = list,
             .scopes = scope_use});
  table.add({.doc = {.method = "POST", .path = "/v1/environments/{id}/processes", .id = "start_process", .tag = "processes",
                     .summary = "Start a process in the background",
                     .parameters = {{.name = "Idempotency-Key", .in = "header", .doc = "The same as `op_id`."}},
                     .request = {json_body<api::start_process>()},
                     .responses = {{202, "It runs.", {json_answer<api::process_started>()}}},
                     .errors = {"environment.not_found", "environment.busy", "environment.files_lost", "environment.unavailable",
                                "sandbox.unavailable", "operation.conflict", "operation.expired", "operation.outcome_unknown",
                                "process.cwd_not_found", "process.limit"}},
             .run = start,
             .scopes = scope_use});
  table.add({.doc = {.method = "GET", .path = process_path, .id = "show_process", .tag = "processes", .summary = "State of a process",
                     .responses = {{200, "Its state.", {json_answer<api::process_view>()}}},
                     .errors = process_errors()},
             .run = show_one,
             .scopes = scope_use});
  table.add({.doc = {.method = "GET", .path = std::string{process_path} + "/log", .id = "process_log", .tag = "processes",
                     .summary = "Bytes of the log by position",
                     .doc = "Plain bytes, with where to read on in `Holt-Log-Next`; or JSON (`Accept: application/json`).",
                     .parameters = {{.name = "from", .doc = "Position of the first byte.", .schema = count_schema},
                                    {.name = "max", .doc = "Most bytes, up to 8 MiB.", .schema = count_schema},
                                    {.name = "stream", .doc = "`stdout`, `stderr` or `all`."},
                                    encoding},
                     .responses = {{200, "What the log keeps there.",
                                    {{"application/octet-stream", bytes_schema}, json_answer<api::log_view>()},
                                    {{.name = "Holt-Log-From", .schema = count_schema},
                                     {.name = "Holt-Log-Next", .schema = count_schema},
                                     {.name = "Holt-Log-End", .schema = count_schema},
                                     {.name = "Holt-Log-Omitted", .doc = "FROM-TO of what is not kept."}}}},
                     .errors = process_errors()},
             .run = log_of,
             .scopes = scope_use});
  table.add({.doc = {.method = "GET", .path = std::string{process_path} + "/events", .id = "process_events", .tag = "processes",
                     .summary = "Follow a process from a position of its output",
                     .doc = "The same events as exec's; ends with `exit`.",
                     .parameters = {{.name = "after", .doc = "Position to begin at.", .schema = count_schema},
                                    {.name = "Last-Event-ID", .in = "header", .doc = "Counts more than `after`."},
                                    encoding},
                     .responses = {{200, "Events.", {{std::string{sse_content_type}, text_schema}}}},
                     .errors = process_errors()},
             .run = events_of,
             .scopes = scope_use,
             .head_too = false});
  add_steering(table, "/stop", "stop_process", "End a process and everything it started", json_body<api::stop_request>(), false, stop);
  add_steering(table, "/signal", "signal_process", "Send a signal", json_body<api::signal_request>(), true, send_signal);
  add_steering(table, "/background", "background_process", "Let a foreground process go on by itself",
               json_body<api::empty_request>(), false, to_background);
  add_steering(table, "/resize", "resize_process", "Size of its terminal", json_body<api::resize_request>(), true, resize);
  auto errors = process_errors();
  errors.push_back("process.ended");
  errors.push_back("request.too_large");
  table.add({.doc = {.method = "POST", .path = std::string{process_path} + "/stdin", .id = "write_stdin", .tag = "processes",
                     .summary = "Append to its standard input",
                     .parameters = {{.name = "close", .doc = "End the input after these bytes.", .schema = boolean_schema}},
                     .request = {{"application/octet-stream", bytes_schema}},
                     .request_required = false,
                     .responses = {{200, "Written.", {json_answer<api::stdin_answer>()}}},
                     .errors = errors},
             .run = write_stdin,
             .scopes = scope_use});
}

} // namespace holt::runtime::http
