#include "runtime/cli/api.hpp"

#include <cctype>

#include <sys/random.h>

#include "protocols/base64.hpp"
#include "protocols/json.hpp"
#include "protocols/utf8.hpp"

namespace holt::runtime::cli {

namespace json = protocols::json;

namespace {

constexpr json::text_limits answer_limits{.max_bytes = 64 * 1024 * 1024, .max_depth = 64};

/// One line: a server's text must not draw on the terminal.
std::string plain_line(std::string_view text) {
  std::string line;
  for (unsigned char c : text.substr(0, 2000))
    line += c < ' ' || c == 127 ? ' ' : static_cast<char>(c);
  return line;
}

int exit_code_of(unsigned status, std::string_view code) {
  if (code == "operation.outcome_unknown")
    return exit_unavailable;
  switch (status) {
  case 400:
  case 405:
  case 413:
  case 414:
  case 415:
  case 422:
  case 431:
    return exit_usage;
  case 408:
  case 429:
  case 502:
  case 503:
  case 504:
  case 507:
    return exit_unavailable;
  default:
    return status / 100 == 4 ? exit_refused : exit_bug;
  }
}

std::string_view advice_for(unsigned status, std::string_view code) {
  if (code == "environment.not_found")
    return "; holt env list shows those there are";
  if (status == 401)
    return "; run holt login with a valid key, or set HOLT_KEY or --key-file";
  if (status == 403)
    return "; use a key that has this scope";
  if (status == 429 || status == 503)
    return "; try again later";
  if (status >= 500 && status != 502 && status != 504 && status != 507)
    return "; this is a bug of the server, whose log says more";
  return "";
}

} // namespace

std::string_view text_at(const boost::json::value& object, std::string_view key) {
  if (!object.is_object())
    return {};
  const auto* member = object.get_object().if_contains(key);
  return member && member->is_string() ? std::string_view(member->get_string()) : std::string_view{};
}

failure failure_of(const http_head& head, std::string_view body) {
  auto problem = json::parse_text(body, answer_limits);
  std::string code;
  std::string words;
  if (problem) {
    code = text_at(*problem, "code");
    words = plain_line(text_at(*problem, "detail"));
    if (words.empty())
      words = plain_line(text_at(*problem, "title"));
  }
  if (words.empty())
    words = "the server answered with status " + std::to_string(head.status);
  if (!code.empty())
    words += " (" + plain_line(code) + ")";
  return {exit_code_of(head.status, code), words + std::string(advice_for(head.status, code)), code};
}

std::string percent_encode(std::string_view text, bool keep_slashes) {
  static constexpr char digits[] = "0123456789ABCDEF";
  std::string encoded;
  for (unsigned char c : text) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.'
                 || c == '_' || c == '~' || (c == '/' && keep_slashes);
    if (plain) {
      encoded += static_cast<char>(c);
    } else {
      encoded += '%';
      encoded += digits[c >> 4];
      encoded += digits[c & 15];
    }
  }
  return encoded;
}

std::string files_target(const std::string& environment_id, std::string_view absolute_path) {
  while (absolute_path.starts_with('/'))
    absolute_path.remove_prefix(1);
  return "/v1/environments/" + environment_id + "/files/" + percent_encode(absolute_path, true);
}

boost::json::value name_to_json(std::string_view bytes) {
  if (protocols::utf8::valid(bytes))
    return boost::json::string(bytes);
  return json::object{{"b64", protocols::base64_encode(bytes)}};
}

std::optional<std::string> name_from_json(const boost::json::value& value) {
  if (value.is_string())
    return std::string(value.get_string());
  if (auto text = text_at(value, "b64"); !text.empty())
    return protocols::base64_decode(text);
  return std::nullopt;
}

std::string new_op_id() {
  unsigned char bytes[16];
  std::size_t have = 0;
  while (have < sizeof bytes)
    if (auto n = ::getrandom(bytes + have, sizeof bytes - have, 0); n > 0)
      have += static_cast<std::size_t>(n);
  return "op_" + protocols::hex_encode({reinterpret_cast<const char*>(bytes), sizeof bytes});
}

result<boost::json::value> api::send(http_request request) {
  request.headers.emplace_back("Accept", "application/json");
  request.timeout = timeout_;
  auto response = client_.call(request);
  if (!response)
    return tl::unexpected(response.error());
  if (response->head.status / 100 != 2)
    return tl::unexpected(failure_of(response->head, response->body));
  if (response->body.empty())
    return boost::json::value(json::object{});
  auto value = json::parse_text(response->body, answer_limits);
  if (!value)
    return fail(exit_bug, "an answer of " + client_.access().address.text() + " is no JSON; is that holt's address?");
  return *value;
}

result<boost::json::value> api::get(const std::string& target) {
  return send({.method = "GET", .target = target});
}

result<boost::json::value> api::post(const std::string& target, const boost::json::value& body) {
  return send({.method = "POST",
               .target = target,
               .headers = {{"Content-Type", "application/json"}},
               .body = json::write_text(body)});
}

result<boost::json::value> api::post_once(const std::string& target, const boost::json::value& body,
                                          const std::string& op_id) {
  return send({.method = "POST",
               .target = target,
               .headers = {{"Content-Type", "application/json"}, {"Idempotency-Key", op_id}},
               .body = json::write_text(body)});
}

result<boost::json::value> api::remove(const std::string& target) {
  return send({.method = "DELETE", .target = target});
}

result<std::string> api::find_environment(const std::string& name_or_id) {
  if (name_or_id.starts_with("env_"))
    return percent_encode(name_or_id, false);
  std::string found;
  std::string cursor;
  do {
    auto page = get("/v1/environments?limit=100" + (cursor.empty() ? "" : "&cursor=" + percent_encode(cursor, false)));
    if (!page)
      return tl::unexpected(page.error());
    const auto* items = page->is_object() ? page->get_object().if_contains("items") : nullptr;
    if (!items || !items->is_array())
      return fail(exit_bug, "the list of environments is not as this client knows it; is it of the server's version?");
    for (const auto& item : items->get_array()) {
      if (text_at(item, "name") != name_or_id)
        continue;
      if (!found.empty())
        return fail(exit_usage, "several environments are named " + name_or_id + "; use an id: " + found + ", "
                                    + std::string(text_at(item, "id")));
      found = text_at(item, "id");
    }
    cursor = text_at(*page, "next_cursor");
  } while (!cursor.empty());
  if (found.empty())
    return fail(exit_usage, "there is no environment named " + name_or_id + "; holt env list shows those there are");
  return found;
}

result<std::string> api::workspace_of(const std::string& environment_id) {
  if (auto known = workspaces_.find(environment_id); known != workspaces_.end())
    return known->second;
  auto shown = get("/v1/environments/" + environment_id);
  if (!shown)
    return tl::unexpected(shown.error());
  const auto* roots = shown->is_object() ? shown->get_object().if_contains("roots") : nullptr;
  auto workspace = roots ? std::string(text_at(*roots, "workspace")) : std::string{};
  if (!workspace.starts_with('/'))
    workspace = "/workspace";
  return workspaces_[environment_id] = workspace;
}

result<std::string> api::absolute_path(const std::string& environment_id, const std::string& path) {
  if (path.starts_with('/'))
    return path;
  auto workspace = workspace_of(environment_id);
  if (!workspace)
    return workspace;
  return path.empty() ? *workspace : *workspace + '/' + path;
}

} // namespace holt::runtime::cli
