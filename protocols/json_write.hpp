#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

#include "protocols/json_read.hpp"

/// Described structs as JSON: fields in declaration order, empty optionals left out, integers exact, strings valid
/// UTF-8 (what isn't is repaired to U+FFFD). Pure: any thread.
namespace holt::protocols::json {
namespace detail {

/// `"…"` with escapes, repaired where it isn't UTF-8.
void append_string(std::string& out, std::string_view text);
/// The shortest text that reads back as the same double; null when it isn't finite.
void append_double(std::string& out, double number);
void append_value(std::string& out, const value& json);

template <std::integral Number>
void append_integer(std::string& out, Number number) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, number);
  out.append(digits, end.ptr);
}

template <class E>
const char* enum_text(E number) {
  const char* text = "";
  boost::mp11::mp_for_each<boost::describe::describe_enumerators<E>>([&](auto d) {
    if (d.value == number) {
      text = d.name;
    }
  });
  return text;
}

template <class T>
void append(std::string& out, const T& in);

/// The fields of a described struct, each with a comma before it unless `first`.
template <class T>
void append_fields(std::string& out, const T& in, bool first) {
  boost::mp11::mp_for_each<members_of<T>>([&](auto d) {
    const auto& field = in.*d.pointer;
    if constexpr (is_optional<std::remove_cvref_t<decltype(field)>>::value) {
      if (!field) {
        return;
      }
    }
    // A member's name is an identifier: nothing in it needs an escape.
    out += first ? "\"" : ",\"";
    out += d.name;
    out += "\":";
    append(out, field);
    first = false;
  });
}

template <class T>
void append(std::string& out, const T& in) {
  if constexpr (has_custom<T>) {
    append_value(out, custom<T>::to_value(in));
  } else if constexpr (std::is_same_v<T, bool>) {
    out += in ? "true" : "false";
  } else if constexpr (std::integral<T>) {
    append_integer(out, in);
  } else if constexpr (std::is_same_v<T, double>) {
    append_double(out, in);
  } else if constexpr (std::is_same_v<T, std::string>) {
    append_string(out, in);
  } else if constexpr (std::is_same_v<T, value>) {
    append_value(out, in);
  } else if constexpr (is_optional<T>::value) {
    if (in) {
      append(out, *in);
    } else {
      out += "null";
    }
  } else if constexpr (is_vector<T>::value) {
    out += '[';
    bool first = true;
    for (const auto& item : in) {
      if (!first) {
        out += ',';
      }
      append(out, item);
      first = false;
    }
    out += ']';
  } else if constexpr (is_map<T>::value) {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : in) {
      if (!first) {
        out += ',';
      }
      append_string(out, key);
      out += ':';
      append(out, item);
      first = false;
    }
    out += '}';
  } else if constexpr (std::is_enum_v<T>) {
    append_string(out, enum_text(in));
  } else {
    static_assert(boost::describe::has_describe_members<T>::value,
                  "a struct needs BOOST_DESCRIBE_STRUCT; raw_name needs json_bytes.hpp");
    out += '{';
    append_fields(out, in, true);
    out += '}';
  }
}

} // namespace detail

/// JSON text of a described struct (or of anything that a member of one may be).
template <class T>
std::string write(const T& in) {
  std::string out;
  detail::append(out, in);
  return out;
}

/// The same as a value.
template <class T>
value to_value(const T& in) {
  if constexpr (has_custom<T>) {
    return custom<T>::to_value(in);
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, double> || std::is_same_v<T, value>) {
    return value(in);
  } else if constexpr (std::signed_integral<T>) {
    return value(std::int64_t{in});
  } else if constexpr (std::unsigned_integral<T>) {
    return value(std::uint64_t{in});
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value(boost::json::string(in));
  } else if constexpr (detail::is_optional<T>::value) {
    return in ? to_value(*in) : value(nullptr);
  } else if constexpr (detail::is_vector<T>::value) {
    array out;
    out.reserve(in.size());
    for (const auto& item : in) {
      out.push_back(to_value(item));
    }
    return out;
  } else if constexpr (detail::is_map<T>::value) {
    object out;
    out.reserve(in.size());
    for (const auto& [key, item] : in) {
      out.emplace(key, to_value(item));
    }
    return out;
  } else if constexpr (std::is_enum_v<T>) {
    return value(detail::enum_text(in));
  } else {
    static_assert(boost::describe::has_describe_members<T>::value,
                  "a struct needs BOOST_DESCRIBE_STRUCT; raw_name needs json_bytes.hpp");
    object out;
    boost::mp11::mp_for_each<detail::members_of<T>>([&](auto d) {
      const auto& field = in.*d.pointer;
      if constexpr (detail::is_optional<std::remove_cvref_t<decltype(field)>>::value) {
        if (!field) {
          return;
        }
      }
      out.emplace(d.name, to_value(field));
    });
    return out;
  }
}

/// The payload of a control frame: `{"kind": T::kind, …}`.
template <class T>
std::string write_control(const T& message) {
  static_assert(detail::has_kind<T>, "a control message has a static `kind`");
  std::string out = "{\"kind\":\"";
  out += T::kind;
  out += '"';
  detail::append_fields(out, message, false);
  out += '}';
  return out;
}

} // namespace holt::protocols::json
