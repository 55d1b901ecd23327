#include <algorithm>

#include "actors/front.hpp"
#include "protocols/api/server.hpp"
#include "protocols/api/processes.hpp"
#include "runtime/http/core.hpp"

/// What the server says of itself (spec 102).
namespace holt::runtime::http {

namespace {

using namespace protocols;

void healthz(exchange& x) {
  x.answer(200, "application/json", R"({"status":"ok"})");
}

task<std::vector<actors::provider_report>> ask_providers(exchange& x) {
  auto ask = [front = x.core().parts.front](auto reply) { front->providers(std::move(reply)); };
  co_return co_await answer_of<std::vector<actors::provider_report>>(std::move(ask));
}

task<> readyz(exchange& x) {
  api::readiness_view out{"ready", {}};
  if (x.stopping()) {
    out.missing.emplace_back("the server is stopping");
  } else {
    auto ping = [store = x.core().parts.store](auto reply) { store->ping(std::move(reply)); };
    if (!co_await answer_of<storage::store_result<bool>>(std::move(ping)))
      out.missing.emplace_back("the database does not answer");
    auto providers = co_await ask_providers(x);
    bool any = std::any_of(providers.begin(), providers.end(), [](auto& one) { return one.available; });
    if (!any)
      out.missing.emplace_back("no sandbox provider is available");
  }
  if (!out.missing.empty())
    out.status = "not_ready";
  x.answer_json(out.missing.empty() ? 200 : 503, out);
}

void metrics_page(exchange& x) {
  x.answer(200, "text/plain; version=0.0.4; charset=utf-8", x.core().metrics.text());
}

void openapi_page(exchange& x) {
  x.answer(200, "application/json", x.core().openapi_text);
}

task<> show_server(exchange& x) {
  auto& settings = x.core().settings;
  api::server_view out;
  out.version = settings.version;
  out.roles = settings.roles;
  for (auto& one : co_await ask_providers(x))
    out.providers.push_back({one.name, one.available, one.features, one.missing});
  out.limits = {settings.max_header_bytes, settings.max_body_bytes, settings.max_file_bytes, api::max_output_limit,
                settings.api_per_second};
  x.answer_json(200, out);
}

} // namespace

void add_server_routes(route_table& table) {
  table.add({.doc = {.method = "GET", .path = "/healthz", .id = "healthz", .tag = "server", .summary = "Is it alive?",
                     .responses = {{200, "It is.", {json_answer<api::health_view>()}}}},
             .run_plain = healthz});
  table.add({.doc = {.method = "GET", .path = "/readyz", .id = "readyz", .tag = "server", .summary = "Can it work?",
                     .responses = {{200, "It can.", {json_answer<api::readiness_view>()}},
                                   {503, "Not now: `missing` says why.", {json_answer<api::readiness_view>()}}}},
             .run = readyz});
  table.add({.doc = {.method = "GET", .path = "/metrics", .id = "metrics", .tag = "server", .summary = "Figures for Prometheus",
                     .responses = {{200, "Text exposition format.", {{"text/plain", text_schema}}}}},
             .run_plain = metrics_page});
  table.add({.doc = {.method = "GET", .path = "/openapi.json", .id = "openapi", .tag = "server", .summary = "This document",
                     .responses = {{200, "OpenAPI 3.1.", {{"application/json", nullptr}}}}},
             .run_plain = openapi_page});
  table.add({.doc = {.method = "GET", .path = "/v1/server", .id = "show_server", .tag = "server",
                     .summary = "Version, roles, providers and limits",
                     .responses = {{200, "What this server can do.", {json_answer<api::server_view>()}}}},
             .run = show_server,
             .scopes = scope_use | scope_manage | scope_operate});
}

std::string http_server::openapi(const std::string& version) {
  route_table table;
  add_all_routes(table);
  std::vector<route_doc> docs;
  for (auto& one : table.all())
    docs.push_back(one->doc);
  api_info info;
  info.title = "holt";
  info.version = version;
  info.description = "Environments for AI agents: a kept file system, and an instance that runs commands on it.";
  info.tags = {{"server", "What the server says of itself."},
               {"environments", "Make, find, change and end environments."},
               {"processes", "Run commands, follow and steer them."},
               {"files", "Read, write and search the files of an environment."},
               {"identity", "Orgs, users and keys."}};
  return json::write_text(openapi_document(info, docs));
}

} // namespace holt::runtime::http
