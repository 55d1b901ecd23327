#include "storage/sql_store.hpp"

namespace holt::storage {

namespace {

constexpr std::string_view list_name = "users";

user_row user_of(const row& from) {
  return {from.text(0), from.text(1), from.text(2), from.number(3)};
}

} // namespace

void sql_store::create_user(user_row row, store_reply<user_row> reply) {
  unit work;
  work.push_back(org_is_there(row.org_id));
  work.push_back({"INSERT INTO users (id, org_id, name, created_at) VALUES ($1, $2, $3, $4)",
                  values(row.id, row.org_id, row.name, row.created_at)});
  database_->write(std::move(work),
                   answer(std::move(reply), [row = std::move(row)](const unit_result&) { return row; }));
}

void sql_store::list_users(std::string org_id, std::string cursor, std::uint32_t limit,
                           store_reply<page<user_row>> reply) {
  auto last = read_cursor(list_name, cursor);
  if (!last) {
    refuse(*database_, std::move(reply), bad_cursor);
    return;
  }
  limit = bounded(limit);
  database_->read({{"SELECT id, org_id, name, created_at FROM users WHERE org_id = $1 AND (created_at, id) > ($2, $3) "
                    "ORDER BY created_at, id LIMIT $4",
                    values(std::move(org_id), last->created_at, std::move(last->id), limit + 1)}},
                  answer(std::move(reply), [limit](const unit_result& found) {
                    return page_of<user_row>(found[0], limit, user_of, [](const user_row& each) {
                      return cursor_text(list_name, {each.created_at, each.id});
                    });
                  }));
}

void sql_store::delete_user(std::string org_id, std::string id, store_reply<bool> reply) {
  unit work;
  work.push_back({"DELETE FROM users WHERE id = $1 AND org_id = $2", values(id, org_id), store_errc::not_found});
  work.push_back({"DELETE FROM keys WHERE principal = $1 AND org_id = $2", values(id, org_id)});
  database_->write(std::move(work), answer(std::move(reply), [](const unit_result&) { return true; }));
}

} // namespace holt::storage
