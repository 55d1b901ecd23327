#include "runtime/http/commands.hpp"

#include <charconv>

#include "protocols/ids.hpp"
#include "protocols/json_canonical.hpp"
#include "protocols/json_write.hpp"
#include "protocols/sse.hpp"
#include "runtime/http/core.hpp"
#include "runtime/http/output.hpp"
#include "runtime/http/secrets.hpp"

namespace holt::runtime::http {

using namespace protocols;

bool check_command(exchange& x, const std::optional<std::string>& command,
                   const std::optional<std::vector<std::string>>& argv,
                   const std::optional<std::map<std::string, std::string>>& env) {
  if (command.has_value() == argv.has_value())
    return x.refuse_field("/command", "or argv must be given, and not both"), false;
  if (argv && argv->front().empty())
    return x.refuse_field("/argv/0", "must name a program"), false;
  if (!env)
    return true;
  for (auto& [name, value] : *env)
    if (name.empty() || name.find('=') != std::string::npos)
      return x.refuse_field("/env", "has a name that is empty or holds ="), false;
  return true;
}

std::optional<std::string> chosen_op_id(exchange& x, const std::optional<std::string>& in_body) {
  std::string key{x.header("Idempotency-Key")};
  // The IETF draft has it quoted.
  if (key.size() >= 2 && key.front() == '"' && key.back() == '"')
    key = key.substr(1, key.size() - 2);
  if (!key.empty() && !is_op_id(key)) {
    x.refuse_field("/Idempotency-Key", "must be 1 to 128 letters, digits, _, - and ., beginning with a letter or digit");
    return std::nullopt;
  }
  if (in_body && !key.empty() && *in_body != key) {
    x.refuse_field("/op_id", "must be the same as Idempotency-Key, where both are given");
    return std::nullopt;
  }
  return in_body ? *in_body : key;
}

std::string digest_of(std::string_view what, json::value body) {
  auto& fields = body.as_object();
  for (auto name : {"op_id", "holder", "output_encoding", "max_output_bytes"})
    fields.erase(name);
  // Absent and null mean the same.
  for (auto it = fields.begin(); it != fields.end();)
    it = it->value().is_null() ? fields.erase(it) : std::next(it);
  return sha256_hex(std::string{what} + "\n" + json::canonical(body));
}

std::optional<bool> flag(exchange& x, const query_values& query, std::string_view name) {
  auto* given = query.find(name);
  if (given == nullptr || *given == "false" || *given == "0")
    return false;
  if (*given == "true" || *given == "1" || given->empty())
    return true;
  x.refuse_field("/query/" + std::string{name}, "must be true or false");
  return std::nullopt;
}

std::optional<std::uint64_t> number(exchange& x, const query_values& query, std::string_view name, std::uint64_t fallback,
                                    std::uint64_t min, std::uint64_t max) {
  auto* given = query.find(name);
  if (given == nullptr)
    return fallback;
  std::uint64_t value = 0;
  auto [end, error] = std::from_chars(given->data(), given->data() + given->size(), value);
  if (error == std::errc{} && end == given->data() + given->size() && !given->empty() && value >= min && value <= max)
    return value;
  x.refuse_field("/query/" + std::string{name},
                 "must be a whole number from " + std::to_string(min) + " to " + std::to_string(max));
  return std::nullopt;
}

api::exec_result exec_result_of(const agent::process_state& state, const actors::use_result& result) {
  api::exec_result out;
  out.op_id = state.op_id;
  out.state = state.state;
  out.exit_code = state.exit_code;
  out.signal = state.signal;
  out.reason = state.reason;
  out.timed_out = state.state == "timed_out";
  out.output_open = state.output_open;
  out.survivors = state.survivors;
  out.restarted = result.restarted;
  out.duration_ms = state.duration_ms;
  return out;
}

namespace {

using buffers = std::vector<asio::const_buffer>;

/// Until accepted, or answered. False: answered with its error, or the client is gone.
task<bool> wait_accepted(exchange& x, operation& running, bool cancel_on_disconnect) {
  if (cancel_on_disconnect)
    x.watch_client();
  while (!running.accepted() && !running.complete()) {
    co_await running.wait();
    if (x.broken() || (x.client_left() && cancel_on_disconnect)) {
      cancel_on_disconnect ? running.cancel() : running.detach();
      x.cut();
      co_return false;
    }
  }
  if (running.complete() && running.result().error && !running.accepted()) {
    refuse_use(x, *running.result().error);
    co_return false;
  }
  co_return true;
}

void leave(exchange& x, operation& running, bool cancel_on_disconnect) {
  if (cancel_on_disconnect)
    running.cancel();
  running.detach();
  x.cut();
}

/// The last event: how the process ended, or why its stream did.
void append_end(std::string& out, operation& running, const event_encoder& encoder) {
  auto& result = running.result();
  auto error = result.error;
  std::optional<agent::process_state> state;
  if (!error) {
    auto read = json::read<agent::process_state>(result.result ? *result.result : json::value{}, json::unknown_fields::ignore);
    if (read)
      state = std::move(*read);
    else
      error = actors::use_error{"agent.failed", "The agent's answer is no process's state.", {}, {}};
  }
  if (error) {
    append_sse(out, "error", write_problem(make_problem(error->code, error->message, error->details)), encoder.id());
    return;
  }
  auto end = json::to_value(exec_result_of(*state, result));
  for (auto name : {"stdout", "stderr", "output_encoding", "lossy", "truncated", "stdout_bytes", "stderr_bytes"})
    end.as_object().erase(name);
  end.as_object()["output_bytes"] = state->output_bytes;
  append_sse(out, "exit", json::write_text(end), encoder.id());
}

} // namespace

task<> stream_events(exchange& x, std::shared_ptr<operation> running, bool base64, std::uint64_t from,
                     bool cancel_on_disconnect) {
  if (!co_await wait_accepted(x, *running, cancel_on_disconnect))
    co_return;
  x.add_header("Holt-Op-Id", running->op_id());
  event_encoder encoder{running->op_id(), base64, from};
  std::string text;
  json::object started{{"op_id", running->op_id()}, {"attached", running->acceptance().attached}};
  if (auto pid = running->acceptance().pid)
    started["pid"] = *pid;
  append_sse(text, "started", json::write_text(started), encoder.id());
  bool there = co_await x.begin(200, sse_content_type, std::nullopt);
  x.watch_client();
  std::vector<piece> pieces;
  std::optional<clock::time_point> left_at;
  auto send_text = [&]() -> task<bool> {
    asio::const_buffer one{text.data(), text.size()};
    bool sent = co_await x.write({&one, 1});
    text.clear();
    co_return sent;
  };
  while (there) {
    bool complete = running->complete(); // before taking: what came until then is all
    pieces.clear();
    running->take(pieces);
    for (auto& one : pieces) {
      if (one.gap_to > one.offset)
        encoder.gap(text, one.offset, one.gap_to);
      else
        encoder.data(text, one.offset, one.text(), one.is_stderr);
      if (text.size() > 256 * 1024)
        there = there && co_await send_text();
    }
    if (complete) {
      if (auto lost = running->lost())
        encoder.gap(text, lost->first, lost->second);
      encoder.finish(text);
      append_end(text, *running, encoder);
      if (there && co_await send_text() && co_await x.finish())
        co_return;
      break;
    }
    if (!text.empty())
      there = there && co_await send_text();
    if (!pieces.empty()) {
      running->consumed(pieces.back().end());
      continue;
    }
    auto wake_at = clock::now() + x.core().settings.heartbeat;
    co_await running->wait(wake_at);
    if (clock::now() >= wake_at)
      append_sse_comment(text, "still here");
    // Event streams are read to their end: a client that closed its side has gone.
    if (x.broken() || x.client_left())
      there = false;
  }
  leave(x, *running, cancel_on_disconnect);
}

task<> stream_bytes(exchange& x, std::shared_ptr<operation> running, bool cancel_on_disconnect) {
  if (!co_await wait_accepted(x, *running, cancel_on_disconnect))
    co_return;
  x.add_header("Holt-Op-Id", running->op_id());
  x.add_header("Trailer", "Holt-State, Holt-Exit-Code, Holt-Signal, Holt-Restarted");
  bool there = co_await x.begin(200, "application/octet-stream", std::nullopt);
  x.watch_client();
  std::vector<piece> pieces;
  buffers gather;
  while (there) {
    bool complete = running->complete();
    pieces.clear();
    running->take(pieces);
    // Many frames in one call, from where they were read; credit for each part as soon as it is out.
    constexpr std::size_t frames_a_call = 16;
    for (std::size_t first = 0; there && first < pieces.size(); first += frames_a_call) {
      gather.clear();
      auto last = std::min(pieces.size(), first + frames_a_call);
      for (auto i = first; i < last; ++i) {
        if (pieces[i].gap_to > pieces[i].offset)
          there = false; // bytes are missing, and nothing in this format could say so
        gather.emplace_back(pieces[i].bytes.bytes.data(), pieces[i].bytes.bytes.size());
      }
      there = there && co_await x.write(gather);
      auto position = pieces[last - 1].end();
      for (auto i = first; i < last; ++i)
        pieces[i].bytes = {};
      running->consumed(position);
    }
    if (!there)
      break;
    if (complete) {
      auto& result = running->result();
      auto state = json::read<agent::process_state>(result.result ? *result.result : json::value{}, json::unknown_fields::ignore);
      if (result.error || running->lost() || !state)
        break; // cut short: nobody takes this for all of it
      std::string trailers = "Holt-State: " + state->state + "\r\n";
      if (state->exit_code)
        trailers += "Holt-Exit-Code: " + std::to_string(*state->exit_code) + "\r\n";
      if (state->signal && state->signal->find_first_of("\r\n") == std::string::npos)
        trailers += "Holt-Signal: " + *state->signal + "\r\n";
      trailers += std::string{"Holt-Restarted: "} + (result.restarted ? "true" : "false") + "\r\n";
      co_await x.finish(trailers);
      co_return;
    }
    if (!pieces.empty())
      continue;
    co_await running->wait();
    if (x.broken() || x.client_left())
      there = false;
  }
  leave(x, *running, cancel_on_disconnect);
}

} // namespace holt::runtime::http
