#include "storage/sqlite/sqlite_database.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

#include "storage/sqlite/migrate.hpp"

namespace holt::storage {

namespace {

/// Makes the file with its mode before SQLite would, and its name lasting. SQLite's other files take over the mode.
store_result<void> make_file(const std::string& path) {
  auto failed = [&](const std::string& doing) {
    return tl::unexpected(store_error{store_errc::unavailable, doing + ": " + std::strerror(errno)});
  };
  int made = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (made < 0) {
    return failed("opening the database " + path);
  }
  ::close(made);
  auto directory = std::filesystem::path(path).parent_path();
  int above = ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (above < 0 || ::fsync(above) != 0) {
    auto error = failed("flushing the directory of " + path);
    if (above >= 0) {
      ::close(above);
    }
    return error;
  }
  ::close(above);
  return {};
}

store_error explained(store_error error, const std::string& path) {
  if (error.code == store_errc::internal) {
    error.detail = "the database " + path + " can't be used: " + error.detail;
  }
  return error;
}

store_result<void> check(connection& on, const std::string& path, std::int64_t up_to_bytes) {
  std::error_code ignored;
  if (auto size = std::filesystem::file_size(path, ignored);
      ignored || size > static_cast<std::uintmax_t>(up_to_bytes)) {
    return {};
  }
  auto found = on.run(step{"PRAGMA quick_check(1)", {}});
  if (!found) {
    return tl::unexpected(std::move(found.error()));
  }
  if (found->rows.size() != 1 || found->rows[0].text(0) != "ok") {
    return tl::unexpected(
        store_error{store_errc::internal,
                    "it is damaged (" + (found->rows.empty() ? "" : found->rows[0].text(0)) + "): restore a backup"});
  }
  return {};
}

} // namespace

store_result<std::unique_ptr<sqlite_database>> sqlite_database::open(const std::string& path,
                                                                     const sqlite_settings& settings,
                                                                     const std::vector<migration>& migrations,
                                                                     std::int64_t now) {
  if (auto made = make_file(path); !made) {
    return tl::unexpected(std::move(made.error()));
  }
  auto writing = connection::open(path, settings.each_connection);
  if (!writing) {
    return tl::unexpected(explained(std::move(writing.error()), path));
  }
  if (auto good = check(*writing, path, settings.check_up_to_bytes); !good) {
    return tl::unexpected(explained(std::move(good.error()), path));
  }
  if (auto done = migrate(*writing, migrations, now); !done) {
    return tl::unexpected(explained(std::move(done.error()), path));
  }
  if (settings.max_pages > 0) {
    auto limit = "PRAGMA max_page_count = " + std::to_string(settings.max_pages);
    if (auto done = writing->execute(limit.c_str()); !done) {
      return tl::unexpected(explained(std::move(done.error()), path));
    }
  }
  auto of_reader = settings.each_connection;
  of_reader.read_only = true;
  std::vector<connection> reading;
  for (std::size_t i = 0; i < settings.readers; ++i) {
    auto next = connection::open(path, of_reader);
    if (!next) {
      return tl::unexpected(explained(std::move(next.error()), path));
    }
    reading.push_back(std::move(*next));
  }
  return std::unique_ptr<sqlite_database>(new sqlite_database(std::move(*writing), std::move(reading), settings));
}

sqlite_database::sqlite_database(connection writing, std::vector<connection> reading, const sqlite_settings& settings)
    : writer_(std::move(writing), settings.writer), readers_(std::move(reading), settings.max_queued_reads) {
}

sqlite_database::~sqlite_database() {
  close();
}

void sqlite_database::write(unit work, unit_reply reply) {
  if (writer_.write(std::move(work), reply)) {
    return;
  }
  store_error why{store_errc::unavailable, "too many writes are waiting"};
  if (!readers_.refuse(reply, why)) {
    reply(tl::unexpected(store_error{store_errc::unavailable, "the database is closed"}));
  }
}

void sqlite_database::write_lazily(std::string key, std::int64_t order, unit work) {
  writer_.write_lazily(std::move(key), order, std::move(work));
}

void sqlite_database::read(unit work, unit_reply reply) {
  if (!readers_.read(std::move(work), reply)) {
    reply(tl::unexpected(store_error{store_errc::unavailable, "the database is closed"}));
  }
}

void sqlite_database::close() {
  writer_.stop();
  readers_.stop();
}

} // namespace holt::storage
