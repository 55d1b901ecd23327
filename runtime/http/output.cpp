#include "runtime/http/output.hpp"

#include <algorithm>

#include "protocols/base64.hpp"
#include "protocols/json_write.hpp"
#include "protocols/sse.hpp"
#include "protocols/utf8.hpp"

namespace holt::runtime::http {

shown_text show(std::string_view bytes, bool base64, bool cut) {
  if (base64)
    return {protocols::base64_encode(bytes), false};
  if (cut)
    bytes = bytes.substr(0, protocols::utf8::complete_prefix(bytes));
  if (protocols::utf8::valid(bytes))
    return {std::string{bytes}, false};
  auto repaired = protocols::utf8::repair(bytes);
  return {std::move(repaired.text), repaired.lossy};
}

event_encoder::event_encoder(std::string op_id, bool base64, std::uint64_t from)
    : op_id_(std::move(op_id)), base64_(base64), position_(from) {
}

std::string event_encoder::id() const {
  auto position = position_;
  for (auto& held : held_)
    if (!held.bytes.empty())
      position = std::min(position, held.offset);
  return op_id_ + ":" + std::to_string(position);
}

void event_encoder::emit(std::string& out, bool is_stderr, std::uint64_t offset, std::string_view bytes) {
  auto shown = show(bytes, base64_, false);
  std::string data = "{\"offset\":" + std::to_string(offset) + (base64_ ? ",\"b64\":" : ",\"text\":");
  data += protocols::json::write(shown.text);
  if (shown.lossy)
    data += ",\"lossy\":true";
  data += '}';
  protocols::append_sse(out, is_stderr ? "stderr" : "stdout", data, id());
}

void event_encoder::data(std::string& out, std::uint64_t offset, std::string_view bytes, bool is_stderr) {
  position_ = offset + bytes.size();
  if (base64_)
    return emit(out, is_stderr, offset, bytes);
  auto& held = held_[is_stderr ? 1 : 0];
  std::string joined;
  if (!held.bytes.empty()) {
    joined = std::move(held.bytes);
    held.bytes.clear();
    joined += bytes;
    bytes = joined;
    offset = held.offset;
  }
  auto whole = protocols::utf8::complete_prefix(bytes);
  if (whole < bytes.size()) {
    held.bytes.assign(bytes.substr(whole));
    held.offset = position_ - held.bytes.size();
  }
  if (whole > 0)
    emit(out, is_stderr, offset, bytes.substr(0, whole));
}

void event_encoder::flush(std::string& out, bool is_stderr) {
  auto& held = held_[is_stderr ? 1 : 0];
  if (held.bytes.empty())
    return;
  auto bytes = std::move(held.bytes);
  held.bytes.clear();
  emit(out, is_stderr, held.offset, bytes);
}

void event_encoder::gap(std::string& out, std::uint64_t from, std::uint64_t to) {
  finish(out);
  position_ = to;
  protocols::append_sse(out, "gap", "{\"from\":" + std::to_string(from) + ",\"to\":" + std::to_string(to) + "}", id());
}

void event_encoder::finish(std::string& out) {
  flush(out, false);
  flush(out, true);
}

protocols::api::process_view view_of(const protocols::agent::process_state& state) {
  protocols::api::process_view out;
  out.op_id = state.op_id;
  out.state = state.state;
  out.background = state.background;
  out.terminal = state.terminal;
  out.command = state.command;
  out.pid = state.pid;
  out.exit_code = state.exit_code;
  out.signal = state.signal;
  out.reason = state.reason;
  out.output_bytes = state.output_bytes;
  if (state.omitted)
    out.omitted = protocols::api::missing_range{state.omitted->from, state.omitted->to};
  out.output_open = state.output_open;
  out.survivors = state.survivors;
  out.duration_ms = state.duration_ms;
  out.started_at = protocols::api::time_text(state.started_at);
  return out;
}

} // namespace holt::runtime::http
