#include "storage/sqlite/migrate.hpp"

#include <string>

namespace holt::storage {

namespace {

store_result<std::vector<migration>> pending(connection& on, const std::vector<migration>& known) {
  auto answer = on.run(step{"SELECT version, hash, oldest_reader FROM schema_migrations ORDER BY version", {}});
  if (!answer) {
    return tl::unexpected(std::move(answer.error()));
  }
  std::vector<applied_migration> applied;
  for (const auto& each : answer->rows) {
    applied.push_back({each.number(0), each.text(1), each.number(2)});
  }
  auto plan = plan_migrations(applied, known);
  if (!plan) {
    return tl::unexpected(store_error{store_errc::internal, std::move(plan.error())});
  }
  return std::move(*plan);
}

store_result<bool> apply_next(connection& on, const std::vector<migration>& known, std::int64_t now) {
  auto table =
      on.execute("CREATE TABLE IF NOT EXISTS schema_migrations (version BIGINT PRIMARY KEY, name TEXT NOT NULL, "
                 "hash TEXT NOT NULL, oldest_reader BIGINT NOT NULL, applied_at BIGINT NOT NULL)");
  if (!table) {
    return tl::unexpected(std::move(table.error()));
  }
  auto todo = pending(on, known);
  if (!todo) {
    return tl::unexpected(std::move(todo.error()));
  }
  if (todo->empty()) {
    return false;
  }
  const auto& next = todo->front();
  if (auto done = on.execute(std::string(next.text).c_str()); !done) {
    done.error().detail = "migration " + std::to_string(next.version) + ": " + done.error().detail;
    return tl::unexpected(std::move(done.error()));
  }
  auto noted =
      on.run(step{"INSERT INTO schema_migrations (version, name, hash, oldest_reader, applied_at) "
                  "VALUES ($1, $2, $3, $4, $5)",
                  values(next.version, std::string(next.name), migration_hash(next.text), next.oldest_reader, now)});
  if (!noted) {
    return tl::unexpected(std::move(noted.error()));
  }
  return true;
}

} // namespace

store_result<void> migrate(connection& on, const std::vector<migration>& known, std::int64_t now) {
  for (bool more = true; more;) {
    // What is pending is asked again under the lock each time: another process may be doing the same.
    if (auto begun = on.execute("BEGIN IMMEDIATE"); !begun) {
      return begun;
    }
    auto applied = apply_next(on, known, now);
    auto ended = on.in_transaction() ? on.execute(applied ? "COMMIT" : "ROLLBACK") : store_result<void>{};
    if (!applied) {
      return tl::unexpected(std::move(applied.error()));
    }
    if (!ended) {
      (void)on.execute("ROLLBACK");
      return ended;
    }
    more = *applied;
  }
  return {};
}

} // namespace holt::storage
