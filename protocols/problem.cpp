#include "protocols/problem.hpp"

#include <algorithm>
#include <array>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "protocols/json_write.hpp"

namespace holt::protocols {
namespace {

constexpr auto never = retry_hint::never;
constexpr auto after_change = retry_hint::after_change;
constexpr auto later = retry_hint::later;

constexpr auto kinds = std::to_array<problem_kind>({
    {"agent.failed", 500, "The agent failed", never},
    {"agent.no_memory", 503, "The environment is out of memory", later},
    {"auth.forbidden", 403, "The key does not allow this", never},
    {"auth.invalid", 401, "The key is not valid", never},
    {"auth.required", 401, "A key is required", never},
    {"device.offline", 503, "The machine is offline", later},
    {"edit.invalid", 400, "The edit is not valid", never},
    {"edit.no_match", 409, "The text to replace was not found", after_change},
    {"edit.several_matches", 409, "The text to replace was found several times", after_change},
    {"environment.busy", 429, "The environment is busy", later},
    {"environment.files_lost", 409, "The environment's files are lost", after_change},
    {"environment.not_found", 404, "No such environment", never},
    {"environment.not_running", 409, "The environment is not running", after_change},
    {"environment.state", 409, "The environment's state does not allow this", after_change},
    {"environment.unavailable", 503, "The environment is not available", later},
    {"file.busy", 503, "The file is in use", later},
    {"file.cancelled", 409, "The operation on the file was cancelled", never},
    {"file.changed", 412, "The file has changed", after_change},
    {"file.cross_device", 409, "The two paths are on different file systems", never},
    {"file.denied", 403, "The file may not be used", after_change},
    {"file.exists", 409, "The file exists", after_change},
    {"file.failed", 500, "The operation on the file failed", never},
    {"file.invalid_path", 400, "The path is not valid", never},
    {"file.is_directory", 409, "It is a directory", after_change},
    {"file.mismatch", 400, "The bytes are not those that were announced", never},
    {"file.not_directory", 409, "It is not a directory", after_change},
    {"file.not_empty", 409, "The directory is not empty", after_change},
    {"file.not_found", 404, "No such file", after_change},
    {"file.not_regular", 409, "It is not a regular file", after_change},
    {"file.outside_roots", 403, "The path lies outside the environment's roots", never},
    {"file.range", 416, "The range lies outside the file", after_change},
    {"file.read_only", 403, "The file is read only", never},
    {"file.too_large", 413, "The file is too large", never},
    {"file.too_many_links", 409, "The path has too many symbolic links", after_change},
    {"instance.gone", 409, "The instance is gone", after_change},
    {"lease.lost", 409, "The lease on the environment was lost", after_change},
    {"operation.cancelled", 409, "The operation was cancelled", never},
    {"operation.conflict", 409, "The operation id was used with other arguments", never},
    {"operation.detached", 409, "The operation goes on without this reader", after_change},
    {"operation.expired", 410, "The operation's result is no longer kept", never},
    {"operation.failed", 500, "The operation failed", never},
    {"operation.invalid", 400, "The operation's arguments are not valid", never},
    {"operation.not_found", 404, "No such operation", never},
    {"operation.outcome_unknown", 409, "The operation may have run", never},
    {"operation.timeout", 503, "The operation took too long", later},
    {"operation.unsupported", 400, "The operation is not supported here", never},
    {"process.cwd_not_found", 400, "The working directory does not exist", after_change},
    {"process.ended", 409, "The process has ended", never},
    {"process.limit", 429, "Too many processes", later},
    {"process.no_input", 409, "The process has no open standard input", never},
    {"process.no_memory", 503, "The environment is out of memory", later},
    {"process.no_terminal", 409, "The process has no terminal", never},
    {"process.not_found", 404, "No such process", never},
    {"process.not_started", 500, "The process could not be started", never},
    {"process.signal_refused", 403, "The process may not be signalled", never},
    {"rate.limited", 429, "Too many requests", later},
    {"request.headers_too_large", 431, "The request's header is too large", never},
    {"request.host_refused", 421, "The host name is not served here", never},
    {"request.invalid", 400, "The request is not valid", never},
    {"request.malformed_json", 400, "The body is not JSON", never},
    {"request.method_not_allowed", 405, "The method is not allowed here", never},
    {"request.not_acceptable", 406, "None of the accepted content types is served here", never},
    {"request.not_found", 404, "No such resource", never},
    {"request.origin_refused", 403, "The origin is not allowed", never},
    {"request.precondition_required", 428, "A condition is required", never},
    {"request.timeout", 408, "The request took too long to arrive", later},
    {"request.too_large", 413, "The body is too large", never},
    {"request.unknown_field", 400, "The request has an unknown field", never},
    {"request.unsupported_media_type", 415, "The content type is not accepted here", never},
    {"request.uri_too_long", 414, "The request's target is too long", never},
    {"sandbox.failed", 500, "The sandbox provider failed", later},
    {"sandbox.refused", 429, "The sandbox was refused for a limit", later},
    {"sandbox.unavailable", 503, "No sandbox provider is available", later},
    {"search.invalid_glob", 400, "The glob is not valid", never},
    {"search.invalid_pattern", 400, "The pattern is not valid", never},
    {"server.internal", 500, "A fault of the server", never},
    {"server.stopping", 503, "The server is stopping", later},
    {"server.unavailable", 503, "A part of the server is not available", later},
    {"storage.full", 507, "The storage is full", after_change},
    {"storage.quota", 507, "The environment's disk limit is reached", after_change},
    {"storage.unavailable", 503, "The database is not available", later},
});

static_assert(std::is_sorted(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) { return a.code < b.code; }));

} // namespace

std::string_view to_string(retry_hint hint) {
  switch (hint) {
  case retry_hint::never:
    return "never";
  case retry_hint::after_change:
    return "after_change";
  case retry_hint::later:
    return "later";
  }
  return "never";
}

std::span<const problem_kind> all_problems() {
  return kinds;
}

const problem_kind* find_problem(std::string_view code) {
  const auto found =
      std::lower_bound(kinds.begin(), kinds.end(), code,
                       [](const problem_kind& kind, std::string_view wanted) { return kind.code < wanted; });
  return found != kinds.end() && found->code == code ? &*found : nullptr;
}

problem make_problem(std::string_view code, std::string detail, std::optional<json::value> details) {
  const problem_kind* kind = find_problem(code);
  if (kind == nullptr) {
    kind = find_problem("server.internal");
  }
  return {
      .type = "urn:holt:problem:" + std::string(kind->code),
      .title = std::string(kind->title),
      .status = kind->status,
      .detail = std::move(detail),
      .code = std::string(kind->code),
      .retry = std::string(to_string(kind->retry)),
      .details = std::move(details),
  };
}

problem make_problem(const json::error& error) {
  std::string_view code = "request.invalid";
  switch (error.what) {
  case json::fault::invalid:
    break;
  case json::fault::unknown_field:
    code = "request.unknown_field";
    break;
  case json::fault::malformed:
    code = "request.malformed_json";
    break;
  case json::fault::too_large:
    code = "request.too_large";
    break;
  }
  std::string detail = error.pointer.empty() ? "The body" : error.pointer;
  if (error.what == json::fault::unknown_field) {
    detail += ':';
  }
  detail += ' ' + error.message + '.';
  if (detail.ends_with("?.")) {
    detail.pop_back();
  }
  json::array details{json::object{{"pointer", error.pointer}, {"message", error.message}}};
  return make_problem(code, std::move(detail), json::value(std::move(details)));
}

std::string write_problem(const problem& answer) {
  return json::write(answer);
}

} // namespace holt::protocols
