#include "protocols/json_text_simdjson.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/string.hpp>

#include <simdjson.h>

#include "protocols/json_text_parser.hpp"
#include "protocols/utf8.hpp"

namespace holt::protocols::json {
namespace detail {
namespace {

/// A parser that has once read a large text gives its memory back.
constexpr std::size_t kept_capacity = 64 * 1024;

struct converter {
  unsigned max_depth;
  /// Only escapes can bring in what the check of the whole text did not see.
  bool has_escapes;
  simdjson_verdict verdict = simdjson_verdict::good;

  bool stop(simdjson_verdict what) {
    verdict = what;
    return false;
  }

  bool string(std::string_view text, boost::json::string& out) {
    if (has_escapes && !utf8::valid(text)) {
      return stop(simdjson_verdict::refused);
    }
    out.assign(text.data(), text.size());
    return true;
  }

  bool convert(simdjson::dom::element in, value& out, unsigned depth) {
    using simdjson::dom::element_type;
    switch (in.type()) {
    case element_type::NULL_VALUE:
      out.emplace_null();
      return true;
    case element_type::BOOL:
      out.emplace_bool() = in.get_bool().value_unsafe();
      return true;
    case element_type::INT64:
      out.emplace_int64() = in.get_int64().value_unsafe();
      return true;
    case element_type::UINT64:
      out.emplace_uint64() = in.get_uint64().value_unsafe();
      return true;
    case element_type::DOUBLE:
      out.emplace_double() = in.get_double().value_unsafe();
      return true;
    case element_type::STRING:
      return string(in.get_string().value_unsafe(), out.emplace_string());
    case element_type::ARRAY: {
      if (depth > max_depth) {
        return stop(simdjson_verdict::too_deep);
      }
      const simdjson::dom::array items = in.get_array().value_unsafe();
      array& list = out.emplace_array();
      list.reserve(items.size());
      for (const simdjson::dom::element item : items) {
        if (!convert(item, list.emplace_back(nullptr), depth + 1)) {
          return false;
        }
      }
      return true;
    }
    case element_type::OBJECT: {
      if (depth > max_depth) {
        return stop(simdjson_verdict::too_deep);
      }
      const simdjson::dom::object items = in.get_object().value_unsafe();
      object& fields = out.emplace_object();
      fields.reserve(items.size());
      for (const simdjson::dom::key_value_pair item : items) {
        if (has_escapes && !utf8::valid(item.key)) {
          return stop(simdjson_verdict::refused);
        }
        const auto [place, fresh] = fields.emplace(boost::json::string_view(item.key.data(), item.key.size()), nullptr);
        if (!fresh) {
          return stop(simdjson_verdict::duplicate);
        }
        if (!convert(item.value, place->value(), depth + 1)) {
          return false;
        }
      }
      return true;
    }
    }
    return stop(simdjson_verdict::refused);
  }
};

} // namespace

simdjson_result parse_with_simdjson(std::string_view text, unsigned max_depth) {
  thread_local simdjson::dom::parser parser;
  simdjson::dom::element root;
  const simdjson::error_code problem = parser.parse(text.data(), text.size()).get(root);
  simdjson_result result{simdjson_verdict::good};
  if (problem == simdjson::NUMBER_ERROR) {
    result.verdict = simdjson_verdict::number_range;
  } else if (problem == simdjson::DEPTH_ERROR) {
    result.verdict = simdjson_verdict::too_deep;
  } else if (problem != simdjson::SUCCESS) {
    result.verdict = simdjson_verdict::refused;
  } else {
    converter convert{max_depth, text.find('\\') != std::string_view::npos};
    convert.convert(root, result.json, 1);
    result.verdict = convert.verdict;
  }
  if (parser.capacity() > kept_capacity) {
    parser = simdjson::dom::parser();
  }
  return result;
}

} // namespace detail

tl::expected<value, error> parse_text(std::string_view text, const text_limits& limits) {
  if (text.size() > limits.max_bytes) {
    return tl::unexpected(detail::too_long(text.size(), limits.max_bytes));
  }
  detail::simdjson_result result = detail::parse_with_simdjson(text, limits.max_depth);
  if (result.verdict == detail::simdjson_verdict::good) {
    return std::move(result.json);
  }
  // simdjson says that the text is wrong; the other parser says where. It also reads what only simdjson refuses.
  return detail::parse_with_boost(text, limits);
}

} // namespace holt::protocols::json
