#include "protocols/json_canonical.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "protocols/json_write.hpp"

namespace holt::protocols::json {
namespace {

void append_number(std::string& out, double number) {
  constexpr double exact = 9007199254740992.0; // 2^53
  if (std::trunc(number) == number && std::abs(number) <= exact) {
    detail::append_integer(out, static_cast<std::int64_t>(number));
  } else {
    detail::append_double(out, number);
  }
}

void append_sorted(std::string& out, const value& json) {
  if (const double* number = json.if_double()) {
    append_number(out, *number);
  } else if (const array* items = json.if_array()) {
    out += '[';
    for (std::size_t i = 0; i < items->size(); ++i) {
      out += i == 0 ? "" : ",";
      append_sorted(out, (*items)[i]);
    }
    out += ']';
  } else if (const object* fields = json.if_object()) {
    std::vector<const boost::json::key_value_pair*> sorted;
    sorted.reserve(fields->size());
    for (const auto& field : *fields) {
      sorted.push_back(&field);
    }
    std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->key() < b->key(); });
    out += '{';
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      out += i == 0 ? "" : ",";
      detail::append_string(out, {sorted[i]->key().data(), sorted[i]->key().size()});
      out += ':';
      append_sorted(out, sorted[i]->value());
    }
    out += '}';
  } else {
    detail::append_value(out, json);
  }
}

} // namespace

std::string canonical(const value& json) {
  std::string out;
  append_sorted(out, json);
  return out;
}

} // namespace holt::protocols::json
