#pragma once

#include <optional>
#include <string>

#include "actors/use.hpp"
#include "protocols/agent_messages.hpp"
#include "protocols/api/processes.hpp"
#include "runtime/http/exchange.hpp"
#include "runtime/http/operation.hpp"

/// What exec, background processes and terminals share: the check of a command, its id and digest, and following its output.
namespace holt::runtime::http {

/// Exactly one of command and argv, and names that an environment can have. False: refused, and answered.
bool check_command(exchange& x, const std::optional<std::string>& command,
                   const std::optional<std::vector<std::string>>& argv,
                   const std::optional<std::map<std::string, std::string>>& env);

/// The id from the body or Idempotency-Key (spec 44). An empty one: to be generated. nullopt: refused, and answered.
std::optional<std::string> chosen_op_id(exchange& x, const std::optional<std::string>& in_body);

/// SHA-256 over the canonical JSON of what the caller gave, without what only says how to answer.
std::string digest_of(std::string_view what, protocols::json::value body);

/// Whether `true`, `1`, `false`, `0`, or nothing (false) stands there. nullopt: refused, and answered.
std::optional<bool> flag(exchange& x, const query_values& query, std::string_view name);
/// A whole number in bounds, or `fallback`. nullopt: refused, and answered.
std::optional<std::uint64_t> number(exchange& x, const query_values& query, std::string_view name, std::uint64_t fallback,
                                    std::uint64_t min, std::uint64_t max);

/// Streams a started or attached process to the client as events until it ends or the client leaves.
task<> stream_events(exchange& x, std::shared_ptr<operation> running, bool base64, std::uint64_t from,
                     bool cancel_on_disconnect);
/// The same as raw bytes, stdout and stderr as they came; how it ended stands in trailers.
task<> stream_bytes(exchange& x, std::shared_ptr<operation> running, bool cancel_on_disconnect);

/// {"op_id", "state", …} of an ended process, as exec answers it, without its output.
protocols::api::exec_result exec_result_of(const protocols::agent::process_state& state, const actors::use_result& result);

/// Of streams: how far the agent may be ahead of the reader.
inline constexpr std::uint64_t bulk_window = 4 * 1024 * 1024;
inline constexpr std::uint64_t event_window = 512 * 1024;

} // namespace holt::runtime::http
