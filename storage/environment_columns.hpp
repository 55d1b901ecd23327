#pragma once

#include <map>
#include <string>
#include <string_view>

#include "storage/database.hpp"

/// How rows of environments and instances stand in statements: the columns asked for, and how they are read back.
namespace holt::storage {

#define HOLT_ENVIRONMENT_COLUMNS                                                                                       \
  "e.id, e.org_id, e.name, e.kind, e.provider, e.image, e.limits, e.network, e.suspend_after_ms, e.destroy_after_ms, " \
  "e.labels, e.created_by, e.created_at, e.updated_at, e.deleted_at"

#define HOLT_INSTANCE_COLUMNS                                                                                          \
  "i.environment_id, i.provider, i.handle, i.file_system_id, i.fs_status, i.status, i.host_id, i.boot_id, "            \
  "i.instance_created_at, i.last_used_at, i.generation, i.epoch, i.roots, i.sweep_failed_at"

/// Environment e with its instance i, or NULLs.
#define HOLT_RECORD                                                                                                    \
  HOLT_ENVIRONMENT_COLUMNS ", " HOLT_INSTANCE_COLUMNS                                                                  \
                           " FROM environments e LEFT JOIN instances i ON i.environment_id = e.id"

/// Reads the environment columns, which begin at column 0.
environment_row environment_of(const row& from);
/// Reads the instance columns, which begin at column `first`.
instance_row instance_of(const row& from, std::size_t first);
/// Reads a HOLT_RECORD.
environment_record record_of(const row& from);

std::string labels_text(const std::map<std::string, std::string>& labels);

} // namespace holt::storage
