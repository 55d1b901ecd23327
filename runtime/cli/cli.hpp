#pragma once

#include <span>
#include <string>
#include <string_view>

/// The client side of the one program `holt`: `holt env|exec|shell|cp|login …` over the HTTP API (spec 96).
namespace holt::runtime::cli {

/// Runs one client command and returns the process's exit code. `args` are without the program's name: {"exec", "box",
/// "--", "make"}. Call it once, from the main thread: it blocks signals that it forwards, and ignores SIGPIPE.
int run(std::span<const std::string> args);

/// Whether `run` knows this first word.
bool knows(std::string_view command);

} // namespace holt::runtime::cli
