#include <algorithm>

#include "protocols/api/identity.hpp"
#include "protocols/ids.hpp"
#include "runtime/http/commands.hpp"
#include "runtime/http/secrets.hpp"
#include "runtime/http/stored.hpp"

/// /v1/orgs, /v1/users and /v1/keys (spec 93). A secret is in the answer that made it and nowhere else.
namespace holt::runtime::http {

namespace {

using namespace protocols;

constexpr std::uint32_t max_page = 1000;

bool may(const exchange& x, scope one) {
  return (x.who->scopes & one) != 0;
}

/// The caller's own org, or with `operate` any. nullopt: refused, and answered.
std::optional<std::string> org_for(exchange& x, const std::optional<std::string>& asked) {
  if (!asked || *asked == x.who->org_id)
    return x.who->org_id;
  if (may(x, scope_operate))
    return *asked;
  x.refuse("auth.forbidden", "Another org needs a key with the scope operate.");
  return std::nullopt;
}

struct page_asked {
  std::string org_id;
  std::string cursor;
  std::uint32_t limit = 100;
};

std::optional<page_asked> page_of(exchange& x) {
  query_values query{x.query};
  auto limit = number(x, query, "limit", 100, 1, max_page);
  if (!limit)
    return std::nullopt;
  std::optional<std::string> org;
  if (auto* given = query.find("org_id"))
    org = *given;
  auto allowed = org_for(x, org);
  if (!allowed)
    return std::nullopt;
  auto* cursor = query.find("cursor");
  return page_asked{*allowed, cursor ? *cursor : "", static_cast<std::uint32_t>(*limit)};
}

/// The org of `?org_id`, for a DELETE.
std::optional<std::string> org_in_query(exchange& x) {
  query_values query{x.query};
  auto* given = query.find("org_id");
  return org_for(x, given ? std::optional{*given} : std::nullopt);
}

template <class List, class Row, class View>
void answer_page(exchange& x, const storage::page<Row>& page, View view) {
  List out;
  for (auto& one : page.items)
    out.items.push_back(view(one));
  if (!page.next_cursor.empty())
    out.next_cursor = page.next_cursor;
  x.answer_json(200, out);
}

api::org_view view_of(const storage::org_row& row) {
  return {row.id, row.name, api::time_text(row.created_at)};
}

api::user_view view_of(const storage::user_row& row) {
  return {row.id, row.name, row.org_id, api::time_text(row.created_at)};
}

api::key_view view_of(const storage::key_row& row) {
  api::key_view out{row.id, row.name, row.principal, row.scopes, api::time_text(row.created_at), {}, {}};
  if (row.expires_at)
    out.expires_at = api::time_text(*row.expires_at);
  if (row.last_used_at)
    out.last_used_at = api::time_text(*row.last_used_at);
  return out;
}

// -- orgs --------------------------------------------------------------------------------------------------------------

task<> create_org(exchange& x) {
  auto asked = co_await x.read_json<api::create_org>();
  if (!asked)
    co_return;
  storage::org_row row{random_id(id_kind::org), asked->name, x.core().now_us()};
  auto call = [row](auto& store, auto reply) { store.create_org(row, std::move(reply)); };
  auto made = co_await stored<storage::org_row>(x, std::move(call));
  if (!made)
    co_return refuse_stored(x, made.error(), "request.not_found", "org");
  x.answer_json(201, view_of(*made));
}

task<> list_orgs(exchange& x) {
  auto page = page_of(x);
  if (!page)
    co_return;
  auto call = [page = *page](auto& store, auto reply) { store.list_orgs(page.cursor, page.limit, std::move(reply)); };
  auto rows = co_await stored<storage::page<storage::org_row>>(x, std::move(call));
  if (!rows)
    co_return refuse_stored(x, rows.error(), "request.not_found", "org");
  answer_page<api::org_list>(x, *rows, [](auto& row) { return view_of(row); });
}

task<> show_org(exchange& x) {
  std::string id{x.params[0]};
  if (id != x.who->org_id && !may(x, scope_operate))
    co_return x.refuse("request.not_found", "There is no such org.");
  auto call = [id](auto& store, auto reply) { store.get_org(id, std::move(reply)); };
  auto row = co_await stored<storage::org_row>(x, std::move(call));
  if (!row)
    co_return refuse_stored(x, row.error(), "request.not_found", "org");
  x.answer_json(200, view_of(*row));
}

task<> delete_org(exchange& x) {
  std::string id{x.params[0]};
  if (id == x.who->org_id)
    co_return x.refuse("environment.state", "The org of the key that asks can't be deleted with it.");
  auto call = [id, now = x.core().now_us()](auto& store, auto reply) { store.delete_org(id, now, std::move(reply)); };
  auto done = co_await stored<bool>(x, std::move(call));
  if (!done)
    co_return refuse_stored(x, done.error(), "request.not_found", "org");
  x.core().keys.drop_org(id);
  x.answer(204, "", "");
}

// -- users -------------------------------------------------------------------------------------------------------------

task<> create_user(exchange& x) {
  auto asked = co_await x.read_json<api::create_user>();
  auto org = asked ? org_for(x, asked->org_id) : std::nullopt;
  if (!org)
    co_return;
  storage::user_row row{random_id(id_kind::user), *org, asked->name, x.core().now_us()};
  auto call = [row](auto& store, auto reply) { store.create_user(row, std::move(reply)); };
  auto made = co_await stored<storage::user_row>(x, std::move(call));
  if (!made)
    co_return refuse_stored(x, made.error(), "request.not_found", "org");
  x.answer_json(201, view_of(*made));
}

task<> list_users(exchange& x) {
  auto page = page_of(x);
  if (!page)
    co_return;
  auto call = [page = *page](auto& store, auto reply) { store.list_users(page.org_id, page.cursor, page.limit, std::move(reply)); };
  auto rows = co_await stored<storage::page<storage::user_row>>(x, std::move(call));
  if (!rows)
    co_return refuse_stored(x, rows.error(), "request.not_found", "user");
  answer_page<api::user_list>(x, *rows, [](auto& row) { return view_of(row); });
}

task<> delete_user(exchange& x) {
  auto org = org_in_query(x);
  if (!org)
    co_return;
  std::string id{x.params[0]};
  auto call = [org = *org, id](auto& store, auto reply) { store.delete_user(org, id, std::move(reply)); };
  auto done = co_await stored<bool>(x, std::move(call));
  if (!done)
    co_return refuse_stored(x, done.error(), "request.not_found", "user");
  x.core().keys.drop_principal(id);
  x.answer(204, "", "");
}

// -- keys --------------------------------------------------------------------------------------------------------------

/// Whether the org has this user. nullopt: refused, and answered.
task<std::optional<bool>> has_user(exchange& x, std::string org, std::string user) {
  std::string cursor;
  do {
    auto call = [org, cursor](auto& store, auto reply) { store.list_users(org, cursor, max_page, std::move(reply)); };
    auto rows = co_await stored<storage::page<storage::user_row>>(x, std::move(call));
    if (!rows) {
      refuse_stored(x, rows.error(), "request.not_found", "user");
      co_return std::nullopt;
    }
    if (std::any_of(rows->items.begin(), rows->items.end(), [&](auto& row) { return row.id == user; }))
      co_return true;
    cursor = rows->next_cursor;
  } while (!cursor.empty());
  co_return false;
}

/// No key gives what its maker lacks.
bool check_scopes(exchange& x, const std::vector<std::string>& scopes) {
  for (auto& one : scopes) {
    auto needed = one == "use" ? scope_use : one == "manage" ? scope_manage : scope_operate;
    if (!may(x, needed))
      return x.refuse("auth.forbidden", "A key can't give the scope " + one + ", which the key that makes it lacks."), false;
  }
  return true;
}

task<> create_key(exchange& x) {
  auto asked = co_await x.read_json<api::create_key>();
  if (!asked || !check_scopes(x, asked->scopes))
    co_return;
  auto org = org_for(x, asked->org_id);
  if (!org)
    co_return;
  if (asked->user_id) {
    auto there = co_await has_user(x, *org, *asked->user_id);
    if (!there)
      co_return;
    if (!*there)
      co_return x.refuse_field("/user_id", "names no user of this org");
  }
  std::sort(asked->scopes.begin(), asked->scopes.end());
  asked->scopes.erase(std::unique(asked->scopes.begin(), asked->scopes.end()), asked->scopes.end());
  auto secret = random_key();
  storage::key_row row;
  row.id = random_id(id_kind::key);
  row.org_id = *org;
  row.principal = asked->user_id.value_or(x.who->principal);
  row.name = asked->name;
  row.hash = sha256_hex(secret);
  row.scopes = asked->scopes;
  row.created_at = x.core().now_us();
  if (asked->expires_in_ms)
    row.expires_at = row.created_at + static_cast<std::int64_t>(*asked->expires_in_ms) * 1000;
  auto call = [row](auto& store, auto reply) { store.create_key(row, std::move(reply)); };
  auto made = co_await stored<storage::key_row>(x, std::move(call));
  if (!made)
    co_return refuse_stored(x, made.error(), "request.not_found", "org");
  x.answer_json(201, api::created_key{made->id, secret});
}

task<> list_keys(exchange& x) {
  auto page = page_of(x);
  if (!page)
    co_return;
  auto call = [page = *page](auto& store, auto reply) { store.list_keys(page.org_id, page.cursor, page.limit, std::move(reply)); };
  auto rows = co_await stored<storage::page<storage::key_row>>(x, std::move(call));
  if (!rows)
    co_return refuse_stored(x, rows.error(), "request.not_found", "key");
  answer_page<api::key_list>(x, *rows, [](auto& row) { return view_of(row); });
}

task<> delete_key(exchange& x) {
  auto org = org_in_query(x);
  if (!org)
    co_return;
  std::string id{x.params[0]};
  auto call = [org = *org, id](auto& store, auto reply) { store.delete_key(org, id, std::move(reply)); };
  auto done = co_await stored<bool>(x, std::move(call));
  if (!done)
    co_return refuse_stored(x, done.error(), "request.not_found", "key");
  x.core().keys.drop_key(id);
  x.answer(204, "", "");
}

std::vector<parameter_doc> page_parameters() {
  return {{.name = "cursor", .doc = "`next_cursor` of the page before."},
          {.name = "limit", .doc = "1 to 1000, default 100.", .schema = count_schema},
          {.name = "org_id", .doc = "Another org: scope `operate`."}};
}

template <class List>
void add_list(route_table& table, const char* path, const char* id, const char* summary, std::uint8_t scopes, handler run) {
  table.add({.doc = {.method = "GET", .path = path, .id = id, .tag = "identity", .summary = summary,
                     .parameters = page_parameters(),
                     .responses = {{200, "A page.", {json_answer<List>()}}},
                     .errors = {"request.invalid", "storage.unavailable"}},
             .run = run,
             .scopes = scopes});
}

template <class Body, class Answer>
void add_create(route_table& table, const char* path, const char* id, const char* summary, std::uint8_t scopes, handler run) {
  table.add({.doc = {.method = "POST", .path = path, .id = id, .tag = "identity", .summary = summary,
                     .request = {json_body<Body>()},
                     .responses = {{201, "Made.", {json_answer<Answer>()}}},
                     .errors = {"request.not_found", "storage.unavailable"}},
             .run = run,
             .scopes = scopes});
}

void add_delete(route_table& table, const char* path, const char* id, const char* summary, std::uint8_t scopes, handler run) {
  table.add({.doc = {.method = "DELETE", .path = path, .id = id, .tag = "identity", .summary = summary,
                     .responses = {{204, "Gone."}},
                     .errors = {"request.not_found", "storage.unavailable"}},
             .run = run,
             .scopes = scopes});
}

} // namespace

void add_identity_routes(route_table& table) {
  add_create<api::create_org, api::org_view>(table, "/v1/orgs", "create_org", "Make an org", scope_operate, create_org);
  add_list<api::org_list>(table, "/v1/orgs", "list_orgs", "All orgs", scope_operate, list_orgs);
  table.add({.doc = {.method = "GET", .path = "/v1/orgs/{id}", .id = "show_org", .tag = "identity", .summary = "One org",
                     .responses = {{200, "The org.", {json_answer<api::org_view>()}}},
                     .errors = {"request.not_found", "storage.unavailable"}},
             .run = show_org,
             .scopes = scope_manage | scope_operate});
  add_delete(table, "/v1/orgs/{id}", "delete_org", "Delete an org and its environments", scope_operate, delete_org);
  add_create<api::create_user, api::user_view>(table, "/v1/users", "create_user", "Make a user", scope_manage | scope_operate, create_user);
  add_list<api::user_list>(table, "/v1/users", "list_users", "Users of the org", scope_manage | scope_operate, list_users);
  add_delete(table, "/v1/users/{id}", "delete_user", "Delete a user and its keys", scope_manage | scope_operate, delete_user);
  add_create<api::create_key, api::created_key>(table, "/v1/keys", "create_key", "Make a key", scope_manage | scope_operate, create_key);
  add_list<api::key_list>(table, "/v1/keys", "list_keys", "Keys of the org, without their secrets", scope_manage | scope_operate, list_keys);
  add_delete(table, "/v1/keys/{id}", "delete_key", "Revoke a key", scope_manage | scope_operate, delete_key);
}

} // namespace holt::runtime::http
