#include "runtime/cli/env_commands.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "protocols/json.hpp"
#include "runtime/cli/copy_command.hpp"
#include "runtime/cli/local_file.hpp"
#include "runtime/cli/transfer.hpp"
#include "runtime/cli/units.hpp"

namespace holt::runtime::cli {

namespace json = protocols::json;
using namespace std::chrono_literals;

namespace {

result<int> print(const std::string& text) {
  if (auto ec = write_all(1, text))
    return fail(exit_refused, "cannot write the output (" + ec.message() + ")");
  return exit_ok;
}

result<int> print_json(const boost::json::value& value) {
  return print(json::write_text(value) + '\n');
}

/// What comes from an environment or another person must not draw on the terminal.
std::string plain(std::string_view text) {
  std::string shown;
  for (unsigned char c : text)
    shown += c < ' ' || c == 127 ? '?' : static_cast<char>(c);
  return shown;
}

const boost::json::value* member(const boost::json::value& value, std::string_view key) {
  return value.is_object() ? value.get_object().if_contains(key) : nullptr;
}

std::string status_of(const boost::json::value& environment) {
  const auto* instance = member(environment, "instance");
  if (!instance)
    return "no instance";
  if (text_at(*instance, "fs_status") == "lost")
    return "files lost";
  return plain(text_at(*instance, "status"));
}

/// Columns as wide as their widest cell; the last one as it comes.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 < row.size())
        text.append(widths[i] - row[i].size() + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

struct remote_path {
  std::string environment_id;
  std::string path;
};

result<remote_path> find_path(api& server, const std::string& place) {
  auto parsed = parse_copy_place(place);
  if (!parsed.environment)
    parsed = {parsed.path, ""};
  auto id = server.find_environment(*parsed.environment);
  if (!id)
    return tl::unexpected(id.error());
  auto path = server.absolute_path(*id, parsed.path);
  if (!path)
    return tl::unexpected(path.error());
  return remote_path{*id, *path};
}

} // namespace

result<int> create_environment(api& server, const create_options& options, bool as_json) {
  json::object body;
  auto put = [](json::object& object, const char* key, const auto& value) {
    if (value)
      object[key] = *value;
  };
  put(body, "name", options.name);
  put(body, "kind", options.kind);
  put(body, "image", options.image);
  put(body, "network", options.network);
  put(body, "suspend_after_ms", options.suspend_after_ms);
  put(body, "destroy_after_ms", options.destroy_after_ms);
  json::object limits;
  put(limits, "memory_bytes", options.memory_bytes);
  put(limits, "disk_bytes", options.disk_bytes);
  put(limits, "processes", options.processes);
  put(limits, "cpus", options.cpus);
  if (!limits.empty())
    body["limits"] = std::move(limits);
  if (!options.labels.empty()) {
    json::object labels;
    for (const auto& [name, value] : options.labels)
      labels[name] = value;
    body["labels"] = std::move(labels);
  }
  auto created = server.post("/v1/environments", body);
  if (!created)
    return tl::unexpected(created.error());
  return as_json ? print_json(*created) : print(plain(text_at(*created, "id")) + '\n');
}

result<int> list_environments(api& server, const std::map<std::string, std::string>& labels, bool as_json) {
  std::string filter;
  for (const auto& [name, value] : labels)
    filter += "&label=" + percent_encode(name + '=' + value, false);
  json::array all;
  std::string cursor;
  do {
    auto page = server.get("/v1/environments?limit=100" + filter
                           + (cursor.empty() ? "" : "&cursor=" + percent_encode(cursor, false)));
    if (!page)
      return tl::unexpected(page.error());
    const auto* items = member(*page, "items");
    if (!items || !items->is_array())
      return fail(exit_bug, "the list of environments is not as this client knows it; is it of the server's version?");
    all.insert(all.end(), items->get_array().begin(), items->get_array().end());
    cursor = text_at(*page, "next_cursor");
  } while (!cursor.empty());
  if (as_json)
    return print_json(json::object{{"items", std::move(all)}});
  if (all.empty())
    return exit_ok;
  std::vector<std::vector<std::string>> rows{{"ID", "NAME", "KIND", "STATUS", "CREATED"}};
  for (const auto& item : all)
    rows.push_back({plain(text_at(item, "id")), plain(text_at(item, "name")), plain(text_at(item, "kind")),
                    status_of(item), plain(text_at(item, "created_at"))});
  return print(table(rows));
}

result<int> show_environment(api& server, const std::string& environment, bool as_json) {
  auto id = server.find_environment(environment);
  if (!id)
    return tl::unexpected(id.error());
  auto shown = server.get("/v1/environments/" + *id);
  if (!shown)
    return tl::unexpected(shown.error());
  if (as_json)
    return print_json(*shown);
  std::vector<std::vector<std::string>> rows;
  if (shown->is_object()) {
    for (const auto& [key, value] : shown->get_object()) {
      if (value.is_object()) {
        for (const auto& [inner, deep] : value.get_object())
          rows.push_back({std::string(key) + '.' + plain(inner),
                          deep.is_string() ? plain(deep.get_string()) : json::write_text(deep)});
      } else {
        rows.push_back({std::string(key), value.is_string() ? plain(value.get_string()) : json::write_text(value)});
      }
    }
  }
  return print(table(rows));
}

result<int> delete_environment(api& server, const std::string& environment, bool wait, bool as_json) {
  auto id = server.find_environment(environment);
  if (!id)
    return tl::unexpected(id.error());
  auto operation = server.remove("/v1/environments/" + *id);
  if (!operation)
    return tl::unexpected(operation.error());
  auto operation_id = std::string(text_at(*operation, "id"));
  // It waits for running commands, up to ten minutes (spec 27).
  auto end = std::chrono::steady_clock::now() + 11min;
  auto pause = 20ms;
  while (wait && !operation_id.empty() && text_at(*operation, "status") == "running"
         && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::milliseconds>(pause * 2, 1s);
    auto polled = server.get("/v1/operations/" + percent_encode(operation_id, false));
    if (!polled)
      return tl::unexpected(polled.error());
    operation = std::move(polled);
  }
  if (as_json)
    if (auto printed = print_json(*operation); !printed)
      return printed;
  if (text_at(*operation, "status") == "failed")
    return fail(exit_unavailable, "the environment is gone from the list, but its files could not be removed yet ("
                                      + plain(text_at(*operation, "error")) + "); the server tries again by itself");
  return exit_ok;
}

result<int> change_environment(api& server, const std::string& environment, const std::string& action, bool as_json) {
  auto id = server.find_environment(environment);
  if (!id)
    return tl::unexpected(id.error());
  auto changed = server.post("/v1/environments/" + *id + '/' + action, json::object{});
  if (!changed)
    return tl::unexpected(changed.error());
  return as_json ? print_json(*changed) : exit_ok;
}

result<int> list_files(api& server, const std::string& place, bool details, bool as_json) {
  auto found = find_path(server, place);
  if (!found)
    return tl::unexpected(found.error());
  auto list = server.post("/v1/environments/" + found->environment_id + "/fs/list",
                          json::object{{"path", name_to_json(found->path)}, {"limit", 100000}});
  if (!list)
    return tl::unexpected(list.error());
  if (as_json)
    return print_json(*list);
  const auto* items = member(*list, "items");
  if (!items || !items->is_array())
    return fail(exit_bug, "a directory's list is not as this client knows it; is it of the server's version?");
  std::vector<std::vector<std::string>> rows;
  for (const auto& item : items->get_array()) {
    const auto* raw = member(item, "name");
    auto name = plain(raw ? name_from_json(*raw).value_or("?") : "?");
    if (text_at(item, "type") == "directory")
      name += '/';
    if (!details) {
      rows.push_back({name});
      continue;
    }
    if (const auto* target = member(item, "target"))
      name += " -> " + plain(name_from_json(*target).value_or("?"));
    const auto* size = member(item, "size");
    rows.push_back({plain(text_at(item, "type")), plain(text_at(item, "mode")), size ? json::write_text(*size) : "",
                    plain(text_at(item, "modified_at")), name});
  }
  auto printed = print(table(rows));
  if (const auto* truncated = member(*list, "truncated");
      printed && truncated && truncated->is_bool() && truncated->get_bool())
    return fail(exit_refused, "the directory has more than 100,000 entries; the rest is not shown");
  return printed;
}

result<int> print_files(api& server, const std::vector<std::string>& places) {
  for (const auto& place : places) {
    auto found = find_path(server, place);
    if (!found)
      return tl::unexpected(found.error());
    if (auto printed = print_file(server, found->environment_id, found->path, 1); !printed)
      return tl::unexpected(printed.error());
  }
  return exit_ok;
}

result<int> remove_files(api& server, const std::vector<std::string>& places, bool recursive, bool as_json) {
  json::array removed;
  for (const auto& place : places) {
    auto parsed = parse_copy_place(place);
    if (!parsed.environment || parsed.path.empty())
      return fail(
          exit_usage,
          place + " names no file; it must be like ENV:/path or ENV:path (holt env delete deletes an environment)");
    auto found = find_path(server, place);
    if (!found)
      return tl::unexpected(found.error());
    auto gone = server.remove(files_target(found->environment_id, found->path) + (recursive ? "?recursive=true" : ""));
    if (!gone)
      return fail(gone.error().code, found->path + ": " + gone.error().message);
    removed.emplace_back(name_to_json(found->path));
  }
  return as_json ? print_json(json::object{{"removed", std::move(removed)}}) : exit_ok;
}

} // namespace holt::runtime::cli
