#include "storage/sqlite_store.hpp"

#include <array>
#include <chrono>
#include <future>

#include <sys/random.h>

#include "storage/sql_store.hpp"

namespace holt::storage {

namespace {

std::int64_t system_now() {
  auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since_1970).count();
}

/// 128 random bits in hex.
store_result<std::string> random_id() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return tl::unexpected(store_error{store_errc::unavailable, "the system gives no random bytes"});
  }
  std::string text;
  for (auto byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

store_result<void> name_incarnation(database& on) {
  auto id = random_id();
  if (!id) {
    return tl::unexpected(std::move(id.error()));
  }
  std::promise<store_result<unit_result>> done;
  on.write({{"INSERT INTO installation (name, value) VALUES ('incarnation', $1) ON CONFLICT (name) DO NOTHING",
             values(std::move(*id))}},
           [&](store_result<unit_result> result) { done.set_value(std::move(result)); });
  auto result = done.get_future().get();
  if (!result) {
    return tl::unexpected(std::move(result.error()));
  }
  return {};
}

} // namespace

store_result<std::shared_ptr<store>> open_sqlite_store(const std::string& path, sqlite_store_options options) {
  if (!options.now) {
    options.now = system_now;
  }
  auto opened = sqlite_database::open(path, options.database, known_migrations(), options.now());
  if (!opened) {
    return tl::unexpected(std::move(opened.error()));
  }
  if (auto named = name_incarnation(**opened); !named) {
    return tl::unexpected(std::move(named.error()));
  }
  return std::make_shared<sql_store>(std::move(*opened), std::move(options.now));
}

} // namespace holt::storage
