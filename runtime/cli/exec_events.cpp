#include "runtime/cli/exec_events.hpp"

#include <csignal>
#include <cstring>

#include "protocols/base64.hpp"
#include "protocols/json.hpp"
#include "runtime/cli/api.hpp"

namespace holt::runtime::cli {

namespace json = protocols::json;

namespace {

std::optional<std::uint64_t> number_at(const json::object& object, std::string_view key) {
  const auto* member = object.if_contains(key);
  if (!member)
    return std::nullopt;
  if (member->is_uint64())
    return member->get_uint64();
  if (member->is_int64() && member->get_int64() >= 0)
    return static_cast<std::uint64_t>(member->get_int64());
  return std::nullopt;
}

result<std::string> output_bytes(const json::object& data) {
  if (const auto* text = data.if_contains("b64"); text && text->is_string())
    if (auto bytes = protocols::base64_decode(std::string_view(text->get_string())))
      return *bytes;
  if (const auto* text = data.if_contains("text"); text && text->is_string())
    return std::string(text->get_string());
  return fail(exit_bug, "the server sent output that is no base64; it may be of another version than this client");
}

} // namespace

int signal_number(std::string_view name) {
  if (!name.starts_with("SIG"))
    return 0;
  name.remove_prefix(3);
  for (int number = 1; number < NSIG; ++number)
    if (const char* known = ::sigabbrev_np(number); known && name == known)
      return number;
  return 0;
}

std::optional<int> exit_status(const command_exit& ended) {
  if (ended.exit_code)
    return *ended.exit_code & 0xff;
  if (ended.signal)
    if (int number = signal_number(*ended.signal))
      return 128 + number;
  return std::nullopt;
}

result<exec_event> read_exec_event(const protocols::sse_event& event) {
  bool known = event.event == "stdout" || event.event == "stderr" || event.event == "exit" || event.event == "gap"
               || event.event == "error";
  if (event.event == "started")
    return command_started{};
  if (!known)
    return other_event{};
  auto parsed = json::parse_text(event.data, {.max_bytes = 8 * 1024 * 1024, .max_depth = 32});
  if (!parsed || !parsed->is_object())
    return fail(exit_bug, "the server sent an event that is no JSON; it may be of another version than this client");
  const auto& data = parsed->get_object();
  if (event.event == "error") {
    http_head head;
    head.status = static_cast<unsigned>(number_at(data, "status").value_or(500));
    return tl::unexpected(failure_of(head, event.data));
  }
  if (event.event == "gap")
    return output_gap{number_at(data, "from").value_or(0), number_at(data, "to").value_or(0)};
  if (event.event == "exit") {
    command_exit ended;
    if (const auto* code = data.if_contains("exit_code"); code && code->is_int64())
      ended.exit_code = static_cast<int>(code->get_int64());
    else if (code && code->is_uint64())
      ended.exit_code = static_cast<int>(code->get_uint64());
    if (auto signal = text_at(*parsed, "signal"); !signal.empty())
      ended.signal = signal;
    ended.state = text_at(*parsed, "state");
    ended.reason = text_at(*parsed, "reason");
    ended.json = event.data;
    return ended;
  }
  auto bytes = output_bytes(data);
  if (!bytes)
    return tl::unexpected(bytes.error());
  return command_output{event.event == "stderr", std::move(*bytes)};
}

} // namespace holt::runtime::cli
