#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "actors/ec.hpp"
#include "actors/provider_backend.hpp"
#include "storage/store.hpp"

/// The lifecycle of an environment's instance as one table (spec 5, 6, 6a, 10–12, 14–17, 21, 22): what to do next, given the
/// row, what is known of the machine and the provider, and what somebody wants. Pure: no clock, no actor, no I/O.
///
/// Everything here happens under the exclusive lease. Before each external step its target state is written, fenced; its
/// result is written afterwards. So whoever finds a row, at any moment, can tell what is half done and go on.
namespace holt::actors::logic {

/// What somebody wants of the instance.
enum class purpose : std::uint8_t {
  use,     // running (spec 14); also resume by hand
  suspend, // by hand, or by the sweep
  destroy, // instance goes, files stay (spec 24)
  reset,   // instance and files go; the next use begins with new files (spec 16, 17)
  remove,  // instance, files, rows (spec 25, 27); passes through `resetting`, as a reset does
  settle,  // nothing but an end to what a crash left half done (spec 6)
};

/// What to do next. `write` is one fenced write of `row`; the ones from create on are calls to the row's provider.
enum class step_kind : std::uint8_t {
  ready, // what was wanted is so
  fail,  // it can't be: `error`
  write,
  purge, // instance and environment rows
  create,
  resume,
  suspend,
  destroy,
  destroy_files,
  forget, // what else the provider kept, behind the last files of a deleted environment
};

struct next_step {
  step_kind kind = step_kind::ready;
  storage::instance_row row{}; // of write
  ec error = ec::none;         // of fail
};

/// Instance identity is handle and created_at (spec 2).
struct instance_identity {
  std::string handle;
  std::int64_t created_at = 0;
  friend bool operator==(const instance_identity&, const instance_identity&) = default;
};

inline instance_identity identity_of(const storage::instance_row& row) {
  return {row.handle, row.instance_created_at};
}

struct lifecycle_facts {
  std::string environment_id;
  /// By which provider this environment would be made now; empty: there is none.
  std::string provider;
  /// Whether the provider that made the row's instance is loaded here.
  bool row_provider_loaded = false;
  std::string host_id;
  std::string boot_id;
  /// The instance that its provider, or an agent's end, has told to be gone.
  std::optional<instance_identity> found_gone;
  /// The row's intermediate state was written by the holder of this lease. If not, it is another's, who may have slept: it
  /// is written again, and so fences that other, before the step is taken.
  bool owned = false;
  /// Of files that don't exist yet.
  std::string fresh_file_system_id;
  std::int64_t now = 0; // microseconds since 1970
};

/// Rule 12 and 6a: recorded running, made by the current provider, files not lost, on this machine's present run, and not
/// the instance found gone.
bool usable(const std::optional<storage::instance_row>& row, const lifecycle_facts& facts);

next_step next(const std::optional<storage::instance_row>& row, purpose wanted, const lifecycle_facts& facts);

/// How a provider's call ended.
struct call_outcome {
  std::optional<provider_errc> error; // nothing: it succeeded
  created_instance created{};         // of create
};

/// What follows from the outcome of a call. After a write or a further call, `next` is asked again; a `fail` ends it.
next_step after(step_kind call, const call_outcome& outcome, const storage::instance_row& row, purpose wanted,
                const lifecycle_facts& facts);

/// The files of this instance were found gone while it was used (spec 16). Nothing to write when the row records another.
std::optional<storage::instance_row> files_lost(const std::optional<storage::instance_row>& row,
                                                const instance_identity& found);

/// Files may be made only where none were ever in use: never recreated silently (spec 16).
inline bool may_make_files(const storage::instance_row& row) {
  return row.instance_created_at == 0;
}

} // namespace holt::actors::logic
