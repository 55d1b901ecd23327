#include "storage/sql_store.hpp"

namespace holt::storage {

sql_store::sql_store(std::unique_ptr<database> over, clock now) : database_(std::move(over)), now_(std::move(now)) {
}

sql_store::~sql_store() {
  close();
}

void sql_store::close() {
  database_->close();
}

} // namespace holt::storage
