#include "storage/sql_store.hpp"

namespace holt::storage {

void sql_store::get_operation(std::string org_id, std::string id, store_reply<operation_row> reply) {
  database_->read({{"SELECT id, org_id, environment_id, kind, status, error, created_at, updated_at FROM operations "
                    "WHERE id = $1 AND org_id = $2",
                    values(std::move(id), std::move(org_id)), store_errc::not_found}},
                  answer(std::move(reply), [](const unit_result& found) {
                    const auto& from = found[0].rows[0];
                    return operation_row{from.text(0), from.text(1), from.text(2),   from.text(3),
                                         from.text(4), from.text(5), from.number(6), from.number(7)};
                  }));
}

void sql_store::finish_operation(std::string id, std::string status, std::string error, std::int64_t now,
                                 store_reply<bool> reply) {
  database_->write({{"UPDATE operations SET status = $1, error = $2, updated_at = $3 "
                     "WHERE id = $4 AND status = 'running'",
                     values(std::move(status), std::move(error), now, std::move(id))}},
                   answer(std::move(reply), [](const unit_result& done) { return done[0].changed > 0; }));
}

} // namespace holt::storage
