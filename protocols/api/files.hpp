#pragma once

#include "protocols/agent_messages.hpp"
#include "protocols/api/common.hpp"
#include "protocols/ids.hpp"
#include "protocols/json_bytes.hpp"

/// Requests and answers of …/fs/ (spec 45). Names that are not UTF-8 are `{"b64": "…"}`. Pure.
namespace holt::protocols::api {

using agent::raw_name;

namespace rules_of {
inline constexpr json::field_rule path{.name = "path", .doc = "Absolute inside a root, or relative to the workspace."};
} // namespace rules_of

struct entry_view {
  raw_name name;
  std::string type;
  std::uint64_t size = 0;
  std::string mode; // "0644"
  std::string modified_at;
  std::optional<raw_name> target;
  static constexpr std::array required{"name", "type", "size", "mode", "modified_at"};
  static constexpr std::array rules{json::field_rule{.name = "type", .one_of = "file|directory|symlink|other"},
                                    json::field_rule{.name = "mode", .doc = "Permission bits, octal."}};
};
BOOST_DESCRIBE_STRUCT(entry_view, (), (name, type, size, mode, modified_at, target))

struct list_request {
  raw_name path;
  bool recursive = false;
  std::uint64_t limit = 10000;
  static constexpr std::array required{"path"};
  static constexpr std::array rules{rules_of::path,
                                    json::field_rule{.name = "limit", .doc = "Most entries.", .min = 1, .max = 100000}};
};
BOOST_DESCRIBE_STRUCT(list_request, (), (path, recursive, limit))

struct entry_list {
  std::vector<entry_view> items;
  bool truncated = false;
  static constexpr std::array required{"items", "truncated"};
};
BOOST_DESCRIBE_STRUCT(entry_list, (), (items, truncated))

struct stat_request {
  raw_name path;
  bool follow = true;
  bool hash = false;
  static constexpr std::array required{"path"};
  static constexpr std::array rules{rules_of::path,
                                    json::field_rule{.name = "follow", .doc = "Of a symbolic link: its target."},
                                    json::field_rule{.name = "hash", .doc = "Also the SHA-256 of a file."}};
};
BOOST_DESCRIBE_STRUCT(stat_request, (), (path, follow, hash))

struct stat_view {
  raw_name path; // absolute
  raw_name name;
  std::string type;
  std::uint64_t size = 0;
  std::string mode;
  std::string modified_at;
  std::optional<raw_name> target;
  std::optional<std::string> sha256;
  static constexpr std::array required{"path", "name", "type", "size", "mode", "modified_at"};
};
BOOST_DESCRIBE_STRUCT(stat_view, (), (path, name, type, size, mode, modified_at, target, sha256))

struct mkdir_request {
  raw_name path;
  bool parents = true;
  std::optional<std::uint32_t> mode;
  static constexpr std::array required{"path"};
  static constexpr std::array rules{rules_of::path,
                                    json::field_rule{.name = "mode", .doc = "Permission bits as a number.", .min = 0, .max = 0777}};
};
BOOST_DESCRIBE_STRUCT(mkdir_request, (), (path, parents, mode))

struct move_request {
  raw_name from;
  raw_name to;
  bool replace = false;
  static constexpr std::array required{"from", "to"};
};
BOOST_DESCRIBE_STRUCT(move_request, (), (from, to, replace))

struct glob_request {
  std::string pattern;
  std::optional<raw_name> path;
  bool ignore = false;
  bool hidden = true;
  std::string order = "path";
  std::uint64_t limit = 1000;
  static constexpr std::array required{"pattern"};
  static constexpr std::array rules{
    json::field_rule{.name = "pattern", .doc = "`**` crosses directories.", .min_length = 1, .max_length = 4096, .no_nul = true},
    rules_of::path, json::field_rule{.name = "ignore", .doc = "Respect .gitignore."},
    json::field_rule{.name = "order", .doc = "`modified`: newest first.", .one_of = "path|modified"},
    json::field_rule{.name = "limit", .doc = "Most entries.", .min = 1, .max = 100000}};
};
BOOST_DESCRIBE_STRUCT(glob_request, (), (pattern, path, ignore, hidden, order, limit))

struct grep_request {
  std::string pattern;
  bool literal = false;
  bool ignore_case = false;
  bool multiline = false;
  std::optional<raw_name> path;
  std::optional<std::vector<std::string>> globs;
  bool ignore = false;
  bool hidden = true;
  std::string output = "content";
  std::uint32_t before = 0;
  std::uint32_t after = 0;
  std::uint64_t limit = 1000;
  std::uint32_t max_line_bytes = 2000;
  static constexpr std::array required{"pattern"};
  static constexpr std::array rules{
    json::field_rule{.name = "pattern", .doc = "RE2 syntax, or plain text if `literal`.", .min_length = 1, .max_length = 16384, .no_nul = true},
    rules_of::path,
    json::field_rule{.name = "globs", .doc = "Only such files; `!x` excludes.", .max_length = 4096, .max_items = 64, .no_nul = true},
    json::field_rule{.name = "ignore", .doc = "Respect .gitignore."},
    json::field_rule{.name = "output", .doc = "Lines, names of files, or counts.", .one_of = "content|files|count"},
    json::field_rule{.name = "before", .doc = "Lines of context.", .max = 1000},
    json::field_rule{.name = "after", .doc = "Lines of context.", .max = 1000},
    json::field_rule{.name = "limit", .doc = "Most records.", .min = 1, .max = 100000},
    json::field_rule{.name = "max_line_bytes", .doc = "Longer lines are cut and marked.", .min = 16, .max = 65536}};
};
BOOST_DESCRIBE_STRUCT(grep_request, (),
                      (pattern, literal, ignore_case, multiline, path, globs, ignore, hidden, output, before, after, limit,
                       max_line_bytes))

/// As the agent tells them: see agent::grep_record.
struct grep_item {
  raw_name path;
  std::string type;
  std::optional<std::uint64_t> line;
  std::optional<std::uint64_t> column;
  std::optional<std::string> text;
  std::optional<bool> cut;
  std::optional<std::uint64_t> count;
  std::optional<std::string> reason;
  static constexpr std::array required{"path", "type"};
  static constexpr std::array rules{
    json::field_rule{.name = "type", .one_of = "match|context|file|count|binary|skipped"},
    json::field_rule{.name = "column", .doc = "Of the first match, in bytes, from 1."},
    json::field_rule{.name = "cut", .doc = "The line was longer than `max_line_bytes`."}};
};
BOOST_DESCRIBE_STRUCT(grep_item, (), (path, type, line, column, text, cut, count, reason))

struct grep_view {
  std::vector<grep_item> items;
  std::uint64_t matches = 0;
  std::uint64_t files_searched = 0;
  std::uint64_t files_matched = 0;
  bool truncated = false;
  static constexpr std::array required{"items", "matches", "files_searched", "files_matched", "truncated"};
};
BOOST_DESCRIBE_STRUCT(grep_view, (), (items, matches, files_searched, files_matched, truncated))

struct edit_item {
  std::string old_text;
  std::string new_text;
  bool all = false;
  static constexpr std::array required{"old_text", "new_text"};
  static constexpr std::array rules{json::field_rule{.name = "old_text", .doc = "Must be there exactly once, unless `all`.", .min_length = 1},
                                    json::field_rule{.name = "all", .doc = "Replace every one."}};
};
BOOST_DESCRIBE_STRUCT(edit_item, (), (old_text, new_text, all))

struct edit_request {
  raw_name path;
  std::vector<edit_item> edits;
  std::optional<std::string> if_match;
  std::optional<std::string> op_id;
  static constexpr std::array required{"path", "edits"};
  static constexpr std::array rules{
    rules_of::path, json::field_rule{.name = "edits", .doc = "All of them or none.", .min_items = 1, .max_items = 1000},
    json::field_rule{.name = "if_match",
                     .doc = "SHA-256 that the file must have now.",
                     .min_length = 64,
                     .max_length = 64,
                     .pattern = "^[0-9a-f]{64}$"},
    json::field_rule{.name = "op_id",
                     .doc = "As of exec.",
                     .min_length = 1,
                     .max_length = 128,
                     .pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]*$",
                     .check = is_op_id,
                     .expected = "1 to 128 letters, digits, _, - and ., beginning with a letter or digit"}};
};
BOOST_DESCRIBE_STRUCT(edit_request, (), (path, edits, if_match, op_id))

struct edit_view {
  std::uint32_t replacements = 0;
  std::uint64_t size = 0;
  std::string sha256;
  static constexpr std::array required{"replacements", "size", "sha256"};
};
BOOST_DESCRIBE_STRUCT(edit_view, (), (replacements, size, sha256))

struct write_view {
  std::uint64_t size = 0;
  std::string sha256;
  bool created = false;
  static constexpr std::array required{"size", "sha256", "created"};
};
BOOST_DESCRIBE_STRUCT(write_view, (), (size, sha256, created))

} // namespace holt::protocols::api
