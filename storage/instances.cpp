#include <array>

#include "storage/environment_columns.hpp"
#include "storage/sql_store.hpp"

namespace holt::storage {

namespace {

/// Statuses that one list may be narrowed to (spec 1 has eight).
constexpr std::size_t max_statuses = 8;

/// $1 last id, $2 limit, then the statuses. Walks a primary key, so that pages cost one pass over the table in all.
std::string list_text(std::size_t statuses, bool deleted_only) {
  std::string sql = "SELECT " HOLT_ENVIRONMENT_COLUMNS("e.") ", " HOLT_INSTANCE_COLUMNS("i.");
  sql += deleted_only ? " FROM environments e LEFT JOIN instances i ON i.environment_id = e.id "
                        "WHERE e.deleted_at IS NOT NULL AND e.id > $1"
                      : " FROM instances i JOIN environments e ON e.id = i.environment_id WHERE i.environment_id > $1";
  if (statuses > 0) {
    sql += " AND i.status IN (";
    for (std::size_t i = 0; i < statuses; ++i) {
      sql += (i == 0 ? "$" : ", $") + std::to_string(3 + i);
    }
    sql += ")";
  }
  return sql + (deleted_only ? " ORDER BY e.id LIMIT $2" : " ORDER BY i.environment_id LIMIT $2");
}

std::string_view list_sql(std::size_t statuses, bool deleted_only) {
  static const auto texts = [] {
    std::array<std::array<std::string, max_statuses + 1>, 2> made;
    for (std::size_t i = 0; i <= max_statuses; ++i) {
      made[0][i] = list_text(i, false);
      made[1][i] = list_text(i, true);
    }
    return made;
  }();
  return texts[deleted_only ? 1 : 0].at(statuses);
}

step insert_instance(const instance_row& row) {
  return {"INSERT INTO instances (environment_id, provider, handle, file_system_id, fs_status, status, host_id, "
          "boot_id, instance_created_at, last_used_at, generation, epoch, roots, sweep_failed_at) "
          "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 1, $11, $12, $13) "
          "ON CONFLICT (environment_id) DO NOTHING RETURNING " HOLT_INSTANCE_COLUMNS(""),
          values(row.environment_id, row.provider, row.handle, row.file_system_id, row.fs_status, row.status,
                 row.host_id, row.boot_id, row.instance_created_at, row.last_used_at, row.epoch, row.roots_json,
                 row.sweep_failed_at),
          store_errc::fenced};
}

step replace_instance(const instance_row& row, std::uint64_t expected) {
  return {"UPDATE instances SET provider = $1, handle = $2, file_system_id = $3, fs_status = $4, status = $5, "
          "host_id = $6, boot_id = $7, instance_created_at = $8, "
          "last_used_at = CASE WHEN last_used_at > $9 THEN last_used_at ELSE $9 END, "
          "generation = generation + 1, epoch = CASE WHEN epoch > $10 THEN epoch ELSE $10 END, roots = $11, "
          "sweep_failed_at = $12 "
          "WHERE environment_id = $13 AND generation = $14 RETURNING " HOLT_INSTANCE_COLUMNS(""),
          values(row.provider, row.handle, row.file_system_id, row.fs_status, row.status, row.host_id, row.boot_id,
                 row.instance_created_at, row.last_used_at, row.epoch, row.roots_json, row.sweep_failed_at,
                 row.environment_id, expected),
          store_errc::fenced};
}

} // namespace

instance_row instance_of(const row& from, std::size_t first) {
  instance_row made;
  made.environment_id = from.text(first);
  made.provider = from.text(first + 1);
  made.handle = from.text(first + 2);
  made.file_system_id = from.text(first + 3);
  made.fs_status = from.text(first + 4);
  made.status = from.text(first + 5);
  made.host_id = from.text(first + 6);
  made.boot_id = from.text(first + 7);
  made.instance_created_at = from.number(first + 8);
  made.last_used_at = from.number(first + 9);
  made.generation = static_cast<std::uint64_t>(from.number(first + 10));
  made.epoch = static_cast<std::uint64_t>(from.number(first + 11));
  made.roots_json = from.text(first + 12);
  made.sweep_failed_at = from.maybe_number(first + 13);
  return made;
}

void sql_store::write_instance(instance_row row, std::uint64_t expected_generation, store_reply<instance_row> reply) {
  unit work;
  if (expected_generation == 0) {
    // A deleted environment gets no first instance: nothing would be there to destroy it again.
    work.push_back({"SELECT 1 FROM environments WHERE id = $1 AND deleted_at IS NULL", values(row.environment_id),
                    store_errc::not_found});
    work.push_back(insert_instance(row));
  } else {
    work.push_back(replace_instance(row, expected_generation));
  }
  database_->write(std::move(work), answer(std::move(reply), [](const unit_result& done) {
                     return instance_of(done.back().rows[0], 0);
                   }));
}

void sql_store::touch_instance(std::string environment_id, std::int64_t last_used_at) {
  unit work;
  work.push_back({"UPDATE instances SET last_used_at = $2 WHERE environment_id = $1 AND last_used_at < $2",
                  values(environment_id, last_used_at)});
  database_->write_lazily("touch " + environment_id, last_used_at, std::move(work));
}

void sql_store::next_epoch(std::string environment_id, store_reply<std::uint64_t> reply) {
  database_->write({{"UPDATE instances SET epoch = epoch + 1 WHERE environment_id = $1 RETURNING epoch",
                     values(std::move(environment_id)), store_errc::not_found}},
                   answer(std::move(reply), [](const unit_result& done) {
                     return static_cast<std::uint64_t>(done[0].rows[0].number(0));
                   }));
}

void sql_store::purge_environment(std::string id, std::uint64_t expected_generation, store_reply<bool> reply) {
  unit work;
  work.push_back(
      {"SELECT 1 FROM environments WHERE id = $1 AND deleted_at IS NOT NULL", values(id), store_errc::not_found});
  if (expected_generation > 0) {
    work.push_back({"DELETE FROM instances WHERE environment_id = $1 AND generation = $2",
                    values(id, expected_generation), store_errc::fenced});
  }
  work.push_back({"DELETE FROM seen WHERE environment_id = $1", values(id)});
  work.push_back({"DELETE FROM environment_labels WHERE environment_id = $1", values(id)});
  work.push_back({"DELETE FROM environments WHERE id = $1 "
                  "AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.environment_id = $1)",
                  values(id), store_errc::fenced});
  // Whoever asked for this deletion may have died since: what its client polls ends with the rows.
  work.push_back({"UPDATE operations SET status = 'done' WHERE environment_id = $1 AND status = 'running'", values(id)});
  database_->write(std::move(work), answer(std::move(reply), [](const unit_result&) { return true; }));
}

void sql_store::list_instances(std::vector<std::string> statuses, bool deleted_only, std::string cursor,
                               std::uint32_t limit, store_reply<page<environment_record>> reply) {
  if (statuses.size() > max_statuses) {
    refuse(*database_, std::move(reply), "an instance has one of eight statuses");
    return;
  }
  limit = bounded(limit);
  step list{list_sql(statuses.size(), deleted_only), values(std::move(cursor), limit + 1)};
  for (auto& each : statuses) {
    list.parameters.emplace_back(std::move(each));
  }
  database_->read({std::move(list)}, answer(std::move(reply), [limit](const unit_result& found) {
                    return page_of<environment_record>(
                        found[0], limit, record_of, [](const environment_record& each) { return each.environment.id; });
                  }));
}

} // namespace holt::storage
