#include "actors/logic/lifecycle.hpp"

#include "protocols/json_write.hpp"

namespace holt::actors::logic {

namespace {

using storage::instance_row;

next_step ready() {
  return {step_kind::ready, {}, ec::none};
}

next_step fail(ec code) {
  return {step_kind::fail, {}, code};
}

next_step call(step_kind kind) {
  return {kind, {}, ec::none};
}

next_step write(instance_row row) {
  return {step_kind::write, std::move(row), ec::none};
}

/// This status, by this machine's present run.
instance_row in_state(instance_row row, std::string_view status, const lifecycle_facts& facts) {
  row.status = status;
  row.host_id = facts.host_id;
  row.boot_id = facts.boot_id;
  return row;
}

next_step to_state(const instance_row& row, std::string_view status, const lifecycle_facts& facts) {
  return write(in_state(row, status, facts));
}

next_step begin_create(const std::optional<instance_row>& row, const lifecycle_facts& facts) {
  instance_row target = row ? *row : instance_row{};
  target.environment_id = facts.environment_id;
  target.provider = facts.provider;
  target.last_used_at = facts.now;
  if (target.file_system_id.empty()) {
    target.file_system_id = facts.fresh_file_system_id;
    target.fs_status = "ok";
    target.instance_created_at = 0;
  }
  return to_state(target, "creating", facts);
}

/// The instance ended, its files are kept.
instance_row without_instance(const instance_row& row, const lifecycle_facts& facts) {
  auto target = in_state(row, "destroyed", facts);
  // A lost file system's handle is kept: a reset still destroys what is left (spec 16).
  if (target.fs_status != "lost")
    target.handle.clear();
  target.roots_json.clear();
  return target;
}

/// Neither instance nor files: as if never used.
instance_row without_files(const instance_row& row, const lifecycle_facts& facts) {
  auto target = in_state(row, "destroyed", facts);
  target.handle.clear();
  target.roots_json.clear();
  target.file_system_id.clear();
  target.fs_status = "ok";
  target.instance_created_at = 0;
  target.sweep_failed_at.reset();
  return target;
}

bool may_have_instance(const instance_row& row) {
  return row.status != "destroyed";
}

bool host_is_away(const instance_row& row, const lifecycle_facts& facts) {
  return !row.host_id.empty() && row.host_id != facts.host_id && (may_have_instance(row) || !row.file_system_id.empty());
}

/// The machine restarted (spec 6a), or somebody found it gone.
bool is_gone(const instance_row& row, const lifecycle_facts& facts) {
  bool was_made = row.status == "running" || row.status == "suspending" || row.status == "suspended"
                  || row.status == "resuming";
  return was_made && (row.boot_id != facts.boot_id || facts.found_gone == identity_of(row));
}

/// The state is written again unless this lease's holder wrote it: a fence against who wrote it before.
next_step own_then(step_kind kind, const instance_row& row, const lifecycle_facts& facts) {
  return facts.owned ? call(kind) : to_state(row, row.status, facts);
}

next_step next_use(const instance_row& row, const lifecycle_facts& facts) {
  if (row.status == "resetting" || row.status == "destroying")
    return facts.row_provider_loaded ? own_then(step_kind::destroy, row, facts) : fail(ec::environment_unavailable);
  if (row.fs_status == "lost")
    return fail(ec::files_lost);
  if (facts.provider.empty())
    return fail(ec::sandbox_unavailable);
  if (row.provider != facts.provider && !row.file_system_id.empty())
    return fail(ec::environment_unavailable);
  if (row.status == "destroyed" || is_gone(row, facts))
    return begin_create(row, facts);
  if (row.status == "creating")
    return own_then(step_kind::create, row, facts);
  if (row.status == "resuming")
    return own_then(step_kind::resume, row, facts);
  if (row.status == "suspended" || row.status == "suspending") // a half-done suspend is undone
    return to_state(row, "resuming", facts);
  if (row.status == "running")
    return ready();
  return fail(ec::internal);
}

next_step next_suspend(const instance_row& row, const lifecycle_facts& facts) {
  if (row.status == "suspended" && !is_gone(row, facts))
    return ready();
  if (row.status == "resetting" || row.status == "destroying")
    return own_then(step_kind::destroy, row, facts);
  if (row.status == "destroyed" || row.status == "creating" || is_gone(row, facts))
    return fail(ec::not_running);
  if (row.status == "suspending")
    return own_then(step_kind::suspend, row, facts);
  return to_state(row, "suspending", facts); // running, or a half-done resume, which is undone
}

next_step next_destroy(const instance_row& row, const lifecycle_facts& facts) {
  if (row.status == "destroyed")
    return ready();
  if (row.status == "resetting" || row.status == "destroying")
    return own_then(step_kind::destroy, row, facts);
  return to_state(row, "destroying", facts);
}

next_step next_reset(const instance_row& row, const lifecycle_facts& facts) {
  if (row.status == "destroyed" && row.file_system_id.empty())
    return ready();
  if (row.status == "resetting")
    return own_then(step_kind::destroy, row, facts);
  return to_state(row, "resetting", facts);
}

next_step next_remove(const instance_row& row, const lifecycle_facts& facts) {
  if (row.status == "destroyed" && row.file_system_id.empty())
    return call(step_kind::forget);
  if (row.status == "resetting")
    return own_then(step_kind::destroy, row, facts);
  return to_state(row, "resetting", facts);
}

next_step next_settle(const instance_row& row, const lifecycle_facts& facts) {
  if (row.status == "resetting" || row.status == "destroying")
    return own_then(step_kind::destroy, row, facts);
  if (row.status == "creating") // nobody waits for it any more
    return to_state(row, "destroying", facts);
  if (row.status == "suspending" || row.status == "resuming") {
    if (is_gone(row, facts))
      return write(without_instance(row, facts));
    return row.status == "suspending" ? own_then(step_kind::suspend, row, facts) : to_state(row, "suspending", facts);
  }
  return ready();
}

next_step next_without_row(purpose wanted, const lifecycle_facts& facts) {
  switch (wanted) {
    case purpose::use:
      return facts.provider.empty() ? fail(ec::sandbox_unavailable) : begin_create(std::nullopt, facts);
    case purpose::suspend:
      return fail(ec::not_running);
    case purpose::remove:
      return call(step_kind::purge);
    case purpose::destroy:
    case purpose::reset:
    case purpose::settle:
      return ready();
  }
  return fail(ec::internal);
}

ec error_of(provider_errc code) {
  switch (code) {
    case provider_errc::unavailable:
      return ec::sandbox_unavailable;
    case provider_errc::refused:
      return ec::sandbox_refused;
    case provider_errc::younger_generation:
      return ec::lease_lost;
    case provider_errc::gone:
    case provider_errc::files_gone:
    case provider_errc::failed:
      break;
  }
  return ec::sandbox_failed;
}

} // namespace

bool usable(const std::optional<instance_row>& row, const lifecycle_facts& facts) {
  return row && row->status == "running" && row->fs_status == "ok" && !facts.provider.empty()
         && row->provider == facts.provider && row->host_id == facts.host_id && !is_gone(*row, facts);
}

next_step next(const std::optional<instance_row>& row, purpose wanted, const lifecycle_facts& facts) {
  if (!row)
    return next_without_row(wanted, facts);
  if (host_is_away(*row, facts))
    return fail(ec::sandbox_unavailable);
  if (wanted == purpose::use)
    return next_use(*row, facts);
  bool nothing_left = row->status == "destroyed" && row->file_system_id.empty();
  if (!facts.row_provider_loaded && !nothing_left)
    return fail(ec::environment_unavailable);
  switch (wanted) {
    case purpose::suspend:
      return next_suspend(*row, facts);
    case purpose::destroy:
      return next_destroy(*row, facts);
    case purpose::reset:
      return next_reset(*row, facts);
    case purpose::remove:
      return next_remove(*row, facts);
    case purpose::settle:
      return next_settle(*row, facts);
    case purpose::use:
      break;
  }
  return fail(ec::internal);
}

next_step after(step_kind made, const call_outcome& outcome, const instance_row& row, purpose,
                const lifecycle_facts& facts) {
  bool ended = !outcome.error || outcome.error == provider_errc::gone;
  bool no_files = outcome.error == provider_errc::files_gone;
  switch (made) {
    case step_kind::create: {
      if (no_files) {
        auto target = without_instance(row, facts);
        target.handle = row.handle;
        target.fs_status = "lost";
        return write(std::move(target));
      }
      if (outcome.error)
        return fail(error_of(*outcome.error));
      auto target = in_state(row, "running", facts);
      target.handle = outcome.created.handle;
      target.instance_created_at = outcome.created.created_at;
      target.roots_json = protocols::json::write(outcome.created.roots);
      target.last_used_at = facts.now;
      ++target.epoch; // of the first session: saves it a commit of its own
      return write(std::move(target));
    }
    case step_kind::resume: {
      if (outcome.error == provider_errc::gone)
        return begin_create(row, facts);
      if (no_files) {
        auto target = in_state(row, "suspended", facts);
        target.fs_status = "lost";
        return write(std::move(target));
      }
      if (outcome.error)
        return fail(error_of(*outcome.error));
      auto target = in_state(row, "running", facts);
      target.last_used_at = facts.now;
      ++target.epoch;
      return write(std::move(target));
    }
    case step_kind::suspend:
      if (outcome.error == provider_errc::gone)
        return write(without_instance(row, facts));
      return outcome.error ? fail(error_of(*outcome.error)) : to_state(row, "suspended", facts);
    case step_kind::destroy:
      if (!ended && !no_files)
        return fail(error_of(*outcome.error));
      if (row.status == "resetting")
        return row.file_system_id.empty() ? write(without_files(row, facts)) : call(step_kind::destroy_files);
      return write(without_instance(row, facts));
    case step_kind::destroy_files:
      return ended || no_files ? write(without_files(row, facts)) : fail(error_of(*outcome.error));
    case step_kind::forget:
      return ended || no_files ? call(step_kind::purge) : fail(error_of(*outcome.error));
    case step_kind::ready:
    case step_kind::fail:
    case step_kind::write:
    case step_kind::purge:
      break;
  }
  return fail(ec::internal);
}

std::optional<instance_row> files_lost(const std::optional<instance_row>& row, const instance_identity& found) {
  if (!row || identity_of(*row) != found || row->fs_status == "lost")
    return std::nullopt;
  auto target = *row;
  target.fs_status = "lost";
  return target;
}

} // namespace holt::actors::logic
