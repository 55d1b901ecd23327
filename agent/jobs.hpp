#pragma once

#include <string>
#include <string_view>

#include <tl/expected.hpp>

#include "agent/files/path_locks.hpp"
#include "agent/files/root_table.hpp"
#include "agent/worker.hpp"

/// The file and search operations, from their name and arguments to what a worker runs. Main thread; the work it gives is
/// for a worker.
namespace holt::agent {

enum class job_kind {
  unknown,
  /// May be done again at each asking: no ledger.
  reads,
  /// Must happen once: ledger.
  changes,
};

job_kind kind_of_job(std::string_view operation);

/// Whether the stream "body" comes from the server.
bool takes_body(std::string_view operation);

/// Whether it runs until it is cancelled, and so must not hold one of the few workers.
bool runs_for_long(std::string_view operation);

/// The work, or what is wrong with the arguments. `roots` and `locks` must outlive it.
tl::expected<job::work, std::string> make_job(const files::root_table& roots, files::path_locks& locks,
                                              std::string_view operation, const protocols::json::value& arguments);

} // namespace holt::agent
