#include "protocols/openapi.hpp"

#include <stdexcept>

#include <gtest/gtest.h>

namespace holt::protocols {
namespace {

using json::array;
using json::object;
using json::value;

struct api_request {
  std::string command;
  static constexpr std::array required{"command"};
};
BOOST_DESCRIBE_STRUCT(api_request, (), (command))

struct api_result {
  std::int32_t exit_code = 0;
};
BOOST_DESCRIBE_STRUCT(api_result, (), (exit_code))

std::vector<route_doc> routes() {
  return {
      {.method = "POST",
       .path = "/v1/environments/{id}/exec",
       .id = "exec",
       .tag = "processes",
       .summary = "Run a command",
       .parameters = {{.name = "Idempotency-Key", .in = "header", .doc = "The operation's id."}},
       .request = {json_body<api_request>()},
       .responses = {{.status = 200,
                      .doc = "It ended.",
                      .content = {json_answer<api_result>(), {"text/event-stream", text_schema}}}},
       .errors = {"environment.not_found", "environment.busy"},
       .scopes = {"use"}},
      {.method = "GET", .path = "/v1/environments/{id}/exec", .id = "last", .responses = {{.status = 204}}},
      {.method = "GET",
       .path = "/healthz",
       .id = "health",
       .summary = "Alive",
       .responses = {{.status = 200, .doc = "Alive.", .content = {{"text/plain", text_schema}}}},
       .open = true},
  };
}

TEST(openapi, a_route_becomes_an_operation_with_its_schemas) {
  const value document = openapi_document({.title = "t", .version = "1", .description = "d"}, routes());
  EXPECT_EQ(document.at("openapi"), "3.1.0");
  const value& exec = document.at("paths").at("/v1/environments/{id}/exec").at("post");
  EXPECT_EQ(exec.at("operationId"), "exec");
  EXPECT_EQ(exec.at("requestBody").at("content").at("application/json").at("schema").at("$ref"),
            "#/components/schemas/ApiRequest");
  EXPECT_EQ(exec.at("responses").at("200").at("content").at("application/json").at("schema").at("$ref"),
            "#/components/schemas/ApiResult");
  EXPECT_EQ(exec.at("description"), "Needs a key with the scope `use`.");
  const value& schemas = document.at("components").at("schemas");
  for (const char* name : {"ApiRequest", "ApiResult", "Problem"}) {
    EXPECT_TRUE(schemas.as_object().contains(name)) << name;
  }
}

TEST(openapi, parameters_of_the_path_are_found_in_it) {
  const value document = openapi_document({}, routes());
  const value& parameters = document.at("paths").at("/v1/environments/{id}/exec").at("post").at("parameters");
  ASSERT_EQ(parameters.as_array().size(), 2U);
  EXPECT_EQ(parameters.at(0),
            (object{{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", object{{"type", "string"}}}}));
  EXPECT_EQ(parameters.at(1).at("name"), "Idempotency-Key");
}

TEST(openapi, errors_are_problems_grouped_by_status) {
  const value document = openapi_document({}, routes());
  const value& responses = document.at("paths").at("/v1/environments/{id}/exec").at("post").at("responses");
  EXPECT_EQ(responses.at("404").at("description"), "`environment.not_found`");
  EXPECT_EQ(responses.at("429").at("description"), "`environment.busy`, `rate.limited`");
  EXPECT_TRUE(responses.at("429").at("headers").as_object().contains("Retry-After"));
  EXPECT_EQ(responses.at("404").at("content").at("application/problem+json").at("schema").at("$ref"),
            "#/components/schemas/Problem");
  for (const char* status : {"400", "401", "403", "413", "415", "500"}) {
    EXPECT_TRUE(responses.as_object().contains(status)) << status;
  }
}

TEST(openapi, open_routes_need_no_key) {
  const value document = openapi_document({}, routes());
  const value& health = document.at("paths").at("/healthz").at("get");
  EXPECT_EQ(health.at("security"), array{});
  EXPECT_FALSE(health.at("responses").as_object().contains("401"));
  EXPECT_EQ(document.at("paths").at("/v1/environments/{id}/exec").at("get").at("security"),
            (array{object{{"key", array{}}}}));
}

TEST(openapi, a_contradiction_between_routes_is_a_bug) {
  auto twice = routes();
  twice.push_back(twice.front());
  EXPECT_THROW(openapi_document({}, twice), std::logic_error);
  twice.back().id = "another";
  EXPECT_THROW(openapi_document({}, twice), std::logic_error);
  auto unknown = routes();
  unknown.front().errors.push_back("made.up");
  EXPECT_THROW(openapi_document({}, unknown), std::logic_error);
}

} // namespace
} // namespace holt::protocols
