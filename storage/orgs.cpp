#include "storage/sql_store.hpp"

namespace holt::storage {

namespace {

constexpr std::string_view list_name = "orgs";

org_row org_of(const row& from) {
  return {from.text(0), from.text(1), from.number(2)};
}

} // namespace

void sql_store::create_org(org_row row, store_reply<org_row> reply) {
  unit work;
  work.push_back(
      {"INSERT INTO orgs (id, name, created_at) VALUES ($1, $2, $3)", values(row.id, row.name, row.created_at)});
  database_->write(std::move(work),
                   answer(std::move(reply), [row = std::move(row)](const unit_result&) { return row; }));
}

void sql_store::list_orgs(std::string cursor, std::uint32_t limit, store_reply<page<org_row>> reply) {
  auto last = read_cursor(list_name, cursor);
  if (!last) {
    refuse(*database_, std::move(reply), bad_cursor);
    return;
  }
  limit = bounded(limit);
  database_->read({{"SELECT id, name, created_at FROM orgs WHERE deleted_at IS NULL AND (created_at, id) > ($1, $2) "
                    "ORDER BY created_at, id LIMIT $3",
                    values(last->created_at, std::move(last->id), limit + 1)}},
                  answer(std::move(reply), [limit](const unit_result& found) {
                    return page_of<org_row>(found[0], limit, org_of, [](const org_row& each) {
                      return cursor_text(list_name, {each.created_at, each.id});
                    });
                  }));
}

void sql_store::get_org(std::string id, store_reply<org_row> reply) {
  database_->read({{"SELECT id, name, created_at FROM orgs WHERE id = $1 AND deleted_at IS NULL", values(std::move(id)),
                    store_errc::not_found}},
                  answer(std::move(reply), [](const unit_result& found) { return org_of(found[0].rows[0]); }));
}

void sql_store::delete_org(std::string id, std::int64_t now, store_reply<bool> reply) {
  unit work;
  work.push_back(
      {"UPDATE orgs SET deleted_at = $1 WHERE id = $2 AND deleted_at IS NULL", values(now, id), store_errc::not_found});
  work.push_back({"DELETE FROM keys WHERE org_id = $1", values(id)});
  work.push_back({"DELETE FROM users WHERE org_id = $1", values(id)});
  work.push_back({"DELETE FROM environment_labels WHERE org_id = $1", values(id)});
  work.push_back({"UPDATE environments SET deleted_at = $1, updated_at = $1 WHERE org_id = $2 AND deleted_at IS NULL",
                  values(now, id)});
  database_->write(std::move(work), answer(std::move(reply), [](const unit_result&) { return true; }));
}

} // namespace holt::storage
