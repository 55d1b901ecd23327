#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "protocols/json_read.hpp"
#include "protocols/json_write.hpp"

/// JSON Schema 2020-12 of described structs, from the same descriptions and rules that reading uses. Pure: any thread.
namespace holt::protocols::json {

/// Input: what read() accepts with unknown fields refused. Output: what write() makes; every field that is not optional
/// is there, and a client must expect more fields from a newer server.
enum class direction { input, output };

/// Schemas by name, for documents that refer to them: `components/schemas` of OpenAPI.
class schema_set {
public:
  explicit schema_set(std::string prefix = "#/components/schemas/") : prefix_(std::move(prefix)) {
  }

  /// The schemas so far, in the order in which they were first needed.
  const object& schemas() const {
    return schemas_;
  }

  /// A reference to the schema of this type, or null when it isn't there yet.
  value find(std::string_view full_type, direction way) const;
  /// Adds it and answers the reference. Its name is the type's, in PascalCase; one type that differs by direction gets
  /// two ("Input", "Output" appended to the second). Throws std::logic_error when two types claim one name.
  value add(std::string_view full_type, direction way, value schema);

private:
  std::string prefix_;
  object schemas_;
  std::map<std::pair<std::string, direction>, std::string, std::less<>> names_;
};

namespace detail {

value bool_schema(const field_rule& rule);
/// min and max are the type's own.
value signed_schema(std::int64_t min, std::int64_t max, const field_rule& rule);
value unsigned_schema(std::uint64_t max, const field_rule& rule);
value double_schema(const field_rule& rule);
value string_schema(const field_rule& rule);
value array_schema(value items, const field_rule& rule);
value map_schema(value items, const field_rule& rule);
value enum_schema(const enum_name* names, std::size_t count, const field_rule& rule);
/// `rule`'s sentence on a schema that was made elsewhere.
value with_doc(value schema, std::string_view doc);

struct struct_schema {
  object properties{};
  array required{};
  void add(std::string_view name, value schema, bool is_required);
  /// `initial` is the member's initial value; shown when it says something.
  void add_default(std::string_view name, value initial);
  value finish(direction way, std::string_view doc);
};

/// The type's name as the compiler spells it.
template <class T>
constexpr std::string_view full_type_name() {
  std::string_view name = __PRETTY_FUNCTION__;
  name.remove_prefix(name.find("T = ") + 4);
  return name.substr(0, name.find_first_of(";]"));
}

template <class T>
inline constexpr bool has_plain_default =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>;

template <class T>
value schema_of(schema_set* set, direction way, const field_rule& rule);

template <class T>
value schema_of_struct(schema_set* set, direction way) {
  struct_schema out;
  const T initial{};
  boost::mp11::mp_for_each<members_of<T>>([&](auto d) {
    using member = std::remove_cvref_t<decltype(initial.*d.pointer)>;
    const bool needed = way == direction::input ? is_required<T>(d.name) : !is_optional<member>::value;
    out.add(d.name, schema_of<member>(set, way, rule_of<T>(d.name)), needed);
    if constexpr (has_plain_default<member>) {
      if (way == direction::input && !needed) {
        out.add_default(d.name, to_value(initial.*d.pointer));
      }
    }
  });
  std::string_view doc;
  if constexpr (has_doc<T>) {
    doc = T::doc;
  }
  return out.finish(way, doc);
}

template <class T>
value schema_of(schema_set* set, direction way, const field_rule& rule) {
  if constexpr (has_custom<T>) {
    return with_doc(custom<T>::schema(), rule.doc);
  } else if constexpr (std::is_same_v<T, bool>) {
    return bool_schema(rule);
  } else if constexpr (std::signed_integral<T>) {
    return signed_schema(std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), rule);
  } else if constexpr (std::unsigned_integral<T>) {
    return unsigned_schema(std::numeric_limits<T>::max(), rule);
  } else if constexpr (std::is_same_v<T, double>) {
    return double_schema(rule);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return string_schema(rule);
  } else if constexpr (std::is_same_v<T, value>) {
    return with_doc(object{}, rule.doc);
  } else if constexpr (is_optional<T>::value) {
    return schema_of<typename T::value_type>(set, way, rule);
  } else if constexpr (is_vector<T>::value) {
    return array_schema(schema_of<typename T::value_type>(set, way, no_rule), rule);
  } else if constexpr (is_map<T>::value) {
    return map_schema(schema_of<typename T::mapped_type>(set, way, no_rule), rule);
  } else if constexpr (std::is_enum_v<T>) {
    const auto names = enum_names<T>();
    return enum_schema(names.data(), names.size(), rule);
  } else if (set == nullptr) {
    return with_doc(schema_of_struct<T>(nullptr, way), rule.doc);
  } else {
    value ref = set->find(full_type_name<T>(), way);
    if (ref.is_null()) {
      ref = set->add(full_type_name<T>(), way, schema_of_struct<T>(set, way));
    }
    return with_doc(std::move(ref), rule.doc);
  }
}

} // namespace detail

/// The whole schema in itself: for a tool's parameters.
template <class T>
value schema(direction way = direction::input) {
  return detail::schema_of<T>(nullptr, way, detail::no_rule);
}

/// A reference into `set`, which then has the schema of T and of all that it uses.
template <class T>
value schema_ref(schema_set& set, direction way) {
  return detail::schema_of<T>(&set, way, detail::no_rule);
}

} // namespace holt::protocols::json
