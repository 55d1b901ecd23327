#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "storage/sql_store.hpp"

namespace holt::storage {

namespace {

constexpr std::string_view list_name = "keys";

#define HOLT_KEY_COLUMNS "id, org_id, principal, name, hash, scopes, created_at, expires_at, last_used_at"

std::string scopes_text(const std::vector<std::string>& scopes) {
  boost::json::array json;
  for (const auto& each : scopes) {
    json.emplace_back(each);
  }
  return boost::json::serialize(json);
}

key_row key_of(const row& from) {
  key_row made{from.text(0), from.text(1), from.text(2), from.text(3), from.text(4), {}, from.number(6), {}, {}};
  const auto scopes = boost::json::parse(from.text(5));
  for (const auto& each : scopes.as_array()) {
    made.scopes.emplace_back(each.as_string());
  }
  made.expires_at = from.maybe_number(7);
  made.last_used_at = from.maybe_number(8);
  return made;
}

} // namespace

void sql_store::create_key(key_row row, store_reply<key_row> reply) {
  unit work;
  work.push_back(org_is_there(row.org_id));
  work.push_back({"INSERT INTO keys (" HOLT_KEY_COLUMNS ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                  values(row.id, row.org_id, row.principal, row.name, row.hash, scopes_text(row.scopes), row.created_at,
                         row.expires_at, row.last_used_at)});
  database_->write(std::move(work),
                   answer(std::move(reply), [row = std::move(row)](const unit_result&) { return row; }));
}

void sql_store::list_keys(std::string org_id, std::string cursor, std::uint32_t limit,
                          store_reply<page<key_row>> reply) {
  auto last = read_cursor(list_name, cursor);
  if (!last) {
    refuse(*database_, std::move(reply), bad_cursor);
    return;
  }
  limit = bounded(limit);
  database_->read({{"SELECT " HOLT_KEY_COLUMNS " FROM keys WHERE org_id = $1 AND (created_at, id) > ($2, $3) "
                    "ORDER BY created_at, id LIMIT $4",
                    values(std::move(org_id), last->created_at, std::move(last->id), limit + 1)}},
                  answer(std::move(reply), [limit](const unit_result& found) {
                    return page_of<key_row>(found[0], limit, key_of, [](const key_row& each) {
                      return cursor_text(list_name, {each.created_at, each.id});
                    });
                  }));
}

void sql_store::delete_key(std::string org_id, std::string id, store_reply<bool> reply) {
  database_->write({{"DELETE FROM keys WHERE id = $1 AND org_id = $2", values(std::move(id), std::move(org_id)),
                     store_errc::not_found}},
                   answer(std::move(reply), [](const unit_result&) { return true; }));
}

void sql_store::find_key(std::string hash, store_reply<key_row> reply) {
  database_->read(
      {{"SELECT " HOLT_KEY_COLUMNS " FROM keys WHERE hash = $1", values(std::move(hash)), store_errc::not_found}},
      answer(std::move(reply), [](const unit_result& found) { return key_of(found[0].rows[0]); }));
}

void sql_store::count_keys(store_reply<std::uint64_t> reply) {
  database_->read({{"SELECT COUNT(*) FROM keys", {}}}, answer(std::move(reply), [](const unit_result& found) {
                    return static_cast<std::uint64_t>(found[0].rows[0].number(0));
                  }));
}

} // namespace holt::storage
