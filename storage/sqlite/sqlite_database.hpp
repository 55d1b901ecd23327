#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "storage/database.hpp"
#include "storage/migrations/plan.hpp"
#include "storage/sqlite/group_writer.hpp"
#include "storage/sqlite/reader_pool.hpp"

namespace holt::storage {

struct sqlite_settings {
  group_writer::limits writer;
  /// Threads that read, each with a page cache of its own.
  std::size_t readers = 2;
  /// Reads that may wait. Beyond it a read is refused as `unavailable`.
  std::size_t max_queued_reads = 4096;
  connection::settings each_connection;
  /// Largest size of the database file in pages of 4 KiB; 0: what the disk holds. Beyond it writes are `unavailable`.
  std::int64_t max_pages = 0;
  /// Files up to this size are checked for damage at every open.
  std::int64_t check_up_to_bytes = 256 * 1024 * 1024;
};

/// A database in one SQLite file: WAL, one writing thread with group commit, a few reading ones. See database.hpp.
class sqlite_database final : public database {
public:
  /// Opens or makes the file (mode 0600), checks it and applies `migrations`. Blocks. Errors are texts for the
  /// operator.
  static store_result<std::unique_ptr<sqlite_database>> open(const std::string& path, const sqlite_settings& settings,
                                                             const std::vector<migration>& migrations,
                                                             std::int64_t now);
  ~sqlite_database() override;

  void write(unit work, unit_reply reply) override;
  void write_lazily(std::string key, std::int64_t order, unit work) override;
  void read(unit work, unit_reply reply) override;
  void close() override;

  group_writer::counters count() const {
    return writer_.count();
  }

private:
  sqlite_database(connection writing, std::vector<connection> reading, const sqlite_settings& settings);

  group_writer writer_;
  reader_pool readers_;
};

} // namespace holt::storage
