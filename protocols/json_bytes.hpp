#pragma once

#include "protocols/agent_messages.hpp"
#include "protocols/json_read.hpp"
#include "protocols/json_write.hpp"

namespace holt::protocols::json {

/// raw_name as JSON: `"text"` when its bytes are UTF-8, else `{"b64": "…"}`. A NUL inside is refused when reading,
/// since no file's name has one and a system call would see another name than a check did.
template <>
struct custom<agent::raw_name> {
  static bool read(const value& in, agent::raw_name& out, const detail::place& at, detail::read_context& context);
  static value to_value(const agent::raw_name& in);
  static value schema();
};

} // namespace holt::protocols::json
