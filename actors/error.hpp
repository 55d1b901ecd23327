#pragma once

#include <string>

#include <caf/error.hpp>
#include <caf/make_message.hpp>

#include "actors/ec.hpp"

/// ec as CAF's error, with an optional detail for the log. Included before anything that makes an error of an ec.
CAF_ERROR_CODE_ENUM(holt::actors::ec, "holt")

namespace holt::actors {

/// The code of an error of any kind: of ours as it is; a timeout, or a receiver that died, as `otherwise`.
ec code_of(const caf::error& error, ec otherwise);

/// An error with words for the log. No secrets.
caf::error error_with(ec code, std::string detail);

/// Those words, or "".
std::string detail_of(const caf::error& error);

} // namespace holt::actors
