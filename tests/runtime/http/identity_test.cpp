#include "tests/runtime/http/support/edge_test.hpp"

/// /v1/orgs, /v1/users, /v1/keys (spec 93).
namespace holt::tests::http {
namespace {

class identity : public edge_test {};

TEST_F(identity, a_key_is_shown_once_works_and_can_be_revoked) {
  auto made = call("POST", "/v1/keys", R"({"name":"ci","scopes":["use"]})");
  ASSERT_EQ(made.status, 201) << made.body;
  auto id = std::string{json(made).at("id").as_string()};
  auto secret = std::string{json(made).at("key").as_string()};
  EXPECT_TRUE(secret.starts_with("holt_"));
  EXPECT_EQ(call_as(secret, "GET", "/v1/environments").status, 200);
  EXPECT_EQ(call_as(secret, "POST", "/v1/environments", "{}").status, 403);
  auto list = call("GET", "/v1/keys");
  EXPECT_NE(list.body.find(id), std::string::npos);
  EXPECT_EQ(list.body.find(secret), std::string::npos);
  EXPECT_EQ(list.body.find("hash"), std::string::npos);
  EXPECT_EQ(call_as(other_key_, "DELETE", "/v1/keys/" + id).status, 404);
  EXPECT_EQ(call("DELETE", "/v1/keys/" + id).status, 204);
  EXPECT_EQ(call_as(secret, "GET", "/v1/environments").status, 401);
}

TEST_F(identity, no_key_gives_what_its_maker_lacks) {
  EXPECT_EQ(call_as(other_key_, "POST", "/v1/keys", R"({"name":"x","scopes":["operate"]})").status, 403);
  EXPECT_EQ(call_as(use_key_, "POST", "/v1/keys", R"({"name":"x"})").status, 403);
  EXPECT_EQ(call("POST", "/v1/keys", R"({"name":"x","scopes":["fly"]})").status, 400);
  EXPECT_EQ(call("POST", "/v1/keys", R"({"name":"x","scopes":[]})").status, 400);
}

TEST_F(identity, an_expired_key_is_refused) {
  auto made = json(call("POST", "/v1/keys", R"({"name":"x","expires_in_ms":1000})"));
  auto secret = std::string{made.at("key").as_string()};
  EXPECT_EQ(call_as(secret, "GET", "/v1/environments").status, 200);
  auto until = std::chrono::steady_clock::now() + std::chrono::seconds{10};
  while (call_as(secret, "GET", "/v1/environments").status == 200 && std::chrono::steady_clock::now() < until)
    std::this_thread::yield();
  EXPECT_EQ(call_as(secret, "GET", "/v1/environments").status, 401);
}

TEST_F(identity, users_own_keys_and_take_them_along) {
  auto user = json(call("POST", "/v1/users", R"({"name":"Ada"})"));
  auto id = std::string{user.at("id").as_string()};
  auto key = json(call("POST", "/v1/keys", R"({"name":"ada","user_id":")" + id + "\"}"));
  auto secret = std::string{key.at("key").as_string()};
  EXPECT_EQ(call_as(secret, "GET", "/v1/environments").status, 200);
  EXPECT_EQ(call("POST", "/v1/keys", R"({"name":"x","user_id":"user_none"})").status, 400);
  EXPECT_EQ(json(call("GET", "/v1/users")).at("items").as_array().size(), 1u);
  EXPECT_EQ(call("DELETE", "/v1/users/" + id).status, 204);
  EXPECT_EQ(call_as(secret, "GET", "/v1/environments").status, 401);
}

TEST_F(identity, orgs_are_the_operators) {
  EXPECT_EQ(call_as(other_key_, "GET", "/v1/orgs").status, 403);
  auto made = call("POST", "/v1/orgs", R"({"name":"new"})");
  ASSERT_EQ(made.status, 201) << made.body;
  auto id = std::string{json(made).at("id").as_string()};
  EXPECT_EQ(json(call("GET", "/v1/orgs")).at("items").as_array().size(), 3u);
  auto key = call("POST", "/v1/keys", R"({"name":"first","scopes":["use","manage"],"org_id":")" + id + "\"}");
  ASSERT_EQ(key.status, 201) << key.body;
  auto secret = std::string{json(key).at("key").as_string()};
  EXPECT_EQ(call_as(secret, "POST", "/v1/environments", "{}").status, 201);
  EXPECT_EQ(call_as(secret, "GET", "/v1/orgs/" + id).status, 200);
  EXPECT_EQ(call_as(secret, "GET", "/v1/orgs/" + org_).status, 404);
  EXPECT_EQ(call_as(other_key_, "POST", "/v1/users", R"({"name":"x","org_id":")" + org_ + "\"}").status, 403);
  EXPECT_EQ(call("DELETE", "/v1/orgs/" + org_).status, 409);
  EXPECT_EQ(call("DELETE", "/v1/orgs/" + id).status, 204);
  EXPECT_EQ(call("GET", "/v1/orgs/" + id).status, 404);
}

} // namespace
} // namespace holt::tests::http
