#include "runtime/providers/instance_record.hpp"

#include <algorithm>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

namespace holt::providers {

namespace json = boost::json;

namespace {

const json::value* find(const json::object& object, const char* name) {
  return object.if_contains(name);
}

std::optional<std::uint64_t> number(const json::object& object, const char* name) {
  const auto* value = find(object, name);
  if (value == nullptr)
    return std::nullopt;
  if (const auto* small = value->if_int64(); small != nullptr && *small >= 0)
    return static_cast<std::uint64_t>(*small);
  if (const auto* large = value->if_uint64())
    return *large;
  return std::nullopt;
}

std::string text(const json::object& object, const char* name) {
  const auto* value = find(object, name);
  const auto* string = value == nullptr ? nullptr : value->if_string();
  return string == nullptr ? std::string() : std::string(*string);
}

bool flag(const json::object& object, const char* name) {
  const auto* value = find(object, name);
  return value != nullptr && value->is_bool() && value->get_bool();
}

json::object process(const process_identity& identity) {
  return {{"pid", identity.pid}, {"start_time", identity.start_time}};
}

process_identity process(const json::object& object, const char* name) {
  const auto* value = find(object, name);
  if (value == nullptr || !value->is_object())
    return {};
  return {static_cast<pid_t>(number(value->get_object(), "pid").value_or(0)),
          number(value->get_object(), "start_time").value_or(0)};
}

std::optional<json::object> parse_object(const std::string& text) {
  json::error_code error;
  auto value = json::parse(text, error);
  if (error || !value.is_object())
    return std::nullopt;
  return std::move(value.get_object());
}

} // namespace

std::string write_record(const instance_record& record) {
  json::array cgroups;
  for (const auto& place : record.cgroups)
    cgroups.push_back(json::object{{"kind", place.kind}, {"path", place.path}});
  return json::serialize(json::object{{"agent", process(record.agent)},
                                      {"boot", record.boot},
                                      {"cgroups", std::move(cgroups)},
                                      {"created_at", record.created_at},
                                      {"file_system", record.file_system},
                                      {"generation", record.generation},
                                      {"launcher", process(record.launcher)},
                                      {"network", record.network},
                                      {"started", record.started},
                                      {"stopped", record.stopped}});
}

std::optional<instance_record> read_record(const std::string& content) {
  const auto object = parse_object(content);
  if (!object)
    return std::nullopt;
  const auto generation = number(*object, "generation");
  const auto created_at = number(*object, "created_at");
  if (!generation || !created_at)
    return std::nullopt;
  instance_record record;
  record.generation = *generation;
  record.created_at = static_cast<std::int64_t>(*created_at);
  record.boot = text(*object, "boot");
  record.started = flag(*object, "started");
  record.stopped = flag(*object, "stopped");
  record.file_system = text(*object, "file_system");
  record.network = text(*object, "network");
  record.agent = process(*object, "agent");
  record.launcher = process(*object, "launcher");
  if (const auto* cgroups = find(*object, "cgroups"); cgroups != nullptr && cgroups->is_array()) {
    for (const auto& place : cgroups->get_array()) {
      if (place.is_object())
        record.cgroups.push_back({text(place.get_object(), "kind"), text(place.get_object(), "path")});
    }
  }
  return record;
}

std::string write_handle(const instance_handle& handle) {
  return json::serialize(json::object{{"environment", handle.environment}, {"generation", handle.generation}});
}

std::optional<instance_handle> read_handle(const std::string& content) {
  const auto object = parse_object(content);
  if (!object)
    return std::nullopt;
  instance_handle handle{text(*object, "environment"), number(*object, "generation").value_or(0)};
  if (!is_valid_name(handle.environment))
    return std::nullopt;
  return handle;
}

bool is_valid_name(const std::string& id) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !id.empty() && id.size() <= 100 && id.front() != '-' && std::all_of(id.begin(), id.end(), allowed);
}

} // namespace holt::providers
