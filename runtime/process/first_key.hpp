#pragma once

#include <string>

#include <tl/expected.hpp>

#include "storage/store.hpp"

namespace holt::runtime::process {

/// Makes the first org, user and operator key when there is none (spec 93), and writes the key to `path` (0600), nowhere else.
/// True: made just now. Blocks; before anything serves.
///
/// A crash between file and rows leaves either both or a file whose key means nothing; the next start writes it anew.
tl::expected<bool, std::string> ensure_first_key(storage::store& store, const std::string& path);

} // namespace holt::runtime::process
