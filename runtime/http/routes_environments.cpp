#include "actors/front.hpp"
#include "protocols/api/environments.hpp"
#include "protocols/ids.hpp"
#include "protocols/json_canonical.hpp"
#include "runtime/http/commands.hpp"
#include "runtime/http/operation.hpp"
#include "runtime/http/secrets.hpp"
#include "runtime/http/stored.hpp"

/// /v1/environments and /v1/operations: rows and lifecycle by hand (spec 1 to 6, 16, 25, 27).
namespace holt::runtime::http {

namespace {

using namespace protocols;
using storage::environment_record;
using storage::environment_row;

constexpr std::uint32_t max_page = 1000;

api::environment_view view_of(const environment_record& record) {
  auto& row = record.environment;
  api::environment_view out;
  out.id = row.id;
  if (!row.name.empty())
    out.name = row.name;
  out.kind = row.kind;
  out.image = row.image;
  if (auto limits = json::read_text<api::environment_limits>(row.limits_json, json::unknown_fields::ignore))
    out.limits = *limits;
  out.network = row.network;
  out.suspend_after_ms = row.suspend_after_ms;
  out.destroy_after_ms = row.destroy_after_ms;
  out.labels = row.labels;
  out.created_by = row.created_by;
  out.created_at = api::time_text(row.created_at);
  out.updated_at = api::time_text(row.updated_at);
  out.roots = {"/workspace", "/skills", "/tmp"}; // spec 3
  if (!record.instance)
    return out;
  auto& instance = *record.instance;
  if (auto roots = json::read_text<api::roots_view>(instance.roots_json, json::unknown_fields::ignore);
      roots && !instance.roots_json.empty())
    out.roots = *roots;
  auto& view = out.instance.emplace();
  view.status = instance.status;
  view.provider = instance.provider;
  view.fs_status = instance.fs_status;
  if (instance.instance_created_at > 0)
    view.created_at = api::time_text(instance.instance_created_at);
  if (instance.last_used_at > 0)
    view.last_used_at = api::time_text(instance.last_used_at);
  view.generation = instance.generation;
  if (instance.sweep_failed_at)
    view.sweep_failed_at = api::time_text(*instance.sweep_failed_at);
  return out;
}

/// What rules of fields can't say. False: refused, and answered.
bool check_limits(exchange& x, const std::optional<api::environment_limits>& limits) {
  if (limits && limits->cpus && !(*limits->cpus >= 0.01))
    return x.refuse_field("/limits/cpus", "must be at least 0.01"), false;
  return true;
}

bool check_network(exchange& x, const std::string& network) {
  if (network == "egress")
    return x.refuse_field("/network", "can be none or host: this version can't give filtered egress"), false;
  return true;
}

bool check_labels(exchange& x, const std::optional<std::map<std::string, std::string>>& labels) {
  if (labels && labels->contains(""))
    return x.refuse_field("/labels", "has a label without a name"), false;
  return true;
}

std::optional<std::string> environment_id(exchange& x) {
  std::string id{x.params[0]};
  if (is_id(id_kind::environment, id))
    return id;
  x.refuse("environment.not_found", "There is no such environment.");
  return std::nullopt;
}

task<std::optional<environment_record>> load(exchange& x, std::string id) {
  auto call = [org = x.who->org_id, id = std::move(id)](auto& store, auto reply) { store.get_environment(org, id, std::move(reply)); };
  auto record = co_await stored<environment_record>(x, std::move(call));
  if (record)
    co_return std::move(*record);
  refuse_stored(x, record.error(), "environment.not_found", "environment");
  co_return std::nullopt;
}

// -- rows --------------------------------------------------------------------------------------------------------------

/// What a create asked for, to compare a repeat with what is there.
bool same_request(const environment_row& a, const environment_row& b) {
  auto limits = [](const environment_row& row) {
    auto value = json::parse_text(row.limits_json);
    return value ? json::canonical(*value) : row.limits_json;
  };
  return a.name == b.name && a.kind == b.kind && a.image == b.image && limits(a) == limits(b) && a.network == b.network &&
         a.suspend_after_ms == b.suspend_after_ms && a.destroy_after_ms == b.destroy_after_ms && a.labels == b.labels;
}

task<> create(exchange& x) {
  auto asked = co_await x.read_json<api::create_environment>();
  if (!asked || !check_network(x, asked->network) || !check_limits(x, asked->limits) || !check_labels(x, asked->labels))
    co_return;
  auto key = chosen_op_id(x, std::nullopt);
  if (!key)
    co_return;
  environment_row row;
  // A repeat with the same key names the same environment, on whichever replica it arrives.
  row.id = key->empty() ? random_id(id_kind::environment) : derived_id(id_kind::environment, x.who->org_id, *key);
  row.org_id = x.who->org_id;
  row.name = asked->name.value_or("");
  row.kind = asked->kind;
  row.provider = asked->kind == "device" ? "@device" : "";
  row.image = asked->image;
  row.limits_json = asked->limits ? json::write(*asked->limits) : "{}";
  row.network = asked->network;
  row.suspend_after_ms = asked->suspend_after_ms;
  row.destroy_after_ms = asked->destroy_after_ms;
  row.labels = asked->labels.value_or(std::map<std::string, std::string>{});
  row.created_by = x.who->principal;
  row.created_at = row.updated_at = x.core().now_us();
  auto call = [row](auto& store, auto reply) { store.create_environment(row, std::move(reply)); };
  auto made = co_await stored<environment_row>(x, std::move(call));
  if (!made && made.error().code == storage::store_errc::conflict && !key->empty()) {
    auto find = [org = row.org_id, id = row.id](auto& store, auto reply) { store.get_environment(org, id, std::move(reply)); };
    auto there = co_await stored<environment_record>(x, std::move(find));
    if (there && same_request(there->environment, row)) {
      x.add_header("Location", "/v1/environments/" + row.id);
      co_return x.answer_json(201, view_of(*there));
    }
    co_return x.refuse("operation.conflict", "This Idempotency-Key has made an environment from another request, or one "
                                             "that was changed or deleted since.");
  }
  if (!made)
    co_return refuse_stored(x, made.error(), "environment.not_found", "environment");
  x.add_header("Location", "/v1/environments/" + made->id);
  x.answer_json(201, view_of({*made, std::nullopt}));
}

task<> list(exchange& x) {
  query_values query{x.query};
  auto limit = number(x, query, "limit", 100, 1, max_page);
  if (!limit)
    co_return;
  storage::environment_filter filter;
  filter.org_id = x.who->org_id;
  filter.limit = static_cast<std::uint32_t>(*limit);
  if (auto* cursor = query.find("cursor"))
    filter.cursor = *cursor;
  if (auto* kind = query.find("kind")) {
    if (*kind != "cloud" && *kind != "device")
      co_return x.refuse_field("/query/kind", "must be cloud or device");
    filter.kind = *kind;
  }
  for (auto& [name, value] : query.all())
    if (name == "label") {
      auto equals = value.find('=');
      if (equals == 0 || equals == std::string::npos)
        co_return x.refuse_field("/query/label", "must be NAME=VALUE");
      filter.labels[value.substr(0, equals)] = value.substr(equals + 1);
    }
  if (filter.labels.size() > 16)
    co_return x.refuse_field("/query/label", "can be given 16 times at most");
  auto call = [filter](auto& store, auto reply) { store.list_environments(filter, std::move(reply)); };
  auto page = co_await stored<storage::page<environment_record>>(x, std::move(call));
  if (!page)
    co_return refuse_stored(x, page.error(), "environment.not_found", "environment");
  api::environment_list out;
  for (auto& one : page->items)
    out.items.push_back(view_of(one));
  if (!page->next_cursor.empty())
    out.next_cursor = page->next_cursor;
  x.answer_json(200, out);
}

task<> show_one(exchange& x) {
  auto id = environment_id(x);
  if (!id)
    co_return;
  auto record = co_await load(x, *id);
  if (!record)
    co_return;
  auto out = view_of(*record);
  auto ask = [front = x.core().parts.front, id = *id](auto reply) { front->activity(id, std::move(reply)); };
  auto activity = co_await answer_of<actors::environment_activity>(std::move(ask));
  out.activity = api::activity_view{activity.uses, activity.waiting, activity.connected};
  out.holders = std::move(activity.holders);
  x.answer_json(200, out);
}

task<> update(exchange& x) {
  auto asked = co_await x.read_json<api::update_environment>();
  if (!asked || !check_limits(x, asked->limits) || !check_labels(x, asked->labels))
    co_return;
  if (asked->network && !check_network(x, *asked->network))
    co_return;
  auto id = environment_id(x);
  if (!id)
    co_return;
  auto record = co_await load(x, *id);
  if (!record)
    co_return;
  auto row = record->environment;
  if (asked->name)
    row.name = *asked->name;
  if (asked->limits)
    row.limits_json = json::write(*asked->limits);
  if (asked->network)
    row.network = *asked->network;
  if (asked->suspend_after_ms)
    row.suspend_after_ms = asked->suspend_after_ms;
  if (asked->destroy_after_ms)
    row.destroy_after_ms = asked->destroy_after_ms;
  if (asked->labels)
    row.labels = *asked->labels;
  row.updated_at = x.core().now_us();
  auto call = [row](auto& store, auto reply) { store.update_environment(row, std::move(reply)); };
  auto done = co_await stored<environment_row>(x, std::move(call));
  if (!done)
    co_return refuse_stored(x, done.error(), "environment.not_found", "environment");
  record->environment = std::move(*done);
  x.answer_json(200, view_of(*record));
}

// -- lifecycle ---------------------------------------------------------------------------------------------------------

api::operation_view view_of(const storage::operation_row& row) {
  api::operation_view out;
  out.id = row.id;
  out.kind = row.kind;
  out.status = row.status;
  if (!row.environment_id.empty())
    out.environment_id = row.environment_id;
  if (!row.error.empty())
    out.error = row.error;
  out.created_at = api::time_text(row.created_at);
  out.updated_at = api::time_text(row.updated_at);
  return out;
}

task<> remove(exchange& x) {
  auto id = environment_id(x);
  if (!id)
    co_return;
  storage::operation_row operation;
  operation.id = random_id(id_kind::operation);
  operation.org_id = x.who->org_id;
  operation.environment_id = *id;
  operation.kind = "environment.delete";
  operation.status = "running";
  operation.created_at = operation.updated_at = x.core().now_us();
  auto call = [operation](auto& store, auto reply) {
    store.delete_environment(operation.org_id, operation.environment_id, operation, std::move(reply));
  };
  auto done = co_await stored<storage::operation_row>(x, std::move(call));
  if (!done)
    co_return refuse_stored(x, done.error(), "environment.not_found", "environment");
  // From here on it happens by itself; a sweep finishes what a crash leaves (spec 27).
  x.core().parts.front->lifecycle({x.who->org_id, *id, actors::lifecycle_action::remove, operation.id},
                                  [](actors::lifecycle_result) {});
  x.add_header("Location", "/v1/operations/" + done->id);
  x.answer_json(202, view_of(*done));
}

task<> act(exchange& x, actors::lifecycle_action action) {
  auto asked = co_await x.read_json<api::empty_request>();
  auto id = asked ? environment_id(x) : std::nullopt;
  if (!id)
    co_return;
  actors::lifecycle_request request{x.who->org_id, *id, action, {}};
  auto ask = [front = x.core().parts.front, request](auto reply) { front->lifecycle(request, std::move(reply)); };
  auto done = co_await answer_of<actors::lifecycle_result>(std::move(ask));
  if (done.error)
    co_return refuse_use(x, *done.error);
  if (!done.record) {
    done.record = co_await load(x, *id);
    if (!done.record)
      co_return;
  }
  x.answer_json(200, view_of(*done.record));
}

task<> suspend(exchange& x) {
  return act(x, actors::lifecycle_action::suspend);
}

task<> resume(exchange& x) {
  return act(x, actors::lifecycle_action::resume);
}

task<> reset(exchange& x) {
  return act(x, actors::lifecycle_action::reset);
}

task<> show_operation(exchange& x) {
  std::string id{x.params[0]};
  auto call = [org = x.who->org_id, id](auto& store, auto reply) { store.get_operation(org, id, std::move(reply)); };
  auto row = co_await stored<storage::operation_row>(x, std::move(call));
  if (!row)
    co_return refuse_stored(x, row.error(), "operation.not_found", "operation");
  x.answer_json(200, view_of(*row));
}

void add_action(route_table& table, const char* name, const char* summary, handler run) {
  table.add({.doc = {.method = "POST",
                     .path = std::string{"/v1/environments/{id}/"} + name,
                     .id = std::string{name} + "_environment",
                     .tag = "environments",
                     .summary = summary,
                     .request = {json_body<api::empty_request>()},
                     .request_required = false,
                     .responses = {{200, "As it is now.", {json_answer<api::environment_view>()}}},
                     .errors = {"environment.not_found", "environment.busy", "environment.state", "environment.files_lost",
                                "environment.unavailable", "sandbox.unavailable", "sandbox.refused", "lease.lost"}},
             .run = run,
             .scopes = scope_manage});
}

} // namespace

void add_environment_routes(route_table& table) {
  constexpr const char* one = "/v1/environments/{id}";
  table.add({.doc = {.method = "POST", .path = "/v1/environments", .id = "create_environment", .tag = "environments",
                     .summary = "Make an environment",
                     .doc = "Its instance is made at the first use, or by resume.",
                     .parameters = {{.name = "Idempotency-Key", .in = "header", .doc = "A repeat with the same request answers the same environment."}},
                     .request = {json_body<api::create_environment>()},
                     .request_required = false,
                     .responses = {{201, "Made.", {json_answer<api::environment_view>()}, {{.name = "Location"}}}},
                     .errors = {"operation.conflict", "storage.unavailable"}},
             .run = create,
             .scopes = scope_manage});
  table.add({.doc = {.method = "GET", .path = "/v1/environments", .id = "list_environments", .tag = "environments",
                     .summary = "Environments of the org",
                     .parameters = {{.name = "cursor", .doc = "`next_cursor` of the page before."},
                                    {.name = "limit", .doc = "1 to 1000, default 100.", .schema = count_schema},
                                    {.name = "kind", .doc = "`cloud` or `device`."},
                                    {.name = "label", .doc = "NAME=VALUE; may be given several times."}},
                     .responses = {{200, "A page.", {json_answer<api::environment_list>()}}},
                     .errors = {"request.invalid", "storage.unavailable"}},
             .run = list,
             .scopes = scope_use | scope_manage});
  table.add({.doc = {.method = "GET", .path = one, .id = "show_environment", .tag = "environments", .summary = "One environment",
                     .responses = {{200, "As it is now.", {json_answer<api::environment_view>()}}},
                     .errors = {"environment.not_found", "storage.unavailable"}},
             .run = show_one,
             .scopes = scope_use | scope_manage});
  table.add({.doc = {.method = "PATCH", .path = one, .id = "update_environment", .tag = "environments", .summary = "Change its settings",
                     .request = {json_body<api::update_environment>()},
                     .responses = {{200, "As it is now.", {json_answer<api::environment_view>()}}},
                     .errors = {"environment.not_found", "storage.unavailable"}},
             .run = update,
             .scopes = scope_manage});
  table.add({.doc = {.method = "DELETE", .path = one, .id = "delete_environment", .tag = "environments",
                     .summary = "Delete it, with its files",
                     .doc = "From now on it is not found; the operation tells when all of it is gone.",
                     .responses = {{202, "It goes.", {json_answer<api::operation_view>()}, {{.name = "Location"}}}},
                     .errors = {"environment.not_found", "storage.unavailable"}},
             .run = remove,
             .scopes = scope_manage});
  add_action(table, "suspend", "Freeze its instance", suspend);
  add_action(table, "resume", "Have an instance run: thaw it, or make one", resume);
  add_action(table, "reset", "Start again with new, empty files", reset);
  table.add({.doc = {.method = "GET", .path = "/v1/operations/{id}", .id = "show_operation", .tag = "environments",
                     .summary = "How far something long has come",
                     .responses = {{200, "Its state.", {json_answer<api::operation_view>()}}},
                     .errors = {"operation.not_found", "storage.unavailable"}},
             .run = show_operation,
             .scopes = scope_use | scope_manage});
}

} // namespace holt::runtime::http
