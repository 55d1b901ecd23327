#pragma once

#include <map>

#include "protocols/agent_messages.hpp"
#include "protocols/api/common.hpp"

/// Environments as the API shows and takes them (spec 1, 2, 5, 6). Pure.
namespace holt::protocols::api {

inline constexpr std::int64_t max_limit_bytes = std::int64_t{1} << 50;
/// A hundred years: longer than any sweep waits.
inline constexpr std::int64_t max_duration_ms = std::int64_t{100} * 365 * 24 * 3600 * 1000;

struct environment_limits {
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint64_t> processes;
  std::optional<double> cpus;
  std::optional<std::uint64_t> open_files;
  std::optional<std::uint64_t> file_size_bytes;
  std::optional<std::uint64_t> disk_bytes;
  static constexpr std::string_view doc = "What an environment may use at most. Absent: the server's default.";
  static constexpr std::array rules{
    json::field_rule{.name = "memory_bytes", .doc = "Memory of all its processes together.", .min = 16 << 20, .max = max_limit_bytes},
    json::field_rule{.name = "processes", .doc = "Processes and threads at a time.", .min = 4, .max = 1000000},
    json::field_rule{.name = "cpus", .doc = "Processors' worth of time, 0.5 is half of one.", .min = 0, .max = 4096},
    json::field_rule{.name = "open_files", .doc = "Open files of one process.", .min = 16, .max = 1048576},
    json::field_rule{.name = "file_size_bytes", .doc = "Largest file.", .min = 4096, .max = max_limit_bytes},
    json::field_rule{.name = "disk_bytes", .doc = "Kept files together.", .min = 1 << 20, .max = max_limit_bytes}};
};
BOOST_DESCRIBE_STRUCT(environment_limits, (), (memory_bytes, processes, cpus, open_files, file_size_bytes, disk_bytes))

inline constexpr json::field_rule name_rule{.name = "name",
                                            .doc = "For people; need not be unique.",
                                            .min_length = 1,
                                            .max_length = 128,
                                            .no_nul = true};
inline constexpr json::field_rule labels_rule{.name = "labels",
                                              .doc = "Names and values for finding environments again.",
                                              .max_length = 128,
                                              .max_items = 32,
                                              .no_nul = true};
inline constexpr json::field_rule network_rule{.name = "network",
                                               .doc = "What commands reach: `none`, or the network of the `host`. "
                                                      "`egress` (allow-listed) is refused by this version.",
                                               .one_of = "none|egress|host"};
inline constexpr json::field_rule suspend_rule{.name = "suspend_after_ms",
                                               .doc = "Idle time until the instance is frozen; 0: never.",
                                               .min = 0,
                                               .max = max_duration_ms};
inline constexpr json::field_rule destroy_rule{.name = "destroy_after_ms",
                                               .doc = "Unused time until the instance goes (files stay); 0: never.",
                                               .min = 0,
                                               .max = max_duration_ms};

struct create_environment {
  std::optional<std::string> name;
  std::string kind = "cloud";
  std::optional<std::string> image;
  std::optional<environment_limits> limits;
  std::string network = "none";
  std::optional<std::int64_t> suspend_after_ms;
  std::optional<std::int64_t> destroy_after_ms;
  std::optional<std::map<std::string, std::string>> labels;
  static constexpr std::array rules{
    name_rule,
    json::field_rule{.name = "kind", .doc = "A sandbox on the server, or a connected machine.", .one_of = "cloud|device"},
    json::field_rule{.name = "image", .doc = "Container image, where the provider has images.", .min_length = 1, .max_length = 512, .no_nul = true},
    network_rule, suspend_rule, destroy_rule, labels_rule};
};
BOOST_DESCRIBE_STRUCT(create_environment, (),
                      (name, kind, image, limits, network, suspend_after_ms, destroy_after_ms, labels))

/// PATCH: what is absent stays as it is. `labels` replaces all labels.
struct update_environment {
  std::optional<std::string> name;
  std::optional<environment_limits> limits;
  std::optional<std::string> network;
  std::optional<std::int64_t> suspend_after_ms;
  std::optional<std::int64_t> destroy_after_ms;
  std::optional<std::map<std::string, std::string>> labels;
  static constexpr std::string_view doc =
    "What is absent stays. `labels` and `limits` replace the former ones; they hold from the next instance on.";
  static constexpr std::array rules{name_rule, network_rule, suspend_rule, destroy_rule, labels_rule};
};
BOOST_DESCRIBE_STRUCT(update_environment, (), (name, limits, network, suspend_after_ms, destroy_after_ms, labels))

struct instance_view {
  std::string status; // "creating" … "resetting"
  std::string provider;
  std::string fs_status;
  std::optional<std::string> created_at;
  std::optional<std::string> last_used_at;
  std::uint64_t generation = 0;
  std::optional<std::string> sweep_failed_at;
  static constexpr std::array required{"status", "provider", "fs_status", "generation"};
  static constexpr std::array rules{
    json::field_rule{.name = "status",
                     .doc = "State of what runs commands.",
                     .one_of = "creating|running|suspending|suspended|resuming|destroying|destroyed|resetting"},
    json::field_rule{.name = "fs_status", .doc = "`lost`: the kept files are gone, reset the environment.", .one_of = "ok|lost"}};
};
BOOST_DESCRIBE_STRUCT(instance_view, (),
                      (status, provider, fs_status, created_at, last_used_at, generation, sweep_failed_at))

struct roots_view {
  std::string workspace;
  std::string skills;
  std::string tmp;
  static constexpr std::string_view doc = "The directories of the instance, absolute. `skills` is read only.";
  static constexpr std::array required{"workspace", "skills", "tmp"};
};
BOOST_DESCRIBE_STRUCT(roots_view, (), (workspace, skills, tmp))

struct activity_view {
  std::uint32_t running = 0;
  std::uint32_t waiting = 0;
  bool connected = false;
  static constexpr std::string_view doc = "Uses in flight on this replica, and those that wait for a lease.";
  static constexpr std::array required{"running", "waiting", "connected"};
};
BOOST_DESCRIBE_STRUCT(activity_view, (), (running, waiting, connected))

struct environment_view {
  std::string id;
  std::optional<std::string> name;
  std::string kind;
  std::optional<std::string> image;
  environment_limits limits;
  std::string network;
  std::optional<std::int64_t> suspend_after_ms;
  std::optional<std::int64_t> destroy_after_ms;
  std::map<std::string, std::string> labels;
  std::string created_by;
  std::string created_at;
  std::string updated_at;
  std::optional<instance_view> instance; // absent: never used, or gone
  roots_view roots;
  std::optional<activity_view> activity;            // GET of one
  std::optional<std::vector<std::string>> holders; // GET of one
  static constexpr std::array required{"id",         "kind",       "limits",     "network", "labels",
                                       "created_by", "created_at", "updated_at", "roots"};
};
BOOST_DESCRIBE_STRUCT(environment_view, (),
                      (id, name, kind, image, limits, network, suspend_after_ms, destroy_after_ms, labels, created_by,
                       created_at, updated_at, instance, roots, activity, holders))

struct environment_list {
  std::vector<environment_view> items;
  std::optional<std::string> next_cursor; // absent: the end
  static constexpr std::array required{"items"};
};
BOOST_DESCRIBE_STRUCT(environment_list, (), (items, next_cursor))

struct operation_view {
  std::string id;
  std::string kind;
  std::string status;
  std::optional<std::string> environment_id;
  std::optional<std::string> error;
  std::string created_at;
  std::string updated_at;
  static constexpr std::array required{"id", "kind", "status", "created_at", "updated_at"};
  static constexpr std::array rules{
    json::field_rule{.name = "status", .doc = "Poll until it is not `running`.", .one_of = "running|done|failed"}};
};
BOOST_DESCRIBE_STRUCT(operation_view, (), (id, kind, status, environment_id, error, created_at, updated_at))

} // namespace holt::protocols::api
