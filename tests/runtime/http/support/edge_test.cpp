#include "tests/runtime/http/support/edge_test.hpp"

#include <stdlib.h>

#include <filesystem>
#include <future>

#include "protocols/json.hpp"
#include "runtime/http/secrets.hpp"
#include "storage/sqlite_store.hpp"

namespace holt::tests::http {

namespace {

template <class T, class Call>
storage::store_result<T> wait_for(Call call) {
  auto promise = std::make_shared<std::promise<storage::store_result<T>>>();
  auto answer = promise->get_future();
  call([promise](storage::store_result<T> result) { promise->set_value(std::move(result)); });
  return answer.get();
}

} // namespace

edge_test::edge_test(runtime::http::server_settings settings) {
  char name[] = "/tmp/holt-http-test-XXXXXX";
  directory_ = mkdtemp(name);
  store_ = storage::open_sqlite_store(directory_ + "/holt.db").value();
  for (auto* org : {&org_, &other_org_}) {
    *org = runtime::http::random_id(protocols::id_kind::org);
    wait_for<storage::org_row>([&](auto reply) { store_->create_org({*org, "an org", 1}, reply); }).value();
  }
  key_ = make_key(org_, {"use", "manage", "operate"});
  other_key_ = make_key(other_org_, {"use", "manage"});
  use_key_ = make_key(org_, {"use"});
  settings.port = 0;
  server_ = std::make_unique<runtime::http::http_server>(
    context_, settings, runtime::http::server_parts{.store = store_, .front = &front_, .log = {}, .now = {}});
  auto started = server_->start();
  if (!started)
    throw std::runtime_error(started.error());
  for (int i = 0; i < 2; ++i)
    threads_.emplace_back([this] { context_.run(); });
}

edge_test::~edge_test() {
  server_->stop_accepting();
  server_->close();
  server_.reset();
  work_.reset();
  context_.stop();
  for (auto& thread : threads_)
    thread.join();
  store_->close();
  std::filesystem::remove_all(directory_);
}

std::string edge_test::make_key(const std::string& org, std::vector<std::string> scopes) {
  auto secret = runtime::http::random_key();
  storage::key_row row;
  row.id = runtime::http::random_id(protocols::id_kind::key);
  row.org_id = org;
  row.principal = "user_1";
  row.name = "test";
  row.hash = runtime::http::sha256_hex(secret);
  row.scopes = std::move(scopes);
  wait_for<storage::key_row>([&](auto reply) { store_->create_key(row, reply); }).value();
  return secret;
}

response edge_test::call(std::string_view method, std::string_view target, std::string_view body, std::string_view headers) {
  return call_as(key_, method, target, body, headers);
}

response edge_test::call_as(std::string_view key, std::string_view method, std::string_view target, std::string_view body,
                            std::string_view headers) {
  raw_client client{port()};
  client.send(request_text(method, target, key, body, headers));
  return client.read_response(method == "HEAD");
}

std::string edge_test::new_environment(std::string_view body) {
  auto made = call("POST", "/v1/environments", body);
  if (made.status != 201)
    throw std::runtime_error("no environment: " + made.body);
  return std::string{json(made).at("id").as_string()};
}

boost::json::value edge_test::json(const response& answer) {
  auto parsed = protocols::json::parse_text(answer.body);
  return parsed ? *parsed : boost::json::value{};
}

std::string edge_test::code(const response& answer) {
  auto value = json(answer);
  if (answer.header("content-type") != "application/problem+json" || !value.is_object() ||
      !value.as_object().contains("code"))
    return "";
  return std::string{value.at("code").as_string()};
}

} // namespace holt::tests::http
