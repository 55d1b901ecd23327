#include "protocols/json_schema.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/string.hpp>

namespace holt::protocols::json {
namespace {

/// exec_request → ExecRequest.
std::string pascal_case(std::string_view full_type) {
  const std::size_t colon = full_type.rfind("::");
  if (colon != std::string_view::npos) {
    full_type.remove_prefix(colon + 2);
  }
  std::string out;
  bool upper = true;
  for (const char c : full_type) {
    if (c == '_') {
      upper = true;
      continue;
    }
    out += upper && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    upper = false;
  }
  return out;
}

object typed(const char* type, const field_rule& rule) {
  object out{{"type", type}};
  if (!rule.doc.empty()) {
    out["description"] = rule.doc;
  }
  return out;
}

void add_item_bounds(object& out, const field_rule& rule, const char* min, const char* max) {
  if (rule.min_items) {
    out[min] = *rule.min_items;
  }
  if (rule.max_items) {
    out[max] = *rule.max_items;
  }
}

/// What a rule says of each string inside an array or a map.
void add_inner_rule(value& items, const field_rule& rule) {
  object* inner = items.if_object();
  if (inner == nullptr || !inner->contains("type") || inner->at("type") != value("string")) {
    return;
  }
  field_rule of_items = rule;
  of_items.doc = {};
  items = detail::string_schema(of_items);
}

} // namespace

value schema_set::find(std::string_view full_type, direction way) const {
  const auto name = names_.find(std::pair(std::string(full_type), way));
  return name == names_.end() ? value(nullptr) : value(object{{"$ref", prefix_ + name->second}});
}

value schema_set::add(std::string_view full_type, direction way, value schema) {
  const std::string base = pascal_case(full_type);
  const auto taken_by_other_type = [&](const std::string& name) {
    return std::any_of(names_.begin(), names_.end(),
                       [&](const auto& entry) { return entry.second == name && entry.first.first != full_type; });
  };
  std::string name = base;
  if (const value* there = schemas_.if_contains(name); there != nullptr && *there != schema) {
    name += way == direction::input ? "Input" : "Output";
  }
  if (taken_by_other_type(base) || taken_by_other_type(name)) {
    throw std::logic_error("two types want the schema name " + name + "; one is " + std::string(full_type));
  }
  schemas_.emplace(name, std::move(schema));
  names_.emplace(std::pair(std::string(full_type), way), name);
  return object{{"$ref", prefix_ + name}};
}

namespace detail {

value bool_schema(const field_rule& rule) {
  return typed("boolean", rule);
}

value signed_schema(std::int64_t min, std::int64_t max, const field_rule& rule) {
  object out = typed("integer", rule);
  const bool wide = max == std::numeric_limits<std::int64_t>::max();
  if (wide) {
    out["format"] = "int64";
  }
  // The bounds of 64 bits are no information, and beyond what many readers of schemas can hold.
  if (rule.min || !wide) {
    out["minimum"] = std::max(min, rule.min.value_or(min));
  }
  if (rule.max || !wide) {
    out["maximum"] = std::min(max, rule.max.value_or(max));
  }
  return out;
}

value unsigned_schema(std::uint64_t max, const field_rule& rule) {
  object out = typed("integer", rule);
  const bool wide = max == std::numeric_limits<std::uint64_t>::max();
  if (wide) {
    out["format"] = "int64";
  }
  out["minimum"] = std::max<std::int64_t>(0, rule.min.value_or(0));
  if (rule.max) {
    out["maximum"] = std::min(max, static_cast<std::uint64_t>(std::max<std::int64_t>(0, *rule.max)));
  } else if (!wide) {
    out["maximum"] = max;
  }
  return out;
}

value double_schema(const field_rule& rule) {
  object out = typed("number", rule);
  if (rule.min) {
    out["minimum"] = *rule.min;
  }
  if (rule.max) {
    out["maximum"] = *rule.max;
  }
  return out;
}

value string_schema(const field_rule& rule) {
  object out = typed("string", rule);
  if (!rule.one_of.empty()) {
    array names;
    for (std::size_t begin = 0; begin <= rule.one_of.size();) {
      const std::size_t end = std::min(rule.one_of.find('|', begin), rule.one_of.size());
      names.emplace_back(rule.one_of.substr(begin, end - begin));
      begin = end + 1;
    }
    out["enum"] = std::move(names);
  }
  if (rule.min_length) {
    out["minLength"] = *rule.min_length;
  }
  if (rule.max_length) {
    out["maxLength"] = *rule.max_length;
  }
  if (!rule.pattern.empty()) {
    out["pattern"] = rule.pattern;
  } else if (rule.no_nul) {
    out["pattern"] = "^[^\\u0000]*$";
  }
  if (rule.secret) {
    out["format"] = "password";
  }
  return out;
}

value array_schema(value items, const field_rule& rule) {
  object out = typed("array", rule);
  add_inner_rule(items, rule);
  out["items"] = std::move(items);
  add_item_bounds(out, rule, "minItems", "maxItems");
  return out;
}

value map_schema(value items, const field_rule& rule) {
  object out = typed("object", rule);
  add_inner_rule(items, rule);
  out["additionalProperties"] = std::move(items);
  add_item_bounds(out, rule, "minProperties", "maxProperties");
  return out;
}

value enum_schema(const enum_name* names, std::size_t count, const field_rule& rule) {
  object out = typed("string", rule);
  array all;
  for (std::size_t i = 0; i < count; ++i) {
    all.emplace_back(names[i].name);
  }
  out["enum"] = std::move(all);
  return out;
}

value with_doc(value schema, std::string_view doc) {
  if (!doc.empty()) {
    schema.as_object()["description"] = doc;
  }
  return schema;
}

void struct_schema::add(std::string_view name, value schema, bool is_required) {
  properties.emplace(name, std::move(schema));
  if (is_required) {
    required.emplace_back(name);
  }
}

void struct_schema::add_default(std::string_view name, value initial) {
  const boost::json::string* text = initial.if_string();
  if (text != nullptr && text->empty()) {
    return; // nothing given, rather than the empty string
  }
  properties.at(name).as_object()["default"] = std::move(initial);
}

value struct_schema::finish(direction way, std::string_view doc) {
  object out{{"type", "object"}};
  if (!doc.empty()) {
    out["description"] = doc;
  }
  out["properties"] = std::move(properties);
  if (!required.empty()) {
    out["required"] = std::move(required);
  }
  if (way == direction::input) {
    out["additionalProperties"] = false;
  }
  return out;
}

} // namespace detail
} // namespace holt::protocols::json
