#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "storage/cursor.hpp"
#include "storage/database.hpp"
#include "storage/store.hpp"

namespace holt::storage {

/// The store over any database. Each theme's calls and its SQL stand in a file of its own: environments.cpp,
/// instances.cpp, seen.cpp, operations.cpp, orgs.cpp, users.cpp, keys.cpp, installation.cpp.
///
/// Any thread may call; it holds nothing but the database and two counters.
class sql_store final : public store {
public:
  /// Microseconds since 1970. Used for expiry alone: every stored time comes from the caller.
  using clock = std::function<std::int64_t()>;

  sql_store(std::unique_ptr<database> over, clock now);
  ~sql_store() override;

  void create_environment(environment_row row, store_reply<environment_row> reply) override;
  void get_environment(std::string org_id, std::string id, store_reply<environment_record> reply) override;
  void list_environments(environment_filter filter, store_reply<page<environment_record>> reply) override;
  void update_environment(environment_row row, store_reply<environment_row> reply) override;
  void delete_environment(std::string org_id, std::string id, operation_row operation,
                          store_reply<operation_row> reply) override;

  void load_environment(std::string id, store_reply<environment_record> reply) override;
  void write_instance(instance_row row, std::uint64_t expected_generation, store_reply<instance_row> reply) override;
  void touch_instance(std::string environment_id, std::int64_t last_used_at) override;
  void next_epoch(std::string environment_id, store_reply<std::uint64_t> reply) override;
  void swap_seen(std::string environment_id, std::string holder, std::string identity, std::int64_t expires_at,
                 store_reply<std::string> reply) override;
  void purge_environment(std::string id, std::uint64_t expected_generation, store_reply<bool> reply) override;
  void list_instances(std::vector<std::string> statuses, bool deleted_only, std::string cursor, std::uint32_t limit,
                      store_reply<page<environment_record>> reply) override;

  void get_operation(std::string org_id, std::string id, store_reply<operation_row> reply) override;
  void finish_operation(std::string id, std::string status, std::string error, std::int64_t now,
                        store_reply<bool> reply) override;

  void create_org(org_row row, store_reply<org_row> reply) override;
  void list_orgs(std::string cursor, std::uint32_t limit, store_reply<page<org_row>> reply) override;
  void get_org(std::string id, store_reply<org_row> reply) override;
  void delete_org(std::string id, std::int64_t now, store_reply<bool> reply) override;
  void create_user(user_row row, store_reply<user_row> reply) override;
  void list_users(std::string org_id, std::string cursor, std::uint32_t limit,
                  store_reply<page<user_row>> reply) override;
  void delete_user(std::string org_id, std::string id, store_reply<bool> reply) override;
  void create_key(key_row row, store_reply<key_row> reply) override;
  void list_keys(std::string org_id, std::string cursor, std::uint32_t limit,
                 store_reply<page<key_row>> reply) override;
  void delete_key(std::string org_id, std::string id, store_reply<bool> reply) override;
  void find_key(std::string hash, store_reply<key_row> reply) override;
  void count_keys(store_reply<std::uint64_t> reply) override;

  void incarnation(store_reply<std::string> reply) override;
  void ping(store_reply<bool> reply) override;

  void close() override;

private:
  std::unique_ptr<database> database_;
  clock now_;
  std::atomic<std::uint32_t> seen_swaps_{0};
};

// What the files of the themes share.

/// A call's reply from its unit's: `read` makes the answer from the results. A column that holds what it can't
/// (a damaged database) is answered as `internal`.
template <class T, class Read>
unit_reply answer(store_reply<T> reply, Read read) {
  return [reply = std::move(reply), read = std::move(read)](store_result<unit_result> result) {
    if (!result) {
      reply(tl::unexpected(std::move(result.error())));
      return;
    }
    store_result<T> made = tl::unexpected(store_error{});
    try {
      made = read(*result);
    } catch (const std::exception& error) {
      made = tl::unexpected(store_error{store_errc::internal, std::string("a stored row: ") + error.what()});
    }
    reply(std::move(made));
  };
}

/// Rows of a list: never none, never so many that one answer blocks the others.
inline std::uint32_t bounded(std::uint32_t limit) {
  return limit == 0 ? 1 : limit > 1000 ? 1000 : limit;
}

/// A page from `limit` + 1 rows asked for: one more than shown tells that the list goes on.
template <class Row, class Read, class Cursor>
page<Row> page_of(const step_result& found, std::uint32_t limit, Read read, Cursor cursor_after) {
  page<Row> made;
  for (const auto& each : found.rows) {
    if (made.items.size() == limit) {
      made.next_cursor = cursor_after(made.items.back());
      break;
    }
    made.items.push_back(read(each));
  }
  return made;
}

/// Answers an error without asking the database anything, but from its thread, as every reply comes.
template <class T>
void refuse(database& on, store_reply<T> reply, std::string why) {
  on.read({}, [reply = std::move(reply), why = std::move(why)](const store_result<unit_result>&) {
    reply(tl::unexpected(store_error{store_errc::invalid, why}));
  });
}

inline constexpr const char* bad_cursor = "the cursor is none that this list gave";

/// Fails the unit unless the org is there.
inline step org_is_there(std::string org_id) {
  return {"SELECT 1 FROM orgs WHERE id = $1 AND deleted_at IS NULL", values(std::move(org_id)), store_errc::not_found};
}

} // namespace holt::storage
