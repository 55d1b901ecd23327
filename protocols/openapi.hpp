#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocols/json_schema.hpp"

/// An OpenAPI 3.1 document from the routes that are served, and from the structs that they read and write.
///
///     const route_doc exec{
///       .method = "POST", .path = "/v1/environments/{id}/exec", .id = "exec", .tag = "processes",
///       .summary = "Run a command",
///       .request = {json_body<exec_request>()},
///       .responses = {{200, "It ended.", {json_answer<exec_result>(), {"text/event-stream", text_schema}}}},
///       .errors = {"environment.not_found", "environment.busy"},
///       .scopes = {"use"}};
///
/// Pure: any thread.
namespace holt::protocols {

using schema_source = json::value (*)(json::schema_set&);

struct media_doc {
  std::string type; // "application/json"
  schema_source schema = nullptr;
};

struct parameter_doc {
  std::string name;
  std::string in = "query"; // "query", "header", "path"
  std::string doc{};
  schema_source schema = nullptr; // nullptr: a string
  bool required = false;          // of a path always
};

struct response_doc {
  std::uint16_t status = 200;
  std::string doc{};
  std::vector<media_doc> content{};
  std::vector<parameter_doc> headers{};
};

struct route_doc {
  std::string method; // "GET"
  std::string path;   // "/v1/environments/{id}"
  std::string id;     // operationId
  std::string tag{};
  std::string summary{};
  std::string doc{};
  /// Path parameters that are not here are added as strings.
  std::vector<parameter_doc> parameters{};
  std::vector<media_doc> request{};
  bool request_required = true;
  std::vector<response_doc> responses{};
  /// Codes of problem.hpp; grouped by status. What every route can answer is added.
  std::vector<std::string> errors{};
  /// Scopes of the key, any of which is enough. Only told; `open` routes need no key.
  std::vector<std::string> scopes{};
  bool open = false;
};

struct tag_doc {
  std::string name;
  std::string doc;
};

struct api_info {
  std::string title;
  std::string version;
  std::string description;
  std::string license_name = "Apache-2.0";
  std::string license_url = "https://www.apache.org/licenses/LICENSE-2.0";
  std::string server_url = "/";
  std::vector<tag_doc> tags{};
};

/// Routes of one path become one path item. Throws std::logic_error for two routes with the same method and path, two
/// with one id, and an error code that problem.hpp doesn't know.
json::value openapi_document(const api_info& info, std::span<const route_doc> routes);

// -- sources of schemas
// ------------------------------------------------------------------------------------------------

template <class T>
json::value input_schema(json::schema_set& set) {
  return json::schema_ref<T>(set, json::direction::input);
}

template <class T>
json::value output_schema(json::schema_set& set) {
  return json::schema_ref<T>(set, json::direction::output);
}

/// Any bytes, and any text.
json::value bytes_schema(json::schema_set&);
json::value text_schema(json::schema_set&);
json::value boolean_schema(json::schema_set&);
/// A whole number from 0.
json::value count_schema(json::schema_set&);

template <class T>
media_doc json_body() {
  return {"application/json", input_schema<T>};
}

template <class T>
media_doc json_answer() {
  return {"application/json", output_schema<T>};
}

} // namespace holt::protocols
