#pragma once

#include <functional>
#include <memory>
#include <string>

#include "storage/sqlite/sqlite_database.hpp"
#include "storage/store.hpp"

namespace holt::storage {

struct sqlite_store_options {
  sqlite_settings database;
  /// Microseconds since 1970. Empty: the system's clock.
  std::function<std::int64_t()> now;
};

/// Opens or makes the embedded database, a file in an existing directory, and brings it to this binary's schema.
/// Blocks. The error's detail is for the operator: what is wrong with which file, and what to do.
store_result<std::shared_ptr<store>> open_sqlite_store(const std::string& path, sqlite_store_options options = {});

} // namespace holt::storage
