#include <future>
#include <tuple>

#include "tests/runtime/http/support/edge_test.hpp"

/// /v1/environments (spec 1 to 6, 25).
namespace holt::tests::http {
namespace {

class environments : public edge_test {};

TEST_F(environments, one_is_made_shown_changed_and_deleted) {
  auto made = call("POST", "/v1/environments", R"({"name":"dev","limits":{"memory_bytes":268435456},"labels":{"team":"a"}})");
  ASSERT_EQ(made.status, 201) << made.body;
  auto id = std::string{json(made).at("id").as_string()};
  EXPECT_EQ(made.header("location"), "/v1/environments/" + id);
  EXPECT_EQ(json(made).at("network").as_string(), "none");
  EXPECT_EQ(json(made).at("roots").at("workspace").as_string(), "/workspace");
  auto shown = json(call("GET", "/v1/environments/" + id));
  EXPECT_EQ(shown.at("limits").at("memory_bytes").to_number<int>(), 268435456);
  EXPECT_TRUE(shown.at("activity").at("connected").as_bool());
  EXPECT_EQ(shown.at("holders").at(0).as_string(), "conv_1");
  auto changed = json(call("PATCH", "/v1/environments/" + id, R"({"name":"prod","labels":{"team":"b"}})"));
  EXPECT_EQ(changed.at("name").as_string(), "prod");
  EXPECT_EQ(changed.at("limits").at("memory_bytes").to_number<int>(), 268435456);
  std::promise<actors::lifecycle_request> asked;
  front_.on_lifecycle = [&](actors::lifecycle_request request, auto reply) {
    asked.set_value(request);
    reply({});
  };
  auto deleted = call("DELETE", "/v1/environments/" + id);
  ASSERT_EQ(deleted.status, 202) << deleted.body;
  auto request = asked.get_future().get();
  EXPECT_EQ(request.action, actors::lifecycle_action::remove);
  auto operation = std::string{json(deleted).at("id").as_string()};
  EXPECT_EQ(request.operation_id, operation);
  EXPECT_EQ(json(call("GET", "/v1/operations/" + operation)).at("status").as_string(), "running");
  EXPECT_EQ(code(call("GET", "/v1/environments/" + id)), "environment.not_found");
  EXPECT_EQ(code(call("DELETE", "/v1/environments/" + id)), "environment.not_found");
}

TEST_F(environments, those_of_another_org_are_not_found) {
  auto id = new_environment();
  for (auto& [method, rest, body] : std::vector<std::tuple<std::string, std::string, std::string>>{
         {"GET", "", ""}, {"PATCH", "", "{}"}, {"DELETE", "", ""}}) {
    auto answer = call_as(other_key_, method, "/v1/environments/" + id + rest, body);
    EXPECT_EQ(answer.status, 404) << method << rest;
    EXPECT_EQ(code(answer), "environment.not_found") << method << rest;
  }
  EXPECT_EQ(json(call_as(other_key_, "GET", "/v1/environments")).at("items").as_array().size(), 0u);
}

TEST_F(environments, a_use_names_the_org_of_its_key) {
  auto id = new_environment();
  front_.play("process.start", [&](auto use) {
    use->request->org_id == org_ ? use->exit(0) : use->fail("environment.not_found", "there is no such environment");
  });
  EXPECT_EQ(call_as(other_key_, "POST", "/v1/environments/" + id + "/exec", R"({"command":"x"})").status, 404);
}

TEST_F(environments, a_repeat_with_the_same_key_answers_the_same_environment) {
  std::string header = "Idempotency-Key: first\r\n";
  auto one = call("POST", "/v1/environments", R"({"name":"a"})", header);
  auto two = call("POST", "/v1/environments", R"({"name":"a"})", header);
  ASSERT_EQ(one.status, 201);
  ASSERT_EQ(two.status, 201) << two.body;
  EXPECT_EQ(json(one).at("id"), json(two).at("id"));
  auto other = call("POST", "/v1/environments", R"({"name":"b"})", header);
  EXPECT_EQ(other.status, 409);
  EXPECT_EQ(code(other), "operation.conflict");
  auto elsewhere = call_as(other_key_, "POST", "/v1/environments", R"({"name":"b"})", header);
  EXPECT_EQ(elsewhere.status, 201);
  EXPECT_NE(json(elsewhere).at("id"), json(one).at("id"));
}

TEST_F(environments, lists_come_in_pages_and_by_label) {
  for (int i = 0; i < 5; ++i)
    new_environment(i % 2 ? R"({"labels":{"odd":"yes"}})" : R"({"kind":"device"})");
  std::string cursor;
  std::size_t seen = 0, pages = 0;
  do {
    auto page = json(call("GET", "/v1/environments?limit=2" + (cursor.empty() ? "" : "&cursor=" + cursor)));
    seen += page.at("items").as_array().size();
    ++pages;
    cursor = page.as_object().contains("next_cursor") ? std::string{page.at("next_cursor").as_string()} : "";
  } while (!cursor.empty());
  EXPECT_EQ(seen, 5u);
  EXPECT_EQ(pages, 3u);
  EXPECT_EQ(json(call("GET", "/v1/environments?label=odd%3Dyes")).at("items").as_array().size(), 2u);
  EXPECT_EQ(json(call("GET", "/v1/environments?kind=device")).at("items").as_array().size(), 3u);
  EXPECT_EQ(call("GET", "/v1/environments?kind=boat").status, 400);
  EXPECT_EQ(call("GET", "/v1/environments?label=odd").status, 400);
}

TEST_F(environments, bounds_are_told) {
  for (auto body : {R"({"name":""})", R"({"network":"egress"})", R"({"network":"moon"})", R"({"kind":"@device"})",
                    R"({"limits":{"memory_bytes":1}})", R"({"limits":{"cpus":0}})", R"({"limits":{"cpu":1}})",
                    R"({"suspend_after_ms":-1})", R"({"labels":{"":"x"}})", R"({"labels":["a"]})"}) {
    auto answer = call("POST", "/v1/environments", body);
    EXPECT_EQ(answer.status, 400) << body << answer.body;
    EXPECT_EQ(json(answer).at("details").as_array().size(), 1u) << body;
  }
  std::string labels;
  for (int i = 0; i < 40; ++i)
    labels += (i ? ",\"l" : "\"l") + std::to_string(i) + "\":\"v\"";
  EXPECT_EQ(call("POST", "/v1/environments", "{\"labels\":{" + labels + "}}").status, 400);
  auto egress = call("POST", "/v1/environments", R"({"network":"egress"})");
  EXPECT_NE(egress.body.find("can't give filtered egress"), std::string::npos) << egress.body;
}

TEST_F(environments, lifecycle_by_hand_answers_the_row_or_the_reason) {
  auto id = new_environment();
  front_.on_lifecycle = [&](actors::lifecycle_request request, auto reply) {
    actors::lifecycle_result result;
    if (request.action == actors::lifecycle_action::reset)
      result.error = actors::use_error{"environment.state", "a device is reset by a login", {}, {}};
    reply(result);
  };
  EXPECT_EQ(call("POST", "/v1/environments/" + id + "/suspend").status, 200);
  EXPECT_EQ(call("POST", "/v1/environments/" + id + "/resume", "{}").status, 200);
  EXPECT_EQ(call("POST", "/v1/environments/" + id + "/resume", R"({"now":true})").status, 400);
  EXPECT_EQ(call("POST", "/v1/environments/" + id + "/reset").status, 409);
  EXPECT_EQ(call_as(use_key_, "POST", "/v1/environments/" + id + "/suspend").status, 403);
}

} // namespace
} // namespace holt::tests::http
