#include "protocols/openapi.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/string.hpp>

#include "protocols/problem.hpp"

namespace holt::protocols {
namespace {

using json::array;
using json::object;
using json::value;

value schema_or_string(schema_source source, json::schema_set& schemas) {
  return source == nullptr ? text_schema(schemas) : source(schemas);
}

object content_of(const std::vector<media_doc>& media, json::schema_set& schemas) {
  object out;
  for (const media_doc& one : media) {
    object entry;
    if (one.schema != nullptr) {
      entry["schema"] = one.schema(schemas);
    }
    out.emplace(one.type, std::move(entry));
  }
  return out;
}

object parameter_of(const parameter_doc& one, json::schema_set& schemas) {
  object out{{"name", one.name}, {"in", one.in}};
  if (!one.doc.empty()) {
    out["description"] = one.doc;
  }
  if (one.required || one.in == "path") {
    out["required"] = true;
  }
  out["schema"] = schema_or_string(one.schema, schemas);
  return out;
}

array parameters_of(const route_doc& route, json::schema_set& schemas) {
  array out;
  const std::string_view path = route.path;
  for (std::size_t open = path.find('{'); open != std::string_view::npos; open = path.find('{', open + 1)) {
    const std::string_view name = path.substr(open + 1, path.find('}', open) - open - 1);
    const bool told = std::any_of(route.parameters.begin(), route.parameters.end(),
                                  [&](const parameter_doc& one) { return one.in == "path" && one.name == name; });
    if (!told) {
      out.emplace_back(parameter_of({.name = std::string(name), .in = "path"}, schemas));
    }
  }
  for (const parameter_doc& one : route.parameters) {
    out.emplace_back(parameter_of(one, schemas));
  }
  return out;
}

object response_of(const response_doc& one, json::schema_set& schemas) {
  object out{{"description", one.doc.empty() ? "Done." : one.doc}};
  if (!one.headers.empty()) {
    object headers;
    for (const parameter_doc& header : one.headers) {
      object entry;
      if (!header.doc.empty()) {
        entry["description"] = header.doc;
      }
      entry["schema"] = schema_or_string(header.schema, schemas);
      headers.emplace(header.name, std::move(entry));
    }
    out["headers"] = std::move(headers);
  }
  if (!one.content.empty()) {
    out["content"] = content_of(one.content, schemas);
  }
  return out;
}

/// Every code that the route can answer, by status.
std::map<std::uint16_t, std::set<std::string>> errors_of(const route_doc& route) {
  std::set<std::string> codes(route.errors.begin(), route.errors.end());
  codes.insert({"request.host_refused", "server.internal"});
  if (!route.open) {
    codes.insert({"auth.required", "auth.invalid", "auth.forbidden", "rate.limited", "server.stopping"});
  }
  if (!route.request.empty()) {
    codes.insert("request.too_large");
    if (std::any_of(route.request.begin(), route.request.end(),
                    [](const media_doc& one) { return one.type == "application/json"; })) {
      codes.insert(
          {"request.malformed_json", "request.invalid", "request.unknown_field", "request.unsupported_media_type"});
    }
  }
  std::map<std::uint16_t, std::set<std::string>> out;
  for (const std::string& code : codes) {
    const problem_kind* kind = find_problem(code);
    if (kind == nullptr) {
      throw std::logic_error(route.id + " names an unknown error: " + code);
    }
    out[kind->status].insert(code);
  }
  return out;
}

std::string joined(const auto& texts, std::string_view between) {
  std::string out;
  for (const std::string& text : texts) {
    out += out.empty() ? std::string_view{} : between;
    out += text;
  }
  return out;
}

object responses_of(const route_doc& route, json::schema_set& schemas) {
  object out;
  for (const response_doc& one : route.responses) {
    out.emplace(std::to_string(one.status), response_of(one, schemas));
  }
  for (const auto& [status, codes] : errors_of(route)) {
    const std::string key = std::to_string(status);
    if (out.contains(key)) {
      continue; // the route told its own
    }
    response_doc one{.status = status, .content = {{std::string(problem_content_type), output_schema<problem>}}};
    one.doc = "`" + joined(codes, "`, `") + "`";
    if (status == 429 || status == 503) {
      one.headers.push_back({.name = "Retry-After", .doc = "Seconds to wait.", .schema = count_schema});
    }
    out.emplace(key, response_of(one, schemas));
  }
  return out;
}

object operation_of(const route_doc& route, json::schema_set& schemas) {
  object out{{"operationId", route.id}};
  if (!route.tag.empty()) {
    out["tags"] = array{route.tag};
  }
  out["summary"] = route.summary.empty() ? route.id : route.summary;
  std::string doc = route.doc;
  if (!route.scopes.empty()) {
    doc += doc.empty() ? "" : "\n\n";
    doc += "Needs a key with the scope `" + joined(route.scopes, "` or `") + "`.";
  }
  if (!doc.empty()) {
    out["description"] = doc;
  }
  if (array parameters = parameters_of(route, schemas); !parameters.empty()) {
    out["parameters"] = std::move(parameters);
  }
  if (!route.request.empty()) {
    out["requestBody"] = object{{"required", route.request_required}, {"content", content_of(route.request, schemas)}};
  }
  out["responses"] = responses_of(route, schemas);
  out["security"] = route.open ? array{} : array{object{{"key", array{}}}};
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

} // namespace

value bytes_schema(json::schema_set&) {
  return object{{"type", "string"}, {"contentMediaType", "application/octet-stream"}};
}

value text_schema(json::schema_set&) {
  return object{{"type", "string"}};
}

value boolean_schema(json::schema_set&) {
  return object{{"type", "boolean"}};
}

value count_schema(json::schema_set&) {
  return object{{"type", "integer"}, {"format", "int64"}, {"minimum", 0}};
}

value openapi_document(const api_info& info, std::span<const route_doc> routes) {
  json::schema_set schemas;
  std::set<std::string> ids;
  object paths;
  for (const route_doc& route : routes) {
    if (!ids.insert(route.id).second) {
      throw std::logic_error("two routes have the id " + route.id);
    }
    object& item = paths.contains(route.path) ? paths.at(route.path).as_object()
                                              : paths.emplace(route.path, object{}).first->value().as_object();
    if (!item.emplace(lower(route.method), operation_of(route, schemas)).second) {
      throw std::logic_error("two routes are " + route.method + " " + route.path);
    }
  }
  array tags;
  for (const tag_doc& tag : info.tags) {
    tags.emplace_back(object{{"name", tag.name}, {"description", tag.doc}});
  }
  return object{
      {"openapi", "3.1.0"},
      {"info", object{{"title", info.title},
                      {"version", info.version},
                      {"description", info.description},
                      {"license", object{{"name", info.license_name}, {"url", info.license_url}}}}},
      {"servers", array{object{{"url", info.server_url}}}},
      {"tags", std::move(tags)},
      {"security", array{object{{"key", array{}}}}},
      {"paths", std::move(paths)},
      {"components",
       object{{"securitySchemes", object{{"key", object{{"type", "http"},
                                                        {"scheme", "bearer"},
                                                        {"description", "A service key or a user's key."}}}}},
              {"schemas", schemas.schemas()}}},
  };
}

} // namespace holt::protocols
