#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

/// What a described struct may say about its fields beyond their types. Reading enforces it, the schema shows it.
///
///     struct exec_request {
///       std::optional<std::string> command;
///       std::string network = "none";
///       std::uint32_t timeout_ms = 0;
///       static constexpr std::array required{"network"};
///       static constexpr std::array rules{
///         json::field_rule{.name = "command", .doc = "For the shell.", .max_length = 65536, .no_nul = true},
///         json::field_rule{.name = "network", .doc = "What it reaches.", .one_of = "none|egress|host"}};
///     };
///     BOOST_DESCRIBE_STRUCT(exec_request, (), (command, network, timeout_ms))
///
/// Without `required` nothing is required and the members' initial values are the defaults. An optional member may also
/// be null, which is the same as absent. `doc` (a static constexpr std::string_view) describes the struct itself.
namespace holt::protocols::json {

struct field_rule {
  std::string_view name{};
  /// One sentence for the schema.
  std::string_view doc{};
  /// Of numbers.
  std::optional<std::int64_t> min{};
  std::optional<std::int64_t> max{};
  /// Of strings, in characters; also of each string in an array or a map.
  std::optional<std::size_t> min_length{};
  std::optional<std::size_t> max_length{};
  /// Of arrays and maps.
  std::optional<std::size_t> min_items{};
  std::optional<std::size_t> max_items{};
  /// The allowed strings: "none|egress|host".
  std::string_view one_of{};
  /// For the schema (ECMA-262). Not enforced by reading: give `check` too.
  std::string_view pattern{};
  /// Refuses a string by returning false; `expected` completes "must be …".
  bool (*check)(std::string_view) = nullptr;
  std::string_view expected{};
  /// Refuses strings and map keys with a NUL inside.
  bool no_nul = false;
  /// Shown in the schema and left out of logs' and documents' examples.
  bool secret = false;
};

namespace detail {

// A trait is a static member; a described (data) member of the same name is none.
template <class T>
concept has_kind = requires {
  requires std::is_same_v<decltype(&T::kind), const char* const*>;
};
template <class T>
concept has_required = requires {
  &T::required;
  requires !std::is_member_pointer_v<decltype(&T::required)>;
};
template <class T>
concept has_rules = requires {
  &T::rules;
  requires !std::is_member_pointer_v<decltype(&T::rules)>;
};
template <class T>
concept has_doc = requires {
  &T::doc;
  requires !std::is_member_pointer_v<decltype(&T::doc)>;
};

template <class T>
constexpr bool is_required(std::string_view field) {
  if constexpr (has_required<T>) {
    for (const std::string_view name : T::required) {
      if (name == field) {
        return true;
      }
    }
  }
  return false;
}

inline constexpr field_rule no_rule{};

template <class T>
constexpr const field_rule& rule_of(std::string_view field) {
  if constexpr (has_rules<T>) {
    for (const field_rule& rule : T::rules) {
      if (rule.name == field) {
        return rule;
      }
    }
  }
  return no_rule;
}

} // namespace detail

/// How a type that is not a described struct crosses JSON. A specialisation has
///   static bool read(const value&, T&, const detail::place&, detail::read_context&);
///   static value to_value(const T&);
///   static value schema();
template <class T>
struct custom;

template <class T>
concept has_custom = requires(const T& t) {
  custom<T>::to_value(t);
};

} // namespace holt::protocols::json
