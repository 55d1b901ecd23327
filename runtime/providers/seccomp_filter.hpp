#pragma once

#include <string>

#include <tl/expected.hpp>

#include "runtime/providers/fd.hpp"

/// The system calls that nothing in a sandbox may make (spec 33).
namespace holt::providers {

/// Builds the filter program into an anonymous file. Built once; each sandbox gets a descriptor of its own of it
/// (reopen), since bubblewrap reads from the descriptor's position.
tl::expected<unique_fd, std::string> build_seccomp_filter();

/// A fresh descriptor, at position 0, read only, of an anonymous file.
unique_fd reopen(int fd);

} // namespace holt::providers
