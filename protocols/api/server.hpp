#pragma once

#include <map>

#include "protocols/api/common.hpp"

/// What the server says of itself (spec 102). Pure.
namespace holt::protocols::api {

struct health_view {
  std::string status;
  static constexpr std::array required{"status"};
};
BOOST_DESCRIBE_STRUCT(health_view, (), (status))

struct readiness_view {
  std::string status;
  std::vector<std::string> missing;
  static constexpr std::array required{"status", "missing"};
  static constexpr std::array rules{json::field_rule{.name = "status", .one_of = "ready|not_ready"},
                                    json::field_rule{.name = "missing", .doc = "What is not there, in words."}};
};
BOOST_DESCRIBE_STRUCT(readiness_view, (), (status, missing))

struct provider_view {
  std::string name;
  bool available = false;
  std::vector<std::string> features;
  std::vector<std::string> missing;
  static constexpr std::array required{"name", "available", "features", "missing"};
  static constexpr std::array rules{json::field_rule{.name = "features", .doc = "What it isolates and limits."},
                                    json::field_rule{.name = "missing", .doc = "What this machine can't give, in words."}};
};
BOOST_DESCRIBE_STRUCT(provider_view, (), (name, available, features, missing))

struct limits_view {
  std::uint64_t header_bytes = 0;
  std::uint64_t json_body_bytes = 0;
  std::uint64_t file_body_bytes = 0;
  std::uint64_t output_bytes = 0;
  std::uint64_t requests_per_second = 0;
  static constexpr std::array required{"header_bytes", "json_body_bytes", "file_body_bytes", "output_bytes", "requests_per_second"};
  static constexpr std::array rules{json::field_rule{.name = "requests_per_second", .doc = "Of one key; 0: not limited."}};
};
BOOST_DESCRIBE_STRUCT(limits_view, (), (header_bytes, json_body_bytes, file_body_bytes, output_bytes, requests_per_second))

struct server_view {
  std::string version;
  std::vector<std::string> roles;
  std::vector<provider_view> providers;
  limits_view limits;
  static constexpr std::array required{"version", "roles", "providers", "limits"};
};
BOOST_DESCRIBE_STRUCT(server_view, (), (version, roles, providers, limits))

} // namespace holt::protocols::api
