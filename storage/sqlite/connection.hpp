#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <tl/expected.hpp>

#include "storage/database.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace holt::storage {

/// One SQLite connection and its prepared statements. Used by one thread at a time.
///
/// Errors: `unavailable` for what may pass (busy, disk full, I/O), `conflict` and `not_found` as database.hpp says,
/// else `internal`. A failed statement may have rolled the whole transaction back: ask in_transaction().
class connection {
public:
  struct settings {
    /// How long a statement waits for another process's lock.
    std::chrono::milliseconds busy_timeout{5000};
    /// Prepared statements kept. More texts than that cost a new preparation each.
    std::size_t kept_statements = 128;
    /// Page cache, in bytes.
    std::int64_t cache_bytes = 2 * 1024 * 1024;
    /// Refuses everything that writes.
    bool read_only = false;
  };

  /// Opens an existing file, or an empty one, and makes it durable: WAL, synchronous=FULL, foreign keys checked.
  static store_result<connection> open(const std::string& path, const settings& with);

  connection(connection&& other) noexcept;
  connection& operator=(connection&& other) noexcept;
  ~connection();

  /// Any number of statements without parameters and answers.
  store_result<void> execute(const char* sql);

  /// Statement, parameters, all its rows. Fails by the step's own `if_none`.
  store_result<step_result> run(const step& what);

  /// All steps, or the first one's error. Leaves the transaction that it runs in as it was, on failure too: with
  /// `savepoint` by one of its own, where there is more than one step.
  store_result<unit_result> run(const unit& work, bool savepoint);

  bool in_transaction() const;

  /// Write transactions committed so far, as SQLite's own hook saw them: each that changed something is one flush.
  std::uint64_t commits() const;

private:
  struct statement;

  connection() = default;
  store_result<void> enter_wal();
  store_result<statement*> prepared(std::string_view sql);
  store_error error_of(int code, std::string_view what) const;

  sqlite3* handle_ = nullptr;
  settings settings_;
  std::unordered_map<std::string_view, std::unique_ptr<statement>> statements_;
  std::unique_ptr<std::uint64_t> commits_; // at a lasting address, for the hook
};

} // namespace holt::storage
