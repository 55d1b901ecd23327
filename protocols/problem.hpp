#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <boost/describe/class.hpp>

#include "protocols/json.hpp"

/// Every error of the API, in one table, and its answer as `application/problem+json` (RFC 9457). The same codes are
/// the agent protocol's. 503 means try again, 409 means state, other 4xx the caller, 500 a bug of ours (spec 94).
///
/// Pure: any thread.
namespace holt::protocols {

inline constexpr std::string_view problem_content_type = "application/problem+json";

/// Whether the same request may succeed: never; after the caller or the state has changed; later, by itself.
enum class retry_hint { never, after_change, later };
/// "never", "after_change", "later".
std::string_view to_string(retry_hint hint);

struct problem_kind {
  std::string_view code; // "environment.not_found"
  std::uint16_t status;  // of HTTP
  std::string_view title;
  retry_hint retry;
};

/// Sorted by code.
std::span<const problem_kind> all_problems();
/// nullptr for a code that is none of ours.
const problem_kind* find_problem(std::string_view code);

struct problem {
  std::string type; // "urn:holt:problem:environment.not_found"
  std::string title;
  std::uint16_t status = 500;
  std::string detail; // what happened here and what to do; never a path, name or secret of the server
  std::string code;
  std::string retry; // see retry_hint
  std::optional<json::value> details;

  static constexpr std::string_view doc = "What went wrong (RFC 9457).";
};
BOOST_DESCRIBE_STRUCT(problem, (), (type, title, status, detail, code, retry, details))

/// A code that is none of ours becomes `server.internal`: nothing from outside chooses a status.
problem make_problem(std::string_view code, std::string detail, std::optional<json::value> details = std::nullopt);

/// A body that was refused: the code by the sort of fault, `details` = [{"pointer", "message"}].
problem make_problem(const json::error& error);

/// The body of the answer.
std::string write_problem(const problem& answer);

} // namespace holt::protocols
