#pragma once

#include <string>

#include <tl/expected.hpp>

/// How a client command ends when it doesn't succeed: an exit code and one line for stderr that says what happened and
/// what to do (spec 96; the codes are those of sysexits.h). Any thread.
namespace holt::runtime::cli {

enum exit_code : int {
  exit_ok = 0,
  exit_usage = 64,       // the command line, or what it names, is wrong
  exit_unavailable = 69, // no server, or the server says "later"
  exit_bug = 70,         // an answer that makes no sense, or a 500
  exit_refused = 77,     // the server, or this machine, says no
};

struct failure {
  int code = exit_bug;
  std::string message;
  std::string problem = {}; // the API's code, if it came from there: "environment.not_found"
};

template <class T>
using result = tl::expected<T, failure>;

inline tl::unexpected<failure> fail(int code, std::string message) {
  return tl::unexpected(failure{code, std::move(message)});
}

} // namespace holt::runtime::cli
