#include "protocols/json_read.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "protocols/utf8.hpp"

namespace holt::protocols::json {
namespace {

std::string_view view(const boost::json::string& text) {
  return {text.data(), text.size()};
}

std::string_view describe(const value& in) {
  switch (in.kind()) {
  case boost::json::kind::null:
    return "null";
  case boost::json::kind::bool_:
    return "true or false";
  case boost::json::kind::int64:
  case boost::json::kind::uint64:
    return "a whole number";
  case boost::json::kind::double_:
    return "a number";
  case boost::json::kind::string:
    return "a string";
  case boost::json::kind::array:
    return "an array";
  case boost::json::kind::object:
    return "an object";
  }
  return "something else";
}

/// For quoting the caller's own words in an error: short and printable.
std::string quoted(std::string_view text) {
  constexpr std::size_t longest = 64;
  std::string out = "'";
  const bool cut = text.size() > longest;
  if (cut) {
    text = text.substr(0, longest);
    text = text.substr(0, utf8::complete_prefix(text));
  }
  for (const char c : text) {
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  }
  out += cut ? "…'" : "'";
  return out;
}

std::string joined(const std::string_view* names, std::size_t count) {
  constexpr std::size_t most = 40;
  std::string out;
  for (std::size_t i = 0; i < std::min(count, most); ++i) {
    out += i == 0 ? "" : ", ";
    out += names[i];
  }
  if (count > most) {
    out += ", …";
  }
  return out;
}

std::vector<std::string_view> alternatives(std::string_view one_of) {
  std::vector<std::string_view> out;
  for (std::size_t begin = 0; begin <= one_of.size();) {
    const std::size_t end = std::min(one_of.find('|', begin), one_of.size());
    out.push_back(one_of.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

/// Steps (insert, delete, replace, swap neighbours) from one word to the other. Words are field names: short.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    last[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string count_text(std::size_t count, std::string_view thing) {
  return std::to_string(count) + ' ' + std::string(thing) + (count == 1 ? "" : "s");
}

/// "must have from 1 to 64 characters, and has 0"; empty when the count is right.
std::string check_count(std::size_t count, std::optional<std::size_t> min, std::optional<std::size_t> max,
                        std::string_view thing) {
  if ((!min || count >= *min) && (!max || count <= *max)) {
    return {};
  }
  std::string wanted;
  if (min && max) {
    wanted = "from " + std::to_string(*min) + " to " + count_text(*max, thing);
  } else if (min) {
    wanted = "at least " + count_text(*min, thing);
  } else {
    wanted = "at most " + count_text(*max, thing);
  }
  return "must have " + wanted + ", and has " + std::to_string(count);
}

template <class Number>
std::string range_text(Number min, Number max) {
  return "a whole number from " + std::to_string(min) + " to " + std::to_string(max);
}

/// Whole numbers that were written as 1.0 or 1e3, as far as a double is exact.
std::optional<std::int64_t> exact(double number) {
  constexpr double limit = 9007199254740992.0; // 2^53
  if (std::trunc(number) != number || number > limit || number < -limit) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(number);
}

} // namespace

std::string_view nearest(std::string_view wrong, const std::string_view* known, std::size_t count) {
  if (wrong.size() > 64) {
    return {};
  }
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(1, wrong.size() / 3) + 1;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t d = distance(wrong, known[i]);
    if (d < best_distance) {
      best = known[i];
      best_distance = d;
    }
  }
  return best;
}

std::string_view kind_of(const value& message) {
  const object* fields = message.if_object();
  const value* kind = fields == nullptr ? nullptr : fields->if_contains("kind");
  const boost::json::string* text = kind == nullptr ? nullptr : kind->if_string();
  return text == nullptr ? std::string_view{} : view(*text);
}

namespace detail {

std::string pointer_of(const place& at) {
  if (at.parent == nullptr) {
    return {};
  }
  std::string out = pointer_of(*at.parent);
  out += '/';
  if (at.key.data() == nullptr) {
    out += std::to_string(at.index);
    return out;
  }
  for (const char c : at.key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

bool fail(read_context& context, const place& at, std::string message) {
  context.failure = {pointer_of(at), std::move(message), fault::invalid};
  return false;
}

bool fail_type(read_context& context, const place& at, std::string_view wanted, const value& found) {
  return fail(context, at, "must be " + std::string(wanted) + ", and is " + std::string(describe(found)));
}

bool read_bool(const value& in, bool& out, const place& at, read_context& context) {
  const bool* flag = in.if_bool();
  if (flag == nullptr) {
    return fail_type(context, at, "true or false", in);
  }
  out = *flag;
  return true;
}

bool read_signed(const value& in, std::int64_t& out, std::int64_t min, std::int64_t max, const field_rule& rule,
                 const place& at, read_context& context) {
  min = std::max(min, rule.min.value_or(min));
  max = std::min(max, rule.max.value_or(max));
  std::optional<std::int64_t> number;
  if (const auto* n = in.if_int64()) {
    number = *n;
  } else if (const auto* d = in.if_double()) {
    number = exact(*d);
  }
  if (number && *number >= min && *number <= max) {
    out = *number;
    return true;
  }
  if (!in.is_number()) {
    return fail_type(context, at, range_text(min, max), in);
  }
  return fail(context, at, "must be " + range_text(min, max));
}

bool read_unsigned(const value& in, std::uint64_t& out, std::uint64_t max, const field_rule& rule, const place& at,
                   read_context& context) {
  const std::uint64_t min = rule.min && *rule.min > 0 ? static_cast<std::uint64_t>(*rule.min) : 0;
  if (rule.max && *rule.max >= 0) {
    max = std::min(max, static_cast<std::uint64_t>(*rule.max));
  }
  std::optional<std::uint64_t> number;
  const auto from_signed = [&](std::int64_t n) {
    if (n >= 0) {
      number = static_cast<std::uint64_t>(n);
    }
  };
  if (const auto* n = in.if_int64()) {
    from_signed(*n);
  } else if (const auto* u = in.if_uint64()) {
    number = *u;
  } else if (const auto* d = in.if_double()) {
    if (const auto whole = exact(*d)) {
      from_signed(*whole);
    }
  }
  if (number && *number >= min && *number <= max) {
    out = *number;
    return true;
  }
  if (!in.is_number()) {
    return fail_type(context, at, range_text(min, max), in);
  }
  return fail(context, at, "must be " + range_text(min, max));
}

bool read_double(const value& in, double& out, const field_rule& rule, const place& at, read_context& context) {
  if (const auto* d = in.if_double()) {
    out = *d;
  } else if (const auto* n = in.if_int64()) {
    out = static_cast<double>(*n);
  } else if (const auto* u = in.if_uint64()) {
    out = static_cast<double>(*u);
  } else {
    return fail_type(context, at, "a number", in);
  }
  if (rule.min && out < static_cast<double>(*rule.min)) {
    return fail(context, at, "must be a number of at least " + std::to_string(*rule.min));
  }
  if (rule.max && out > static_cast<double>(*rule.max)) {
    return fail(context, at, "must be a number of at most " + std::to_string(*rule.max));
  }
  return true;
}

bool read_string(const value& in, std::string& out, const field_rule& rule, const place& at, read_context& context) {
  const boost::json::string* text = in.if_string();
  if (text == nullptr) {
    return fail_type(context, at, "a string", in);
  }
  const std::string_view found = view(*text);
  if (rule.min_length || rule.max_length) {
    std::string message = check_count(utf8::count(found), rule.min_length, rule.max_length, "character");
    if (!message.empty()) {
      return fail(context, at, std::move(message));
    }
  }
  if (rule.no_nul && found.find('\0') != std::string_view::npos) {
    return fail(context, at, "must have no NUL character inside");
  }
  if (!rule.one_of.empty()) {
    const auto allowed = alternatives(rule.one_of);
    if (std::find(allowed.begin(), allowed.end(), found) == allowed.end()) {
      return fail(context, at,
                  "must be one of " + joined(allowed.data(), allowed.size()) + ", and is " + quoted(found));
    }
  }
  if (rule.check != nullptr && !rule.check(found)) {
    return fail(context, at,
                "must be " + std::string(rule.expected) + ", and is "
                    + (rule.secret ? std::string("not") : quoted(found)));
  }
  out.assign(found);
  return true;
}

const array* read_array(const value& in, const field_rule& rule, const place& at, read_context& context) {
  const array* items = in.if_array();
  if (items == nullptr) {
    fail_type(context, at, "an array", in);
    return nullptr;
  }
  std::string message = check_count(items->size(), rule.min_items, rule.max_items, "item");
  if (!message.empty()) {
    fail(context, at, std::move(message));
    return nullptr;
  }
  return items;
}

const object* read_map(const value& in, const field_rule& rule, const place& at, read_context& context) {
  const object* items = in.if_object();
  if (items == nullptr) {
    fail_type(context, at, "an object", in);
    return nullptr;
  }
  std::string message = check_count(items->size(), rule.min_items, rule.max_items, "item");
  if (!message.empty()) {
    fail(context, at, std::move(message));
    return nullptr;
  }
  return items;
}

bool check_key(std::string_view key, const field_rule& rule, const place& at, read_context& context) {
  if (rule.no_nul && key.find('\0') != std::string_view::npos) {
    return fail(context, at, "must have no NUL character in its name");
  }
  return true;
}

bool read_enum(const value& in, std::int64_t& out, const enum_name* names, std::size_t count, const place& at,
               read_context& context) {
  const boost::json::string* text = in.if_string();
  std::vector<std::string_view> allowed;
  for (std::size_t i = 0; i < count; ++i) {
    if (text != nullptr && view(*text) == names[i].name) {
      out = names[i].number;
      return true;
    }
    allowed.emplace_back(names[i].name);
  }
  const std::string wanted = "one of " + joined(allowed.data(), allowed.size());
  if (text == nullptr) {
    return fail_type(context, at, wanted, in);
  }
  return fail(context, at, "must be " + wanted + ", and is " + quoted(view(*text)));
}

const object* read_struct(const value& in, const std::string_view* known, std::size_t count, const char* kind,
                          const place& at, read_context& context) {
  const object* fields = in.if_object();
  if (fields == nullptr) {
    fail_type(context, at, "an object", in);
    return nullptr;
  }
  if (kind != nullptr) {
    if (const value* found = fields->if_contains("kind"); found != nullptr && kind_of(in) != kind) {
      fail(context, place{&at, "kind", 0}, "must be '" + std::string(kind) + "'");
      return nullptr;
    }
  }
  if (context.unknown == unknown_fields::ignore) {
    return fields;
  }
  for (const auto& field : *fields) {
    const std::string_view name{field.key().data(), field.key().size()};
    if (std::find(known, known + count, name) != known + count || (kind != nullptr && name == "kind")) {
      continue;
    }
    std::string message = "unknown field " + quoted(name);
    if (const std::string_view meant = nearest(name, known, count); !meant.empty()) {
      message += "; did you mean '" + std::string(meant) + "'?";
    } else if (count > 0) {
      message += "; the fields here are " + joined(known, count);
    } else {
      message += "; there are no fields here";
    }
    fail(context, place{&at, name, 0}, std::move(message));
    context.failure.what = fault::unknown_field;
    return nullptr;
  }
  return fields;
}

bool fail_missing(read_context& context, const place& at, std::string_view field) {
  return fail(context, place{&at, field, 0}, "is required and missing");
}

} // namespace detail
} // namespace holt::protocols::json
