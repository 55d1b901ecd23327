#include <fcntl.h>

#include <filesystem>

#include "protocols/ids.hpp"
#include "runtime/http/secrets.hpp"
#include "tests/runtime/http/support/edge_test.hpp"

/// What any request must be, before a route sees it (spec 91, 94, 95).
namespace holt::tests::http {
namespace {

using std::chrono::milliseconds;

runtime::http::server_settings quick() {
  runtime::http::server_settings settings;
  settings.header_timeout = milliseconds{400};
  settings.body_timeout = milliseconds{400};
  settings.idle_timeout = milliseconds{1500};
  settings.max_body_bytes = 4096;
  settings.allowed_hosts = {"holt.example"};
  settings.trusted_origins = {"https://app.example"};
  return settings;
}

class requests : public edge_test {
protected:
  requests() : edge_test(quick()) {
  }
  /// Sends, expects this problem, and that the same connection serves another request.
  void refused(const std::string& text, int status, const std::string& wanted) {
    raw_client client{port()};
    auto answer = client.exchange(text);
    EXPECT_EQ(answer.status, status) << text.substr(0, 200) << answer.body;
    EXPECT_EQ(code(answer), wanted) << answer.body;
    EXPECT_NE(answer.header("connection"), "close") << text.substr(0, 200);
    EXPECT_EQ(client.exchange(request_text("GET", "/healthz", "")).status, 200) << text.substr(0, 200);
  }
  std::string post(const std::string& target, const std::string& body, const std::string& headers = {}) {
    return request_text("POST", target, key_, body, headers);
  }
  std::string exec = "/v1/environments/" + runtime::http::random_id(protocols::id_kind::environment) + "/exec";
};

TEST_F(requests, each_bad_body_is_a_problem_with_a_code_and_the_connection_survives) {
  refused(post(exec, "{"), 400, "request.malformed_json");
  refused(post(exec, "nonsense"), 400, "request.malformed_json");
  refused(post(exec, "[]"), 400, "request.invalid");
  refused(post(exec, "{\"command\": 7}"), 400, "request.invalid");
  refused(post(exec, "{\"command\": \"a\", \"timeout_ms\": \"soon\"}"), 400, "request.invalid");
  refused(post(exec, "{\"command\": \"a\", \"timeout_ms\": -1}"), 400, "request.invalid");
  refused(post(exec, "{\"command\": \"a\", \"argv\": [\"b\"]}"), 400, "request.invalid");
  refused(post(exec, "{}"), 400, "request.invalid");
  refused(post(exec, "{\"argv\": []}"), 400, "request.invalid");
  refused(post(exec, "{\"argv\": [\"\"]}"), 400, "request.invalid");
  refused(post(exec, "{\"command\": \"a\\u0000b\"}"), 400, "request.invalid");
  refused(post(exec, "{\"command\": \"a\", \"env\": {\"A=B\": \"c\"}}"), 400, "request.invalid");
  refused(post(exec, "{\"command\": \"a\", \"stdin\": {\"b64\": \"%%%\"}}"), 400, "request.invalid");
  refused(post(exec, "{\"command\": \"a\", \"op_id\": \"no spaces\"}"), 400, "request.invalid");
  refused(post(exec, "{\"command\": \"a\", \"comand\": \"b\"}"), 400, "request.unknown_field");
  refused(post(exec, "{\"command\": \"\xff\xfe\"}"), 400, "request.malformed_json");
  refused(post(exec, "{\"command\": \"a\", \"command\": \"b\"}"), 400, "request.malformed_json");
  refused(post(exec, std::string(200, '[') + std::string(200, ']')), 400, "request.malformed_json");
  refused(post(exec, "{\"command\": \"" + std::string(5000, 'a') + "\"}"), 413, "request.too_large");
  refused(post(exec, "{\"command\": \"a\"}", "Content-Type: text/plain\r\n"), 415, "request.unsupported_media_type");
  refused(post(exec, "{\"command\": \"a\"}", "Idempotency-Key: b c\r\n"), 400, "request.invalid");
  refused(post(exec, "{\"command\": \"a\", \"op_id\": \"x\"}", "Idempotency-Key: y\r\n"), 400, "request.invalid");
}

TEST_F(requests, an_unknown_field_is_told_with_the_nearest_name) {
  auto answer = call("POST", exec, "{\"comand\": \"ls\"}");
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("command"), std::string::npos) << answer.body;
  EXPECT_NE(answer.body.find("\"pointer\":\"/comand\""), std::string::npos) << answer.body;
}

TEST_F(requests, keys_and_hosts_and_paths_are_checked) {
  refused(request_text("GET", "/v1/environments", ""), 401, "auth.required");
  refused(request_text("GET", "/v1/environments", "holt_wrong"), 401, "auth.invalid");
  refused(request_text("POST", "/v1/environments", use_key_, "{}"), 403, "auth.forbidden");
  refused(request_text("GET", "/nothing/here", key_), 404, "request.not_found");
  refused(request_text("GET", "/v1/environments/", key_), 404, "request.not_found");
  refused(request_text("GET", "/v1/environments/env_nonsense", key_), 404, "environment.not_found");
  refused(request_text("BREW", "/healthz", key_), 405, "request.method_not_allowed");
  refused(request_text("DELETE", "/healthz", key_), 405, "request.method_not_allowed");
  refused("GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421, "request.host_refused");
  refused("GET /healthz HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", 421, "request.host_refused");
  refused("GET /healthz HTTP/1.1\r\n\r\n", 400, "request.invalid");
  refused("GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400, "request.invalid");
  refused(request_text("GET", "/healthz", "", "", "Origin: https://evil.example\r\n"), 403, "request.origin_refused");
  refused(request_text("GET", "/healthz", "", "", "Origin: null\r\n"), 403, "request.origin_refused");
  refused(request_text("GET", "/v1/environments?limit=0", key_), 400, "request.invalid");
  refused(request_text("GET", "/v1/environments?cursor=x", key_), 400, "request.invalid");
}

TEST_F(requests, a_wrong_key_is_told_how_to_authenticate) {
  auto answer = call_as("holt_wrong", "GET", "/v1/environments");
  EXPECT_EQ(answer.status, 401);
  EXPECT_TRUE(answer.header("www-authenticate").starts_with("Bearer"));
}

TEST_F(requests, a_method_that_is_not_allowed_names_those_that_are) {
  auto answer = call("PUT", "/v1/environments");
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.header("allow"), "POST, GET, HEAD");
}

TEST_F(requests, allowed_hosts_and_origins_pass) {
  raw_client client{port()};
  for (auto host : {"localhost", "127.0.0.1:7117", "[::1]:7117", "LOCALHOST:1", "holt.example", "Holt.Example:443"}) {
    auto answer = client.exchange(std::string{"GET /healthz HTTP/1.1\r\nHost: "} + host + "\r\n\r\n");
    EXPECT_EQ(answer.status, 200) << host;
  }
  auto answer = client.exchange(request_text("GET", "/healthz", "", "", "Origin: https://app.example\r\n"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("access-control-allow-origin"), "https://app.example");
}

TEST_F(requests, what_is_no_http_is_refused_and_closed) {
  for (std::string text : {"nonsense\r\n\r\n", "GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", "GET  HTTP/1.1\r\n\r\n",
                           "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
                           "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
                           "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n"}) {
    raw_client client{port()};
    auto answer = client.exchange(text);
    EXPECT_EQ(answer.status, 400) << text;
    EXPECT_EQ(answer.header("connection"), "close") << text;
    EXPECT_TRUE(client.closed_within(milliseconds{3000})) << text;
  }
}

TEST_F(requests, a_header_over_the_limit_is_431) {
  raw_client client{port()};
  client.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + std::string(20000, 'a') + "\r\n\r\n");
  auto answer = client.read_response();
  EXPECT_EQ(answer.status, 431);
  EXPECT_EQ(code(answer), "request.headers_too_large");
}

TEST_F(requests, a_client_that_drips_its_header_is_cut_at_the_deadline) {
  raw_client client{port()};
  auto began = std::chrono::steady_clock::now();
  client.send("GET /healthz HTTP/1.1\r\n");
  while (!client.closed_within(milliseconds{50}) && std::chrono::steady_clock::now() - began < std::chrono::seconds{10})
    client.send("X: y\r\n");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds{5});
}

TEST_F(requests, a_header_that_stays_half_is_answered_408) {
  raw_client client{port()};
  client.send("GET /healthz HTTP/1.1\r\nHost: loc");
  auto answer = client.read_response();
  EXPECT_EQ(answer.status, 408);
  EXPECT_EQ(code(answer), "request.timeout");
}

TEST_F(requests, a_body_that_stays_away_is_answered_408) {
  raw_client client{port()};
  client.send("POST /v1/environments HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key_ +
              "\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{");
  auto answer = client.read_response();
  EXPECT_EQ(answer.status, 408);
  EXPECT_TRUE(client.closed_within(milliseconds{3000}));
}

TEST_F(requests, an_idle_connection_is_closed) {
  raw_client client{port()};
  EXPECT_EQ(client.exchange(request_text("GET", "/healthz", "")).status, 200);
  EXPECT_TRUE(client.closed_within(milliseconds{6000}));
}

TEST_F(requests, pipelined_requests_are_answered_in_order) {
  raw_client client{port()};
  std::string text;
  for (int i = 0; i < 50; ++i)
    text += request_text("GET", i % 2 ? "/healthz" : "/nothing", "");
  client.send(text);
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(client.read_response().status, i % 2 ? 200 : 404) << i;
}

TEST_F(requests, a_half_closed_client_still_gets_its_answer) {
  raw_client client{port()};
  client.send(request_text("GET", "/healthz", ""));
  client.close_sending();
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_TRUE(client.closed_within(milliseconds{3000}));
}

TEST_F(requests, expect_100_continue_is_answered_before_the_body) {
  raw_client client{port()};
  client.send("POST /v1/environments HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key_ +
              "\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_head().status, 100);
  client.send("{}");
  EXPECT_EQ(client.read_response().status, 201);
  EXPECT_EQ(client.exchange(request_text("GET", "/healthz", "")).status, 200);
}

TEST_F(requests, a_body_is_not_asked_for_when_the_answer_is_clear) {
  raw_client client{port()};
  client.send("POST /v1/environments HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
              "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  auto answer = client.read_response();
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.header("connection"), "close");
}

TEST_F(requests, chunked_bodies_are_read) {
  raw_client client{port()};
  auto head = "POST /v1/environments HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key_ +
              "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
  client.send(head + "9\r\n{\"name\":\"\r\n");
  client.send("4\r\nfour\r\n2\r\n\"}\r\n0\r\n\r\n");
  auto answer = client.read_response();
  EXPECT_EQ(answer.status, 201) << answer.body;
  EXPECT_EQ(json(answer).at("name").as_string(), "four");
  std::string big = "1000\r\n" + std::string(4096, ' ') + "\r\n";
  client.send(head + big + big + "0\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 413);
  raw_client broken{port()};
  EXPECT_EQ(broken.exchange(head + "zz\r\n{}\r\n0\r\n\r\n").status, 400);
}

TEST_F(requests, head_has_no_body_and_the_length_of_get) {
  raw_client client{port()};
  client.send(request_text("HEAD", "/healthz", ""));
  auto answer = client.read_response(true);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("content-length"), "15");
  EXPECT_EQ(client.exchange(request_text("GET", "/healthz", "")).body, "{\"status\":\"ok\"}");
}

TEST_F(requests, request_ids_are_kept_or_made) {
  EXPECT_EQ(call("GET", "/healthz", "", "X-Request-Id: mine-1\r\n").header("x-request-id"), "mine-1");
  EXPECT_TRUE(call("GET", "/healthz").header("x-request-id").starts_with("req_"));
  EXPECT_TRUE(call("GET", "/healthz", "", "X-Request-Id: {bad}\r\n").header("x-request-id").starts_with("req_"));
}

TEST_F(requests, sixty_four_keep_alive_clients_are_served) {
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 64; ++i)
    threads.emplace_back([&] {
      raw_client client{port()};
      for (int n = 0; n < 20; ++n)
        if (client.exchange(request_text("GET", "/v1/environments", key_)).status == 200)
          ++good;
    });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(good, 64 * 20);
}

TEST_F(requests, no_socket_is_inherited_by_children) {
  raw_client client{port()};
  EXPECT_EQ(client.exchange(request_text("GET", "/healthz", "")).status, 200);
  for (auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    auto target = std::filesystem::read_symlink(entry.path(), error).string();
    int descriptor = std::stoi(entry.path().filename());
    if (!error && target.starts_with("socket:") && descriptor > 2) {
      EXPECT_TRUE(fcntl(descriptor, F_GETFD) & FD_CLOEXEC) << target;
    }
  }
}

TEST_F(requests, the_server_tells_of_itself) {
  auto ready = call("GET", "/readyz");
  EXPECT_EQ(ready.status, 200) << ready.body;
  auto server = call("GET", "/v1/server");
  EXPECT_EQ(json(server).at("providers").at(0).at("name").as_string(), "bubblewrap");
  EXPECT_EQ(json(server).at("providers").at(0).at("missing").as_array().size(), 1u);
  auto document = call("GET", "/openapi.json");
  EXPECT_TRUE(json(document).at("openapi").as_string().starts_with("3.1"));
  auto metrics = call("GET", "/metrics");
  EXPECT_NE(metrics.body.find("holt_http_requests_total{code=\"200\",route=\"readyz\"} 1"), std::string::npos) << metrics.body;
  EXPECT_NE(metrics.body.find("process_resident_memory_bytes"), std::string::npos);
}

TEST_F(requests, a_stopping_server_finishes_what_runs_and_takes_no_more) {
  front_.play("process.start", {});
  raw_client idle{port()};
  EXPECT_EQ(idle.exchange(request_text("GET", "/healthz", "")).status, 200);
  raw_client busy{port()};
  std::shared_ptr<played_use> use;
  front_.play("process.start", [&](std::shared_ptr<played_use> played) { use = played; });
  busy.send(post(exec, "{\"command\": \"sleep\"}"));
  while (front_.uses() == 0)
    std::this_thread::yield();
  server_->stop_accepting();
  EXPECT_TRUE(idle.closed_within(milliseconds{3000}));
  EXPECT_FALSE(server_->drain(milliseconds{100}));
  while (!use)
    std::this_thread::yield();
  use->accept();
  use->exit(0);
  auto answer = busy.read_response();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("connection"), "close");
  busy.close();
  EXPECT_TRUE(server_->drain(milliseconds{5000}));
}

class limited : public edge_test {
protected:
  limited()
      : edge_test([] {
          runtime::http::server_settings settings;
          settings.api_per_second = 2;
          settings.max_connections = 3;
          return settings;
        }()) {
  }
};

TEST_F(limited, a_key_that_asks_too_often_is_told_when_to_come_back) {
  raw_client client{port()};
  response last;
  for (int i = 0; i < 6; ++i)
    last = client.exchange(request_text("GET", "/v1/environments", key_));
  EXPECT_EQ(last.status, 429);
  EXPECT_EQ(code(last), "rate.limited");
  EXPECT_EQ(last.header("retry-after"), "1");
  EXPECT_EQ(client.exchange(request_text("GET", "/v1/environments", other_key_)).status, 200);
}

TEST_F(limited, connections_over_the_limit_get_503) {
  std::vector<std::unique_ptr<raw_client>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<raw_client>(port()));
    EXPECT_EQ(clients.back()->exchange(request_text("GET", "/healthz", "")).status, 200);
  }
  raw_client more{port()};
  EXPECT_EQ(more.read_response().status, 503);
}

} // namespace
} // namespace holt::tests::http
