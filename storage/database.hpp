#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "storage/store.hpp"

/// A database as the repositories see it: units of work in, rows out, no callback in between.
///
/// SQL is the subset that SQLite and PostgreSQL share: parameters `$1`…, ON CONFLICT, RETURNING, JSON as text, times as
/// whole microseconds, no function that only one of them has. Text compares by its bytes.
namespace holt::storage {

/// NULL, a whole number or text.
using value = std::variant<std::monostate, std::int64_t, std::string>;

inline value to_value(std::int64_t number) {
  return number;
}
inline value to_value(std::uint64_t number) {
  return static_cast<std::int64_t>(number);
}
inline value to_value(std::uint32_t number) {
  return static_cast<std::int64_t>(number);
}
inline value to_value(std::string text) {
  return text;
}
template <class T>
value to_value(std::optional<T> maybe) {
  return maybe ? to_value(std::move(*maybe)) : value{};
}

/// Parameters `$1`, `$2`, … of a step.
template <class... Ts>
std::vector<value> values(Ts&&... each) {
  std::vector<value> all;
  all.reserve(sizeof...(each));
  (all.push_back(to_value(std::forward<Ts>(each))), ...);
  return all;
}

/// One statement of a unit.
struct step {
  /// Outlives the unit: a literal, or one of a few texts built once. Statements are prepared and kept by their text.
  std::string_view sql;
  std::vector<value> parameters;
  /// What the unit fails with when the step neither answered nor changed a row. Empty: it goes on.
  std::optional<store_errc> if_none = {};
};

/// Carried out whole or not at all. A step knows nothing of what the steps before it answered, so that a database over
/// a network can be sent all of them at once (BEGIN, steps, then COMMIT or ROLLBACK by the counts that came back); what
/// depends on stored values says so in its own SQL. A unit of one step needs no transaction around it.
///
/// A broken UNIQUE or PRIMARY KEY fails the unit with store_errc::conflict, a broken REFERENCES with not_found.
using unit = std::vector<step>;

/// A row that a step answered. Reading a column as what it isn't throws std::bad_variant_access.
class row {
public:
  row() = default;
  explicit row(std::vector<value> columns) : columns_(std::move(columns)) {
  }

  bool null(std::size_t column) const {
    return std::holds_alternative<std::monostate>(columns_.at(column));
  }
  std::int64_t number(std::size_t column) const {
    return std::get<std::int64_t>(columns_.at(column));
  }
  const std::string& text(std::size_t column) const {
    return std::get<std::string>(columns_.at(column));
  }
  std::optional<std::int64_t> maybe_number(std::size_t column) const {
    return null(column) ? std::nullopt : std::optional(number(column));
  }
  std::optional<std::string> maybe_text(std::size_t column) const {
    return null(column) ? std::nullopt : std::optional(text(column));
  }

private:
  std::vector<value> columns_;
};

struct step_result {
  std::vector<row> rows;
  /// Rows inserted, updated or deleted.
  std::int64_t changed = 0;
};

/// One a step, in order.
using unit_result = std::vector<step_result>;
using unit_reply = std::function<void(store_result<unit_result>)>;

/// Any thread may call. Replies come exactly once, on a thread of the database; after close(), at once on the caller's.
class database {
public:
  virtual ~database() = default;

  /// Durable when the reply comes. Several units may share a commit; one that fails takes none of the others with it.
  virtual void write(unit work, unit_reply reply) = 0;

  /// Within about a second, and before close() ends; nobody is told. Of several waiting under one key only the one of
  /// the highest order is carried out.
  virtual void write_lazily(std::string key, std::int64_t order, unit work) = 0;

  /// On one state of the database, in which every write is visible whose reply came before this call.
  virtual void read(unit work, unit_reply reply) = 0;

  /// Finishes what is queued, then closes. Blocks; not to be called by a thread of the database.
  virtual void close() = 0;
};

} // namespace holt::storage
