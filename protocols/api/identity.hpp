#pragma once

#include "protocols/api/common.hpp"

/// Orgs, users and keys as the API shows and takes them (spec 93). A key's secret is in `created_key` alone. Pure.
namespace holt::protocols::api {

namespace rules_of {
inline constexpr json::field_rule required_name{.name = "name", .doc = "For people.", .min_length = 1, .max_length = 128, .no_nul = true};
inline constexpr json::field_rule org_id{.name = "org_id", .doc = "Of another org: scope `operate` only.", .min_length = 1, .max_length = 64, .no_nul = true};
} // namespace rules_of

struct create_org {
  std::string name;
  static constexpr std::array required{"name"};
  static constexpr std::array rules{rules_of::required_name};
};
BOOST_DESCRIBE_STRUCT(create_org, (), (name))

struct org_view {
  std::string id;
  std::string name;
  std::string created_at;
  static constexpr std::array required{"id", "name", "created_at"};
};
BOOST_DESCRIBE_STRUCT(org_view, (), (id, name, created_at))

struct org_list {
  std::vector<org_view> items;
  std::optional<std::string> next_cursor;
  static constexpr std::array required{"items"};
};
BOOST_DESCRIBE_STRUCT(org_list, (), (items, next_cursor))

struct create_user {
  std::string name;
  std::optional<std::string> org_id;
  static constexpr std::array required{"name"};
  static constexpr std::array rules{rules_of::required_name, rules_of::org_id};
};
BOOST_DESCRIBE_STRUCT(create_user, (), (name, org_id))

struct user_view {
  std::string id;
  std::string name;
  std::string org_id;
  std::string created_at;
  static constexpr std::array required{"id", "name", "org_id", "created_at"};
};
BOOST_DESCRIBE_STRUCT(user_view, (), (id, name, org_id, created_at))

struct user_list {
  std::vector<user_view> items;
  std::optional<std::string> next_cursor;
  static constexpr std::array required{"items"};
};
BOOST_DESCRIBE_STRUCT(user_list, (), (items, next_cursor))

struct create_key {
  std::string name;
  std::vector<std::string> scopes{"use"};
  std::optional<std::string> org_id;
  std::optional<std::string> user_id;
  std::optional<std::uint64_t> expires_in_ms;
  static constexpr std::array required{"name"};
  static constexpr std::array rules{
    rules_of::required_name, rules_of::org_id,
    json::field_rule{.name = "scopes",
                     .doc = "What it may do: `use` environments, `manage` them and keys, `operate` the installation. None that "
                            "the caller's own key lacks.",
                     .min_items = 1,
                     .max_items = 3,
                     .one_of = "use|manage|operate"},
    json::field_rule{.name = "user_id", .doc = "The user it acts for; default: whom the caller's key acts for.", .min_length = 1, .max_length = 64, .no_nul = true},
    json::field_rule{.name = "expires_in_ms", .doc = "Absent: never.", .min = 1000, .max = std::int64_t{100} * 365 * 24 * 3600 * 1000}};
};
BOOST_DESCRIBE_STRUCT(create_key, (), (name, scopes, org_id, user_id, expires_in_ms))

struct key_view {
  std::string id;
  std::string name;
  std::string principal;
  std::vector<std::string> scopes;
  std::string created_at;
  std::optional<std::string> expires_at;
  std::optional<std::string> last_used_at;
  static constexpr std::array required{"id", "name", "principal", "scopes", "created_at"};
};
BOOST_DESCRIBE_STRUCT(key_view, (), (id, name, principal, scopes, created_at, expires_at, last_used_at))

struct key_list {
  std::vector<key_view> items;
  std::optional<std::string> next_cursor;
  static constexpr std::array required{"items"};
};
BOOST_DESCRIBE_STRUCT(key_list, (), (items, next_cursor))

struct created_key {
  std::string id;
  std::string key;
  static constexpr std::array required{"id", "key"};
  static constexpr std::array rules{json::field_rule{.name = "key", .doc = "The secret. It is shown once and kept only as a hash.", .secret = true}};
};
BOOST_DESCRIBE_STRUCT(created_key, (), (id, key))

} // namespace holt::protocols::api
