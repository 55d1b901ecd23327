#include "runtime/process/first_key.hpp"

#include <chrono>

#include "runtime/http/secrets.hpp"
#include "runtime/process/data_dir.hpp"
#include "runtime/process/wait_for.hpp"

namespace holt::runtime::process {

namespace {

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

template <class T>
tl::expected<T, std::string> made(storage::store_result<T> result) {
  if (!result)
    return tl::unexpected("cannot make the first key: " + result.error().detail);
  return std::move(*result);
}

} // namespace

tl::expected<bool, std::string> ensure_first_key(storage::store& store, const std::string& path) {
  auto count = wait_for<std::uint64_t>([&](auto reply) { store.count_keys(std::move(reply)); });
  if (!count)
    return tl::unexpected("cannot read the keys: " + count.error().detail);
  if (*count > 0)
    return false;

  auto key = http::random_key();
  if (auto written = write_private_file(path, key + "\n"); !written)
    return tl::unexpected(written.error());
  auto now = now_us();
  storage::org_row org{http::random_id(protocols::id_kind::org), "default", now};
  if (auto row = made(wait_for<storage::org_row>([&](auto reply) { store.create_org(org, std::move(reply)); })); !row)
    return tl::unexpected(row.error());
  storage::user_row user{http::random_id(protocols::id_kind::user), org.id, "operator", now};
  if (auto row = made(wait_for<storage::user_row>([&](auto reply) { store.create_user(user, std::move(reply)); })); !row)
    return tl::unexpected(row.error());
  storage::key_row first;
  first.id = http::random_id(protocols::id_kind::key);
  first.org_id = org.id;
  first.principal = user.id;
  first.name = "first key";
  first.hash = http::sha256_hex(key);
  first.scopes = {"use", "manage", "operate"};
  first.created_at = now;
  if (auto row = made(wait_for<storage::key_row>([&](auto reply) { store.create_key(first, std::move(reply)); })); !row)
    return tl::unexpected(row.error());
  return true;
}

} // namespace holt::runtime::process
