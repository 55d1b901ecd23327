#pragma once

#include <array>
#include <concepts>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/describe/class.hpp>
#include <boost/describe/enumerators.hpp>
#include <boost/describe/members.hpp>
#include <boost/mp11/algorithm.hpp>

#include "protocols/json.hpp"
#include "protocols/json_rules.hpp"

/// Described structs from JSON values: see json_rules.hpp for what a struct may demand. Every error says where, what is
/// wrong and what would be right. For agent_messages.hpp also include json_bytes.hpp. Pure: any thread.
namespace holt::protocols::json {
namespace detail {

/// Where reading is: a chain on the stack, made into a JSON pointer only for an error.
struct place {
  const place* parent = nullptr;
  std::string_view key{};
  std::size_t index = 0;
};

struct read_context {
  unknown_fields unknown;
  error failure{};
};

std::string pointer_of(const place& at);
/// Records the error and returns false, so that readers can `return fail(…)`.
bool fail(read_context& context, const place& at, std::string message);
bool fail_type(read_context& context, const place& at, std::string_view wanted, const value& found);

bool read_bool(const value& in, bool& out, const place& at, read_context& context);
bool read_signed(const value& in, std::int64_t& out, std::int64_t min, std::int64_t max, const field_rule& rule,
                 const place& at, read_context& context);
bool read_unsigned(const value& in, std::uint64_t& out, std::uint64_t max, const field_rule& rule, const place& at,
                   read_context& context);
bool read_double(const value& in, double& out, const field_rule& rule, const place& at, read_context& context);
bool read_string(const value& in, std::string& out, const field_rule& rule, const place& at, read_context& context);
/// The array or object behind `in`, with the number of its items checked; nullptr after an error.
const array* read_array(const value& in, const field_rule& rule, const place& at, read_context& context);
const object* read_map(const value& in, const field_rule& rule, const place& at, read_context& context);
bool check_key(std::string_view key, const field_rule& rule, const place& at, read_context& context);

struct enum_name {
  const char* name;
  std::int64_t number;
};
bool read_enum(const value& in, std::int64_t& out, const enum_name* names, std::size_t count, const place& at,
               read_context& context);

/// `in` as an object whose fields are all known, or unknown ones allowed; nullptr after an error.
const object* read_struct(const value& in, const std::string_view* known, std::size_t count, const char* kind,
                          const place& at, read_context& context);
bool fail_missing(read_context& context, const place& at, std::string_view field);

template <class T>
struct is_optional : std::false_type {};
template <class T>
struct is_optional<std::optional<T>> : std::true_type {};
template <class T>
struct is_vector : std::false_type {};
template <class T>
struct is_vector<std::vector<T>> : std::true_type {};
template <class T>
struct is_map : std::false_type {};
template <class T>
struct is_map<std::map<std::string, T>> : std::true_type {};

template <class T>
using members_of = boost::describe::describe_members<T, boost::describe::mod_public | boost::describe::mod_inherited>;

template <class E>
auto enum_names() {
  using all = boost::describe::describe_enumerators<E>;
  std::array<enum_name, boost::mp11::mp_size<all>::value> names{};
  std::size_t i = 0;
  boost::mp11::mp_for_each<all>([&](auto d) {
    names[i++] = {d.name, static_cast<std::int64_t>(static_cast<E>(d.value))};
  });
  return names;
}

template <class T>
bool read_into(const value& in, T& out, const field_rule& rule, const place& at, read_context& context) {
  if constexpr (has_custom<T>) {
    return custom<T>::read(in, out, at, context);
  } else if constexpr (std::is_same_v<T, bool>) {
    return read_bool(in, out, at, context);
  } else if constexpr (std::signed_integral<T>) {
    std::int64_t number = 0;
    if (!read_signed(in, number, std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), rule, at, context)) {
      return false;
    }
    out = static_cast<T>(number);
    return true;
  } else if constexpr (std::unsigned_integral<T>) {
    std::uint64_t number = 0;
    if (!read_unsigned(in, number, std::numeric_limits<T>::max(), rule, at, context)) {
      return false;
    }
    out = static_cast<T>(number);
    return true;
  } else if constexpr (std::is_same_v<T, double>) {
    return read_double(in, out, rule, at, context);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return read_string(in, out, rule, at, context);
  } else if constexpr (std::is_same_v<T, value>) {
    out = in;
    return true;
  } else if constexpr (is_optional<T>::value) {
    if (in.is_null()) {
      out.reset();
      return true;
    }
    return read_into(in, out.emplace(), rule, at, context);
  } else if constexpr (is_vector<T>::value) {
    const array* items = read_array(in, rule, at, context);
    if (items == nullptr) {
      return false;
    }
    out.clear();
    out.reserve(items->size());
    for (std::size_t i = 0; i < items->size(); ++i) {
      typename T::value_type item{};
      if (!read_into((*items)[i], item, rule, place{&at, {}, i}, context)) {
        return false;
      }
      out.push_back(std::move(item));
    }
    return true;
  } else if constexpr (is_map<T>::value) {
    const object* items = read_map(in, rule, at, context);
    if (items == nullptr) {
      return false;
    }
    out.clear();
    for (const auto& item : *items) {
      const std::string_view key{item.key().data(), item.key().size()};
      const place inside{&at, key, 0};
      if (!check_key(key, rule, inside, context)
          || !read_into(item.value(), out[std::string(key)], rule, inside, context)) {
        return false;
      }
    }
    return true;
  } else if constexpr (std::is_enum_v<T>) {
    static_assert(boost::describe::has_describe_enumerators<T>::value, "an enum needs BOOST_DESCRIBE_ENUM");
    const auto names = enum_names<T>();
    std::int64_t number = 0;
    if (!read_enum(in, number, names.data(), names.size(), at, context)) {
      return false;
    }
    out = static_cast<T>(number);
    return true;
  } else {
    static_assert(boost::describe::has_describe_members<T>::value,
                  "a struct needs BOOST_DESCRIBE_STRUCT; raw_name needs json_bytes.hpp");
    using all = members_of<T>;
    constexpr std::size_t count = boost::mp11::mp_size<all>::value;
    std::array<std::string_view, count> known{};
    std::size_t i = 0;
    boost::mp11::mp_for_each<all>([&](auto d) { known[i++] = d.name; });
    const char* kind = nullptr;
    if constexpr (has_kind<T>) {
      kind = T::kind;
    }
    const object* fields = read_struct(in, known.data(), count, kind, at, context);
    if (fields == nullptr) {
      return false;
    }
    bool good = true;
    boost::mp11::mp_for_each<all>([&](auto d) {
      if (!good) {
        return;
      }
      const std::string_view name = d.name;
      const value* field = fields->if_contains(name);
      if (field != nullptr) {
        good = read_into(*field, out.*d.pointer, rule_of<T>(name), place{&at, name, 0}, context);
      } else if (is_required<T>(name)) {
        good = fail_missing(context, at, name);
      }
    });
    return good;
  }
}

} // namespace detail

template <class T>
tl::expected<T, error> read(const value& in, unknown_fields unknown = unknown_fields::refuse) {
  T out{};
  detail::read_context context{unknown};
  if (!detail::read_into(in, out, detail::no_rule, detail::place{}, context)) {
    return tl::unexpected(std::move(context.failure));
  }
  return out;
}

template <class T>
tl::expected<T, error> read_text(std::string_view text, unknown_fields unknown = unknown_fields::refuse,
                                 const text_limits& limits = {}) {
  const auto in = parse_text(text, limits);
  if (!in) {
    return tl::unexpected(in.error());
  }
  return read<T>(*in, unknown);
}

/// The `kind` of a control message; "" when it has none.
std::string_view kind_of(const value& message);

/// Of `known`, the name that `wrong` was probably meant to be; "" when none is near.
std::string_view nearest(std::string_view wrong, const std::string_view* known, std::size_t count);

} // namespace holt::protocols::json
