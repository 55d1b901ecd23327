#pragma once

#include <string>

#include "protocols/json.hpp"

namespace holt::protocols::json {

/// One text for equal values, whatever the order of their keys: keys sorted by bytes, no spaces, numbers that are equal
/// written equally (1, 1.0 and 1e0 are `1`). For the digests of operations (spec 44) and for comparing handles (spec
/// 2). Not for sending: it forgets whether a whole number was written as a double. Pure: any thread.
std::string canonical(const value& json);

} // namespace holt::protocols::json
