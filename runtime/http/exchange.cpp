#include "runtime/http/exchange.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "runtime/http/core.hpp"

namespace holt::runtime::http {

namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  if (c >= 'A' && c <= 'F')
    return c - 'A' + 10;
  return -1;
}

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t'))
    text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t'))
    text.remove_suffix(1);
  return text;
}

/// "application/json; charset=utf-8" → "application/json"
std::string_view media_type_of(std::string_view content_type) {
  return trimmed(content_type.substr(0, content_type.find(';')));
}

} // namespace

std::optional<std::string> percent_decode(std::string_view text, bool plus) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      if (i + 2 >= text.size())
        return std::nullopt;
      int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0)
        return std::nullopt;
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += plus && text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

query_values::query_values(std::string_view query) {
  while (!query.empty()) {
    auto part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
    if (part.empty())
      continue;
    auto equals = part.find('=');
    auto name = percent_decode(part.substr(0, equals), true);
    auto value = equals == std::string_view::npos ? std::string{} : percent_decode(part.substr(equals + 1), true);
    if (name && value)
      values_.emplace_back(std::move(*name), std::move(*value));
  }
}

const std::string* query_values::find(std::string_view name) const {
  for (auto& [key, value] : values_)
    if (key == name)
      return &value;
  return nullptr;
}

void exchange::refuse(const protocols::problem& problem) {
  if (problem.status == 401)
    add_header("WWW-Authenticate", "Bearer realm=\"holt\"");
  answer(problem.status, protocols::problem_content_type, protocols::write_problem(problem));
}

void exchange::refuse(std::string_view code, std::string detail) {
  refuse(protocols::make_problem(code, std::move(detail)));
}

void exchange::refuse_field(std::string_view pointer, std::string message, std::string_view code) {
  using namespace protocols::json;
  array details{object{{"pointer", pointer}, {"message", message}}};
  refuse(protocols::make_problem(code, std::string{pointer} + " " + message + ".", value(std::move(details))));
}

bool exchange::accepts(std::string_view media_type) const {
  auto list = header("Accept");
  while (!list.empty()) {
    auto one = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), one.size() + 1));
    if (same_letters(media_type_of(one), media_type))
      return true;
  }
  return false;
}

task<std::optional<protocols::json::value>> exchange::read_json_value() {
  using protocols::json::value;
  auto type = media_type_of(header("Content-Type"));
  bool json = same_letters(type, "application/json") || same_letters(type, "application/merge-patch+json");
  if (has_body() && !json && content_length() != 0) {
    refuse("request.unsupported_media_type", type.empty() ? "Send the body with Content-Type: application/json."
                                                          : "The body must be application/json.");
    co_return std::nullopt;
  }
  auto body = co_await read_body(core().settings.max_body_bytes);
  if (!body) {
    refuse(body.error());
    co_return std::nullopt;
  }
  if (body->empty())
    co_return value(protocols::json::object{});
  auto parsed = protocols::json::parse_text(
    *body, {.max_bytes = core().settings.max_body_bytes, .max_depth = core().settings.max_json_depth});
  if (!parsed) {
    refuse(protocols::make_problem(parsed.error()));
    co_return std::nullopt;
  }
  co_return std::move(*parsed);
}

} // namespace holt::runtime::http
