#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tl/expected.hpp>

/// What holt keeps, as the rest of it sees it: rows, and asynchronous calls that read and write them (spec 1, 11, 93).
///
/// Times are microseconds since 1970. Every row belongs to an org; calls that take an org never show another's rows.
namespace holt::storage {

enum class store_errc : std::uint8_t {
  not_found,
  conflict,    // a unique name or id is taken
  fenced,      // the generation moved on: nothing was written (spec 11)
  unavailable, // the database can't be reached or is full: try again
  internal,    // a bug, or a damaged database
  invalid,     // the caller's: a cursor that no list gave, too many labels in a filter
};

struct store_error {
  store_errc code = store_errc::internal;
  std::string detail; // for the log
};

template <class T>
using store_result = tl::expected<T, store_error>;
/// Called exactly once, on a thread of the store: post it on.
template <class T>
using store_reply = std::function<void(store_result<T>)>;

struct environment_row {
  std::string id; // env_…
  std::string org_id;
  std::string name;
  std::string kind;     // "cloud", "device"
  std::string provider; // name, or empty for the current one
  std::optional<std::string> image;
  std::string limits_json = "{}";
  std::string network = "none";
  std::optional<std::int64_t> suspend_after_ms;
  std::optional<std::int64_t> destroy_after_ms;
  std::map<std::string, std::string> labels;
  std::string created_by; // principal
  std::int64_t created_at = 0;
  std::int64_t updated_at = 0;
  std::optional<std::int64_t> deleted_at;
};

/// The one instance row of an environment (spec 1). Absent: never created.
struct instance_row {
  std::string environment_id;
  std::string provider;
  std::string handle; // JSON text, keys sorted
  std::string file_system_id;
  std::string fs_status = "ok"; // "ok", "lost"
  std::string status;           // "creating" … "resetting", spec 1
  std::string host_id;
  std::string boot_id;
  std::int64_t instance_created_at = 0; // the provider's created_at; 0: none yet
  std::int64_t last_used_at = 0;
  std::uint64_t generation = 0; // the fence
  std::uint64_t epoch = 0;      // of the agent's session
  std::string roots_json;       // of the instance; empty: defaults
  std::optional<std::int64_t> sweep_failed_at;
};

struct environment_record {
  environment_row environment;
  std::optional<instance_row> instance;
};

struct operation_row { // something long that a client polls: a deletion
  std::string id;      // op_…
  std::string org_id;
  std::string environment_id;
  std::string kind;   // "environment.delete"
  std::string status; // "running", "done", "failed"
  std::string error;
  std::int64_t created_at = 0;
  std::int64_t updated_at = 0;
};

struct org_row {
  std::string id; // org_…
  std::string name;
  std::int64_t created_at = 0;
};

struct user_row {
  std::string id; // user_…
  std::string org_id;
  std::string name;
  std::int64_t created_at = 0;
};

struct key_row {
  std::string id; // key_…
  std::string org_id;
  std::string principal; // user_… or key_… that made it (spec 1)
  std::string name;
  std::string hash;                // SHA-256 of the secret, hex
  std::vector<std::string> scopes; // "use", "manage", "operate"
  std::int64_t created_at = 0;
  std::optional<std::int64_t> expires_at;
  std::optional<std::int64_t> last_used_at;
};

template <class Row>
struct page {
  std::vector<Row> items;
  std::string next_cursor; // empty: the end
};

struct environment_filter {
  std::string org_id;
  std::optional<std::string> kind;
  std::map<std::string, std::string> labels;
  std::string cursor;
  std::uint32_t limit = 100;
};

/// Any thread may call. Writes are durable when the reply comes (one commit may carry many calls), and a read asked for
/// after that reply sees them. Lists are ordered by created_at, then id; a row there from the first page to the last is
/// listed exactly once. An org, user or environment that must exist and doesn't is not_found.
class store {
public:
  virtual ~store() = default;

  // environments: deleted ones are not found
  virtual void create_environment(environment_row row, store_reply<environment_row> reply) = 0;
  virtual void get_environment(std::string org_id, std::string id, store_reply<environment_record> reply) = 0;
  virtual void list_environments(environment_filter filter, store_reply<page<environment_record>> reply) = 0;
  /// Name, limits, network, times and labels of the row.
  virtual void update_environment(environment_row row, store_reply<environment_row> reply) = 0;
  /// From now on a 404; the operation is what the client polls. Both in one transaction.
  virtual void delete_environment(std::string org_id, std::string id, operation_row operation,
                                  store_reply<operation_row> reply) = 0;

  // lifecycle, of the environment supervisor and the sweeper; deleted ones are found here
  virtual void load_environment(std::string id, store_reply<environment_record> reply) = 0;
  /// Inserts with generation 1 when `expected` is 0, else replaces the row if it still has generation `expected`; the
  /// stored generation is expected + 1 and is in the answer. No match → fenced, nothing written (spec 11). Epoch and
  /// last_used_at never go backwards. The first row of an environment that is missing or deleted: not_found.
  virtual void write_instance(instance_row row, std::uint64_t expected_generation, store_reply<instance_row> reply) = 0;
  /// last_used_at only, never backwards, not fenced. Batched: seen by reads within a second, and not durable until
  /// then.
  virtual void touch_instance(std::string environment_id, std::int64_t last_used_at) = 0;
  /// Increments and answers the session epoch of the instance row (spec 52).
  virtual void next_epoch(std::string environment_id, store_reply<std::uint64_t> reply) = 0;
  /// Replaces the identity that a holder last used, and answers the former one ("" the first time), in one step (spec
  /// 18).
  virtual void swap_seen(std::string environment_id, std::string holder, std::string identity, std::int64_t expires_at,
                         store_reply<std::string> reply) = 0;
  /// Removes the rows of a deleted environment, fenced by the generation of its instance row (0: it has none), and
  /// marks its running operations done. Not there, or not deleted: not_found.
  virtual void purge_environment(std::string id, std::uint64_t expected_generation, store_reply<bool> reply) = 0;
  /// Environments that have an instance row of one of these statuses (none given: of any), deleted or not; or with
  /// `deleted_only` the deleted ones, also those without a row unless statuses are given. In pages by id (cursor = last
  /// id).
  virtual void list_instances(std::vector<std::string> statuses, bool deleted_only, std::string cursor,
                              std::uint32_t limit, store_reply<page<environment_record>> reply) = 0;

  // operations to poll
  virtual void get_operation(std::string org_id, std::string id, store_reply<operation_row> reply) = 0;
  /// Whether it was running: an operation finishes once.
  virtual void finish_operation(std::string id, std::string status, std::string error, std::int64_t now,
                                store_reply<bool> reply) = 0;

  // orgs, users, keys
  virtual void create_org(org_row row, store_reply<org_row> reply) = 0;
  virtual void list_orgs(std::string cursor, std::uint32_t limit, store_reply<page<org_row>> reply) = 0;
  virtual void get_org(std::string id, store_reply<org_row> reply) = 0;
  /// Marks its environments deleted, and removes its users and keys.
  virtual void delete_org(std::string id, std::int64_t now, store_reply<bool> reply) = 0;
  virtual void create_user(user_row row, store_reply<user_row> reply) = 0;
  virtual void list_users(std::string org_id, std::string cursor, std::uint32_t limit,
                          store_reply<page<user_row>> reply) = 0;
  virtual void delete_user(std::string org_id, std::string id, store_reply<bool> reply) = 0; // and its keys
  virtual void create_key(key_row row, store_reply<key_row> reply) = 0;
  virtual void list_keys(std::string org_id, std::string cursor, std::uint32_t limit,
                         store_reply<page<key_row>> reply) = 0;
  virtual void delete_key(std::string org_id, std::string id, store_reply<bool> reply) = 0;
  /// In any org, expired or not: the caller compares expires_at.
  virtual void find_key(std::string hash, store_reply<key_row> reply) = 0;
  virtual void count_keys(store_reply<std::uint64_t> reply) = 0;

  // the installation
  /// A random id made with the database: the incarnation that epochs compare within.
  virtual void incarnation(store_reply<std::string> reply) = 0;
  /// SELECT 1, for /readyz.
  virtual void ping(store_reply<bool> reply) = 0;

  /// Finishes what is queued, then closes. Blocks. Nothing may be called afterwards.
  virtual void close() = 0;
};

} // namespace holt::storage
