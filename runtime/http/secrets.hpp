#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "protocols/ids.hpp"

/// Random ids and key secrets, and the one-way forms of them. Any thread.
namespace holt::runtime::http {

/// Lower-case hex of SHA-256.
std::string sha256_hex(std::string_view bytes);

/// From the system's random source. Throws when that fails: nothing may go on with guessable ids.
std::string random_id(protocols::id_kind kind);

/// A new key: `holt_` and 256 bits.
std::string random_key();

/// The same id for the same parts, whoever asks and whenever (spec 44: a repeated create is found again).
std::string derived_id(protocols::id_kind kind, std::string_view first, std::string_view second);

} // namespace holt::runtime::http
