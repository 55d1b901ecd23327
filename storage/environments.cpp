#include <array>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "storage/environment_columns.hpp"
#include "storage/sql_store.hpp"

namespace holt::storage {

namespace {

/// Labels that one list may be filtered by: each is a statement text of its own.
constexpr std::size_t max_filter_labels = 16;
constexpr std::string_view list_name = "environments";

void add_labels(unit& work, const environment_row& row) {
  for (const auto& [name, text] : row.labels) {
    work.push_back({"INSERT INTO environment_labels (environment_id, name, value, org_id, created_at) "
                    "VALUES ($1, $2, $3, $4, $5)",
                    values(row.id, name, text, row.org_id, row.created_at)});
  }
}

/// Parameters: $1 org, $2 kind or empty, $3 $4 key of the last row, $5 limit, then name and value of each label. The
/// first label gives the order, from its own index; the others only check.
std::string list_text(std::size_t labels) {
  const std::string columns = labels == 0 ? "e.created_at, e.id" : "l.created_at, l.environment_id";
  std::string sql = "SELECT " HOLT_ENVIRONMENT_COLUMNS("e.") ", " HOLT_INSTANCE_COLUMNS("i.") " FROM ";
  sql += labels == 0 ? "environments e" : "environment_labels l JOIN environments e ON e.id = l.environment_id";
  sql += " LEFT JOIN instances i ON i.environment_id = e.id WHERE ";
  sql += labels == 0 ? "e.org_id = $1" : "l.org_id = $1 AND l.name = $6 AND l.value = $7";
  sql += " AND ($2 = '' OR e.kind = $2) AND (" + columns + ") > ($3, $4) AND e.deleted_at IS NULL";
  for (std::size_t i = 1; i < labels; ++i) {
    sql += " AND EXISTS (SELECT 1 FROM environment_labels m WHERE m.environment_id = e.id AND m.name = $"
           + std::to_string(6 + 2 * i) + " AND m.value = $" + std::to_string(7 + 2 * i) + ")";
  }
  return sql + " ORDER BY " + columns + " LIMIT $5";
}

std::string_view list_sql(std::size_t labels) {
  static const auto texts = [] {
    std::array<std::string, max_filter_labels + 1> made;
    for (std::size_t i = 0; i < made.size(); ++i) {
      made[i] = list_text(i);
    }
    return made;
  }();
  return texts.at(labels);
}

} // namespace

std::string labels_text(const std::map<std::string, std::string>& labels) {
  boost::json::object json;
  for (const auto& [name, text] : labels) {
    json[name] = text;
  }
  return boost::json::serialize(json);
}

environment_row environment_of(const row& from) {
  environment_row made;
  made.id = from.text(0);
  made.org_id = from.text(1);
  made.name = from.text(2);
  made.kind = from.text(3);
  made.provider = from.text(4);
  made.image = from.maybe_text(5);
  made.limits_json = from.text(6);
  made.network = from.text(7);
  made.suspend_after_ms = from.maybe_number(8);
  made.destroy_after_ms = from.maybe_number(9);
  if (const auto& labels = from.text(10); labels != "{}") {
    const auto json = boost::json::parse(labels);
    for (const auto& [name, text] : json.as_object()) {
      made.labels.emplace(name, std::string(text.as_string()));
    }
  }
  made.created_by = from.text(11);
  made.created_at = from.number(12);
  made.updated_at = from.number(13);
  made.deleted_at = from.maybe_number(14);
  return made;
}

environment_record record_of(const row& from) {
  constexpr std::size_t environment_columns = 15;
  environment_record made{environment_of(from), {}};
  if (!from.null(environment_columns)) {
    made.instance = instance_of(from, environment_columns);
  }
  return made;
}

void sql_store::create_environment(environment_row row, store_reply<environment_row> reply) {
  row.deleted_at.reset();
  unit work;
  work.push_back(org_is_there(row.org_id));
  work.push_back({"INSERT INTO environments (id, org_id, name, kind, provider, image, limits, network, "
                  "suspend_after_ms, destroy_after_ms, labels, created_by, created_at, updated_at) "
                  "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
                  values(row.id, row.org_id, row.name, row.kind, row.provider, row.image, row.limits_json, row.network,
                         row.suspend_after_ms, row.destroy_after_ms, labels_text(row.labels), row.created_by,
                         row.created_at, row.updated_at)});
  add_labels(work, row);
  database_->write(std::move(work),
                   answer(std::move(reply), [row = std::move(row)](const unit_result&) { return row; }));
}

void sql_store::get_environment(std::string org_id, std::string id, store_reply<environment_record> reply) {
  database_->read({{"SELECT " HOLT_RECORD " WHERE e.id = $1 AND e.org_id = $2 AND e.deleted_at IS NULL",
                    values(std::move(id), std::move(org_id)), store_errc::not_found}},
                  answer(std::move(reply), [](const unit_result& found) { return record_of(found[0].rows[0]); }));
}

void sql_store::load_environment(std::string id, store_reply<environment_record> reply) {
  database_->read({{"SELECT " HOLT_RECORD " WHERE e.id = $1", values(std::move(id)), store_errc::not_found}},
                  answer(std::move(reply), [](const unit_result& found) { return record_of(found[0].rows[0]); }));
}

void sql_store::list_environments(environment_filter filter, store_reply<page<environment_record>> reply) {
  auto last = read_cursor(list_name, filter.cursor);
  if (!last) {
    refuse(*database_, std::move(reply), bad_cursor);
    return;
  }
  if (filter.labels.size() > max_filter_labels) {
    refuse(*database_, std::move(reply), "at most 16 labels filter one list");
    return;
  }
  const auto limit = bounded(filter.limit);
  step list{list_sql(filter.labels.size()), values(std::move(filter.org_id), filter.kind.value_or(""), last->created_at,
                                                   std::move(last->id), limit + 1)};
  for (auto& [name, text] : filter.labels) {
    list.parameters.emplace_back(name);
    list.parameters.emplace_back(std::move(text));
  }
  database_->read({std::move(list)}, answer(std::move(reply), [limit](const unit_result& found) {
                    return page_of<environment_record>(found[0], limit, record_of, [](const environment_record& each) {
                      return cursor_text(list_name, {each.environment.created_at, each.environment.id});
                    });
                  }));
}

void sql_store::update_environment(environment_row row, store_reply<environment_row> reply) {
  unit work;
  work.push_back({"UPDATE environments SET name = $1, limits = $2, network = $3, suspend_after_ms = $4, "
                  "destroy_after_ms = $5, labels = $6, updated_at = $7 "
                  "WHERE id = $8 AND org_id = $9 AND deleted_at IS NULL RETURNING " HOLT_ENVIRONMENT_COLUMNS(""),
                  values(row.name, row.limits_json, row.network, row.suspend_after_ms, row.destroy_after_ms,
                         labels_text(row.labels), row.updated_at, row.id, row.org_id),
                  store_errc::not_found});
  work.push_back({"DELETE FROM environment_labels WHERE environment_id = $1", values(row.id)});
  for (const auto& [name, text] : row.labels) {
    // Its place in lists is the stored created_at, whatever the caller's row says.
    work.push_back({"INSERT INTO environment_labels (environment_id, name, value, org_id, created_at) "
                    "SELECT e.id, CAST($2 AS TEXT), CAST($3 AS TEXT), e.org_id, e.created_at "
                    "FROM environments e WHERE e.id = $1",
                    values(row.id, name, text)});
  }
  database_->write(std::move(work),
                   answer(std::move(reply), [](const unit_result& done) { return environment_of(done[0].rows[0]); }));
}

void sql_store::delete_environment(std::string org_id, std::string id, operation_row operation,
                                   store_reply<operation_row> reply) {
  operation.org_id = org_id;
  operation.environment_id = id;
  unit work;
  work.push_back({"UPDATE environments SET deleted_at = $1, updated_at = $1 "
                  "WHERE id = $2 AND org_id = $3 AND deleted_at IS NULL",
                  values(operation.created_at, id, org_id), store_errc::not_found});
  work.push_back({"DELETE FROM environment_labels WHERE environment_id = $1", values(id)});
  work.push_back({"INSERT INTO operations (id, org_id, environment_id, kind, status, error, created_at, updated_at) "
                  "VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                  values(operation.id, operation.org_id, operation.environment_id, operation.kind, operation.status,
                         operation.error, operation.created_at, operation.updated_at)});
  database_->write(std::move(work), answer(std::move(reply), [operation = std::move(operation)](const unit_result&) {
                     return operation;
                   }));
}

} // namespace holt::storage
