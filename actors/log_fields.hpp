#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

namespace holt::actors {

/// The fields of one line of log, as JSON text. Ids and codes; never bodies, tokens or environment values.
class log_fields {
public:
  log_fields& add(std::string_view key, std::string_view value) {
    fields_[key] = value;
    return *this;
  }
  log_fields& add(std::string_view key, std::uint64_t value) {
    fields_[key] = value;
    return *this;
  }
  std::string text() const {
    return boost::json::serialize(fields_);
  }

private:
  boost::json::object fields_;
};

} // namespace holt::actors
