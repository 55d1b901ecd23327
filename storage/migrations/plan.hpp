#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

/// Which migrations a database still needs, or why this binary must leave it alone (spec 97, 101). Pure.
namespace holt::storage {

/// One forward step of the schema. Its text never changes once it was released: its hash is kept in the database.
struct migration {
  std::int64_t version = 0;
  std::string_view name;
  std::string_view text;
  /// The oldest binary (by the latest version that it knows) that still runs on a database with this step applied.
  /// Equal to `version` when older binaries would break.
  std::int64_t oldest_reader = 0;
};

/// A row of the table schema_migrations.
struct applied_migration {
  std::int64_t version = 0;
  std::string hash;
  std::int64_t oldest_reader = 0;
};

/// The migrations of this binary, ascending. Made from storage/migrations/*.sql by the build: file NNNN_name.sql is
/// version NNNN; a first line `-- oldest reader: N` names an older binary that may go on using the database.
const std::vector<migration>& known_migrations();

/// SHA-256 of a migration's text, in hex.
std::string migration_hash(std::string_view text);

/// The migrations of `known` still to be applied, in order; or the reason to refuse, for a person to read: the database
/// is newer than `known`, an applied text was changed, or one is missing below an applied one.
/// REQUIRES: `known` ascending.
tl::expected<std::vector<migration>, std::string> plan_migrations(const std::vector<applied_migration>& applied,
                                                                  const std::vector<migration>& known);

} // namespace holt::storage
