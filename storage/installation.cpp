#include "storage/sql_store.hpp"

namespace holt::storage {

void sql_store::incarnation(store_reply<std::string> reply) {
  database_->read({{"SELECT value FROM installation WHERE name = 'incarnation'", {}, store_errc::internal}},
                  answer(std::move(reply), [](const unit_result& found) { return found[0].rows[0].text(0); }));
}

void sql_store::ping(store_reply<bool> reply) {
  database_->read({{"SELECT 1", {}, store_errc::internal}},
                  answer(std::move(reply), [](const unit_result&) { return true; }));
}

} // namespace holt::storage
