#include "protocols/api/processes.hpp"
#include "protocols/ids.hpp"
#include "protocols/sse.hpp"
#include "runtime/http/commands.hpp"
#include "runtime/http/core.hpp"
#include "runtime/http/output.hpp"

/// POST …/exec: one command, answered as JSON, as events, or as plain bytes (spec 37 to 44).
namespace holt::runtime::http {

namespace {

using namespace protocols;

agent::process_start start_of(const api::exec_request& asked) {
  agent::process_start out;
  out.argv = asked.argv;
  out.command = asked.command;
  out.cwd = asked.cwd;
  out.env = asked.env;
  out.timeout_ms = asked.timeout_ms;
  out.stdin_mode = asked.stdin || asked.keep_stdin_open ? "pipe" : "none";
  return out;
}

task<> answer_collected(exchange& x, std::shared_ptr<operation> running, const api::exec_request& asked, bool cancel) {
  if (!co_await wait_complete(x, *running, cancel))
    co_return;
  auto& result = running->result();
  if (result.error)
    co_return refuse_use(x, *result.error);
  auto state = result_of<agent::process_state>(x, result);
  if (!state)
    co_return;
  auto out = exec_result_of(*state, result);
  out.op_id = running->op_id();
  auto& got = running->collection();
  bool base64 = asked.output_encoding == "base64";
  auto shown_out = show(got.out, base64, got.out_bytes > got.out.size());
  auto shown_err = show(got.err, base64, got.err_bytes > got.err.size());
  out.output_encoding = asked.output_encoding;
  out.stdout = std::move(shown_out.text);
  out.stderr = std::move(shown_err.text);
  out.lossy = shown_out.lossy || shown_err.lossy;
  out.truncated = got.out_bytes > got.out.size() || got.err_bytes > got.err.size();
  out.stdout_bytes = got.out_bytes;
  out.stderr_bytes = got.err_bytes;
  if (auto lost = running->lost())
    got.gaps.push_back(*lost);
  if (!got.gaps.empty()) {
    out.missing.emplace();
    for (auto& [from, to] : got.gaps)
      out.missing->push_back({from, to});
  }
  x.answer_json(200, out);
}

task<> exec(exchange& x) {
  auto body = co_await x.read_json_value();
  if (!body)
    co_return;
  auto asked = json::read<api::exec_request>(*body);
  if (!asked)
    co_return x.refuse(make_problem(asked.error()));
  if (!check_command(x, asked->command, asked->argv, asked->env))
    co_return;
  if (asked->stdin && asked->keep_stdin_open)
    co_return x.refuse_field("/keep_stdin_open", "and stdin can't both be given: stdin is the whole input");
  auto op_id = chosen_op_id(x, asked->op_id);
  if (!op_id)
    co_return;
  query_values query{x.query};
  auto cancel = flag(x, query, "cancel_on_disconnect");
  if (!cancel)
    co_return;
  auto request = use_of(x);
  if (!request)
    co_return;
  request->holder = asked->holder.value_or("");
  request->counted = true;
  request->caller_chose_id = !op_id->empty();
  request->op_id = *op_id;
  request->operation = "process.start";
  request->arguments = json::to_value(start_of(*asked));
  request->digest = digest_of("exec", std::move(*body));

  operation_plan plan;
  if (asked->stdin) {
    plan.out_name = "stdin";
    plan.input = std::move(asked->stdin->data);
  }
  if (x.accepts(sse_content_type)) {
    plan.in = operation_plan::intake::queue;
    plan.window = event_window;
    auto running = operation::start(x, std::move(*request), std::move(plan));
    co_return co_await stream_events(x, running, asked->output_encoding == "base64", 0, *cancel);
  }
  if (x.accepts("application/octet-stream")) {
    plan.in = operation_plan::intake::queue;
    plan.window = bulk_window;
    auto running = operation::start(x, std::move(*request), std::move(plan));
    co_return co_await stream_bytes(x, running, *cancel);
  }
  plan.in = operation_plan::intake::collect;
  plan.collect_limit = asked->max_output_bytes;
  auto running = operation::start(x, std::move(*request), std::move(plan));
  co_await answer_collected(x, running, *asked, *cancel);
}

} // namespace

void add_exec_routes(route_table& table) {
  table.add(
    {.doc = {.method = "POST",
             .path = "/v1/environments/{id}/exec",
             .id = "exec",
             .tag = "processes",
             .summary = "Run a command and answer how it ended",
             .doc = "As JSON, or as events (`Accept: text/event-stream`: `started`, `stdout`, `stderr`, `gap`, `exit`, `error`; ids "
                    "are `op_id:position`), or as the bytes of stdout and stderr (`Accept: application/octet-stream`, with "
                    "trailers `Holt-State`, `Holt-Exit-Code`, `Holt-Signal`). A client that leaves does not end the command.",
             .parameters = {{.name = "Idempotency-Key", .in = "header", .doc = "The same as `op_id`."},
                            {.name = "cancel_on_disconnect", .doc = "End the command when the client leaves.", .schema = boolean_schema}},
             .request = {json_body<api::exec_request>()},
             .responses = {{200,
                            "It ended, or its output follows.",
                            {json_answer<api::exec_result>(), {std::string{sse_content_type}, text_schema}, {"application/octet-stream", bytes_schema}}}},
             .errors = {"environment.not_found", "environment.busy", "environment.files_lost", "environment.unavailable",
                        "sandbox.unavailable", "sandbox.refused", "operation.conflict", "operation.expired",
                        "operation.outcome_unknown", "instance.gone", "process.cwd_not_found", "process.limit", "storage.quota"}},
     .run = exec,
     .scopes = scope_use});
}

} // namespace holt::runtime::http
