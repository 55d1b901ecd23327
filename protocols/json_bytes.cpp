#include "protocols/json_bytes.hpp"

#include <boost/json/object.hpp>
#include <boost/json/string.hpp>

#include "protocols/base64.hpp"
#include "protocols/utf8.hpp"

namespace holt::protocols::json {

bool custom<agent::raw_name>::read(const value& in, agent::raw_name& out, const detail::place& at,
                                   detail::read_context& context) {
  if (const boost::json::string* text = in.if_string()) {
    out.bytes.assign(text->data(), text->size());
  } else {
    const object* fields = in.if_object();
    const value* field = fields == nullptr ? nullptr : fields->if_contains("b64");
    const boost::json::string* encoded = field == nullptr ? nullptr : field->if_string();
    if (encoded == nullptr || fields->size() != 1) {
      return detail::fail_type(context, at, "a string, or {\"b64\": \"…\"} for bytes that are not UTF-8", in);
    }
    auto bytes = base64_decode({encoded->data(), encoded->size()});
    if (!bytes) {
      return detail::fail(context, detail::place{&at, "b64", 0}, "must be padded base64 (RFC 4648)");
    }
    out.bytes = std::move(*bytes);
  }
  if (out.bytes.find('\0') != std::string::npos) {
    return detail::fail(context, at, "must have no NUL character inside");
  }
  return true;
}

value custom<agent::raw_name>::to_value(const agent::raw_name& in) {
  if (utf8::valid(in.bytes)) {
    return value(boost::json::string(in.bytes));
  }
  return object{{"b64", base64_encode(in.bytes)}};
}

value custom<agent::raw_name>::schema() {
  object b64{{"type", "object"},
             {"properties", object{{"b64", object{{"type", "string"}, {"contentEncoding", "base64"}}}}},
             {"required", array{"b64"}},
             {"additionalProperties", false}};
  return object{{"description", "A name: text, or its bytes in base64 where they are not UTF-8."},
                {"oneOf", array{object{{"type", "string"}}, std::move(b64)}}};
}

} // namespace holt::protocols::json
