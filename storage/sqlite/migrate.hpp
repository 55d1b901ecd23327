#pragma once

#include <cstdint>
#include <vector>

#include "storage/migrations/plan.hpp"
#include "storage/sqlite/connection.hpp"

namespace holt::storage {

/// Applies what the database lacks of `known`, each in a transaction of its own, under SQLite's write lock: of several
/// processes that start at once one applies, the others wait and find it done (spec 101). `now`: microseconds.
/// Blocks. Fails with `internal` and a text for the operator when the database must be left alone.
store_result<void> migrate(connection& on, const std::vector<migration>& known, std::int64_t now);

} // namespace holt::storage
