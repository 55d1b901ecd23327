#include "storage/sqlite/connection.hpp"

#include <algorithm>
#include <charconv>
#include <memory>
#include <thread>
#include <utility>

#include <sqlite3.h>

namespace holt::storage {

struct connection::statement {
  std::string sql; // the key of the map points into it
  sqlite3_stmt* handle = nullptr;
  /// SQLite numbers named parameters by their first appearance: parameter i of SQLite is the step's parameter
  /// numbers[i].
  std::vector<std::size_t> numbers;
  std::size_t highest = 0;

  ~statement() {
    sqlite3_finalize(handle);
  }
};

namespace {

store_errc code_of(int code) {
  switch (code) {
  case SQLITE_CONSTRAINT_UNIQUE:
  case SQLITE_CONSTRAINT_PRIMARYKEY:
    return store_errc::conflict;
  case SQLITE_CONSTRAINT_FOREIGNKEY:
    return store_errc::not_found;
  default:
    break;
  }
  switch (code & 0xff) {
  case SQLITE_BUSY:
  case SQLITE_LOCKED:
  case SQLITE_FULL:
  case SQLITE_IOERR:
  case SQLITE_CANTOPEN:
  case SQLITE_READONLY:
  case SQLITE_NOMEM:
    return store_errc::unavailable;
  default:
    return store_errc::internal;
  }
}

int bind(sqlite3_stmt* to, int index, const value& what) {
  if (auto* number = std::get_if<std::int64_t>(&what)) {
    return sqlite3_bind_int64(to, index, *number);
  }
  if (auto* text = std::get_if<std::string>(&what)) {
    // The step outlives the run, and bindings are cleared at its end: no copy is needed.
    return sqlite3_bind_text64(to, index, text->data(), text->size(), SQLITE_STATIC, SQLITE_UTF8);
  }
  return sqlite3_bind_null(to, index);
}

value column(sqlite3_stmt* of, int index) {
  switch (sqlite3_column_type(of, index)) {
  case SQLITE_NULL:
    return {};
  case SQLITE_INTEGER:
    return static_cast<std::int64_t>(sqlite3_column_int64(of, index));
  default: {
    auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(of, index));
    return std::string(bytes ? bytes : "", static_cast<std::size_t>(sqlite3_column_bytes(of, index)));
  }
  }
}

/// Ends the use of a statement: its locks go, and the pointers into the step's parameters.
struct in_use {
  sqlite3_stmt* handle;
  ~in_use() {
    sqlite3_reset(handle);
    sqlite3_clear_bindings(handle);
  }
};

} // namespace

store_result<connection> connection::open(const std::string& path, const settings& with) {
  connection made;
  made.settings_ = with;
  made.commits_ = std::make_unique<std::uint64_t>(0);
  int code = sqlite3_open_v2(path.c_str(), &made.handle_,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  if (code != SQLITE_OK) {
    return tl::unexpected(made.error_of(code, "opening " + path));
  }
  sqlite3_busy_timeout(made.handle_, static_cast<int>(with.busy_timeout.count()));
  sqlite3_commit_hook(
      made.handle_,
      [](void* counter) {
        ++*static_cast<std::uint64_t*>(counter);
        return 0;
      },
      made.commits_.get());
  // Checksums of pages aren't kept by SQLite; cell_size_check finds a good part of what a bad disk does. The WAL file
  // is reused rather than cut, so that a commit seldom has to grow it; after a burst it goes back to 64 MiB.
  std::string setup = "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;"
                      "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA journal_size_limit = 67108864;"
                      "PRAGMA temp_store = MEMORY; PRAGMA cache_size = -"
                      + std::to_string(with.cache_bytes / 1024) + ";";
  if (with.read_only) {
    setup += "PRAGMA query_only = ON;";
  }
  if (auto done = made.execute(setup.c_str()); !done) {
    return tl::unexpected(std::move(done.error()));
  }
  if (auto done = made.enter_wal(); !done) {
    return tl::unexpected(std::move(done.error()));
  }
  return made;
}

connection::connection(connection&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), settings_(other.settings_),
      statements_(std::move(other.statements_)), commits_(std::move(other.commits_)) {
}

connection& connection::operator=(connection&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(settings_, other.settings_);
  std::swap(statements_, other.statements_);
  std::swap(commits_, other.commits_);
  return *this;
}

connection::~connection() {
  statements_.clear();
  sqlite3_close_v2(handle_);
}

store_result<void> connection::enter_wal() {
  // SQLite doesn't wait for its lock here as it does elsewhere, and several processes may open a new file at once.
  const auto until = std::chrono::steady_clock::now() + settings_.busy_timeout;
  for (;;) {
    auto mode = run(step{"PRAGMA journal_mode = WAL", {}});
    if (mode && !mode->rows.empty() && mode->rows[0].text(0) == "wal") {
      return {};
    }
    if (!mode && mode.error().code != store_errc::unavailable) {
      return tl::unexpected(std::move(mode.error()));
    }
    if (std::chrono::steady_clock::now() >= until) {
      return tl::unexpected(mode ? store_error{store_errc::unavailable, "its file system can't carry a write-ahead log"}
                                 : std::move(mode.error()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

store_error connection::error_of(int code, std::string_view what) const {
  std::string detail(what);
  detail += ": ";
  detail += handle_ ? sqlite3_errmsg(handle_) : sqlite3_errstr(code);
  detail += " (" + std::to_string(code) + ")";
  return {code_of(code), std::move(detail)};
}

store_result<void> connection::execute(const char* sql) {
  int code = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) {
    return tl::unexpected(error_of(code, sql));
  }
  return {};
}

store_result<connection::statement*> connection::prepared(std::string_view sql) {
  if (auto found = statements_.find(sql); found != statements_.end()) {
    return found->second.get();
  }
  if (statements_.size() >= settings_.kept_statements) {
    statements_.clear();
  }
  auto made = std::make_unique<statement>();
  made->sql = sql;
  int code = sqlite3_prepare_v3(handle_, made->sql.data(), static_cast<int>(made->sql.size() + 1),
                                SQLITE_PREPARE_PERSISTENT, &made->handle, nullptr);
  if (code != SQLITE_OK) {
    return tl::unexpected(error_of(code, sql));
  }
  for (int i = 1; i <= sqlite3_bind_parameter_count(made->handle); ++i) {
    std::string_view name = sqlite3_bind_parameter_name(made->handle, i);
    std::size_t number = 0;
    std::from_chars(name.data() + 1, name.data() + name.size(), number);
    made->numbers.push_back(number);
    made->highest = std::max(made->highest, number);
  }
  auto* raw = made.get();
  statements_.emplace(raw->sql, std::move(made));
  return raw;
}

store_result<step_result> connection::run(const step& what) {
  auto found = prepared(what.sql);
  if (!found) {
    return tl::unexpected(std::move(found.error()));
  }
  const statement& use = **found;
  if (use.highest != what.parameters.size()) {
    return tl::unexpected(store_error{store_errc::internal, "wrong number of parameters: " + use.sql});
  }
  in_use guard{use.handle};
  for (std::size_t i = 0; i < use.numbers.size(); ++i) {
    int code = bind(use.handle, static_cast<int>(i + 1), what.parameters[use.numbers[i] - 1]);
    if (code != SQLITE_OK) {
      return tl::unexpected(error_of(code, what.sql));
    }
  }
  step_result answer;
  const auto changed_before = sqlite3_total_changes64(handle_);
  int code = SQLITE_OK;
  while ((code = sqlite3_step(use.handle)) == SQLITE_ROW) {
    std::vector<value> columns;
    const int count = sqlite3_column_count(use.handle);
    columns.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      columns.push_back(column(use.handle, i));
    }
    answer.rows.emplace_back(std::move(columns));
  }
  if (code != SQLITE_DONE) {
    return tl::unexpected(error_of(code, what.sql));
  }
  if (!sqlite3_stmt_readonly(use.handle)) {
    answer.changed = sqlite3_total_changes64(handle_) - changed_before;
  }
  if (what.if_none && answer.rows.empty() && answer.changed == 0) {
    return tl::unexpected(store_error{*what.if_none, "no row"});
  }
  return answer;
}

store_result<unit_result> connection::run(const unit& work, bool savepoint) {
  savepoint = savepoint && work.size() > 1; // a single statement undoes itself when it fails
  if (savepoint) {
    if (auto begun = run(step{"SAVEPOINT one", {}}); !begun) {
      return tl::unexpected(std::move(begun.error()));
    }
  }
  unit_result results;
  results.reserve(work.size());
  for (const auto& each : work) {
    auto result = run(each);
    if (!result) {
      if (savepoint && in_transaction()) {
        (void)run(step{"ROLLBACK TO one", {}});
        (void)run(step{"RELEASE one", {}});
      }
      return tl::unexpected(std::move(result.error()));
    }
    results.push_back(std::move(*result));
  }
  if (savepoint) {
    if (auto released = run(step{"RELEASE one", {}}); !released) {
      return tl::unexpected(std::move(released.error()));
    }
  }
  return results;
}

bool connection::in_transaction() const {
  return sqlite3_get_autocommit(handle_) == 0;
}

std::uint64_t connection::commits() const {
  return *commits_;
}

} // namespace holt::storage
