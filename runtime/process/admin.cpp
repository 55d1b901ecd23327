#include <chrono>
#include <cstdio>

#include "runtime/process/data_dir.hpp"
#include "runtime/process/log.hpp"
#include "runtime/process/sandboxes.hpp"
#include "runtime/process/serve.hpp"
#include "runtime/process/wait_for.hpp"
#include "storage/sqlite_store.hpp"

namespace holt::runtime::process {

namespace {

/// Ends one instance as the environment's actor would: the target state first, fenced, then the step, then its result.
bool stop_instance(storage::store& store, actors::provider_backend& sandboxes, storage::instance_row row) {
  auto write = [&](const char* status) {
    row.status = status;
    auto written = wait_for<storage::instance_row>(
        [&](auto reply) { store.write_instance(row, row.generation, std::move(reply)); });
    if (written)
      row = *written;
    return written.has_value();
  };
  if (!write("destroying"))
    return false;
  auto ended = sandboxes.destroy(row.environment_id, row.handle, row.generation);
  return ended && write("destroyed");
}

int stop_instances(const settings& settings) {
  auto data = open_data_dir(settings.data_dir);
  if (!data) {
    std::fprintf(stderr, "holt admin: %s\n", data.error().c_str());
    return 69;
  }
  auto store = storage::open_sqlite_store(data->path + "/holt.db");
  auto sandboxes = open_sandboxes(settings, data->path);
  if (!store || !sandboxes) {
    std::fprintf(stderr, "holt admin: %s\n", store ? sandboxes.error().c_str() : store.error().detail.c_str());
    return 69;
  }
  unsigned ended = 0, failed = 0;
  std::string cursor;
  do {
    auto page = wait_for<storage::page<storage::environment_record>>([&](auto reply) {
      (*store)->list_instances({"creating", "running", "suspending", "suspended", "resuming", "destroying", "resetting"}, false,
                               cursor, 100, std::move(reply));
    });
    if (!page)
      break;
    for (auto& record : page->items)
      if (record.instance)
        ++(stop_instance(**store, **sandboxes, *record.instance) ? ended : failed);
    cursor = page->next_cursor;
  } while (!cursor.empty());
  (*store)->close();
  std::printf("%u instances ended, %u could not be\n", ended, failed);
  return failed == 0 ? 0 : 69;
}

} // namespace

int admin(std::span<const std::string> args) {
  constexpr const char* usage = "usage: holt admin stop-instances [--data-dir DIR]   ends every sandbox of a data directory that no "
                                "server uses; files stay";
  if (args.empty() || args[0] != "stop-instances") {
    std::fprintf(stderr, "%s\n", usage);
    return 64;
  }
  start_log("warn", "text");
  auto parsed = parse_settings(args.subspan(1));
  if (!parsed) {
    std::fprintf(parsed.error().status == 0 ? stdout : stderr, "%s\n", parsed.error().text.c_str());
    return parsed.error().status;
  }
  return stop_instances(*parsed);
}

} // namespace holt::runtime::process
