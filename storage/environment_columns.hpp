#pragma once

#include <map>
#include <string>
#include <string_view>

#include "storage/database.hpp"

/// How rows of environments and instances stand in statements: the columns asked for, and how they are read back.
namespace holt::storage {

// clang-format off
// `of`: what stands before each name: "e." for an alias, "" in RETURNING, where SQLite knows no alias.
#define HOLT_ENVIRONMENT_COLUMNS(of)                                                                                   \
  of "id, " of "org_id, " of "name, " of "kind, " of "provider, " of "image, " of "limits, " of "network, "            \
  of "suspend_after_ms, " of "destroy_after_ms, " of "labels, " of "created_by, " of "created_at, "                    \
  of "updated_at, " of "deleted_at"

#define HOLT_INSTANCE_COLUMNS(of)                                                                                      \
  of "environment_id, " of "provider, " of "handle, " of "file_system_id, " of "fs_status, " of "status, "             \
  of "host_id, " of "boot_id, " of "instance_created_at, " of "last_used_at, " of "generation, " of "epoch, "          \
  of "roots, " of "sweep_failed_at"
// clang-format on

/// Environment e with its instance i, or NULLs.
#define HOLT_RECORD                                                                                                    \
  HOLT_ENVIRONMENT_COLUMNS("e.")                                                                                       \
  ", " HOLT_INSTANCE_COLUMNS("i.") " FROM environments e LEFT JOIN instances i ON i.environment_id = e.id"

/// Reads the environment columns, which begin at column 0.
environment_row environment_of(const row& from);
/// Reads the instance columns, which begin at column `first`.
instance_row instance_of(const row& from, std::size_t first);
/// Reads a HOLT_RECORD.
environment_record record_of(const row& from);

std::string labels_text(const std::map<std::string, std::string>& labels);

} // namespace holt::storage
