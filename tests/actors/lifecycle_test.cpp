#include "actors/logic/lifecycle.hpp"

#include <gtest/gtest.h>

namespace holt::actors::logic {
namespace {

using storage::instance_row;

lifecycle_facts here() {
  lifecycle_facts facts;
  facts.environment_id = "env_1";
  facts.provider = "bubblewrap";
  facts.row_provider_loaded = true;
  facts.host_id = "host_1";
  facts.boot_id = "boot_1";
  facts.fresh_file_system_id = "fs_new";
  facts.now = 77;
  return facts;
}

instance_row row_in(std::string status) {
  instance_row row;
  row.environment_id = "env_1";
  row.provider = "bubblewrap";
  row.handle = "{\"h\":1}";
  row.file_system_id = "fs_1";
  row.status = std::move(status);
  row.host_id = "host_1";
  row.boot_id = "boot_1";
  row.instance_created_at = 5;
  row.generation = 9;
  row.epoch = 3;
  return row;
}

/// What is done next, in words: "write creating", "create", "fail files_lost".
std::string words(const next_step& step) {
  switch (step.kind) {
    case step_kind::ready:
      return "ready";
    case step_kind::fail:
      return "fail " + std::string{to_string(step.error)};
    case step_kind::write:
      return "write " + step.row.status + (step.row.fs_status == "ok" ? "" : " " + step.row.fs_status);
    case step_kind::purge:
      return "purge";
    case step_kind::create:
      return "create";
    case step_kind::resume:
      return "resume";
    case step_kind::suspend:
      return "suspend";
    case step_kind::destroy:
      return "destroy";
    case step_kind::destroy_files:
      return "destroy_files";
    case step_kind::forget:
      return "forget";
  }
  return "?";
}

std::string next_of(const char* status, purpose wanted, bool owned = false) {
  auto facts = here();
  facts.owned = owned;
  return words(next(row_in(status), wanted, facts));
}

std::string after_of(const char* status, step_kind call, std::optional<provider_errc> error, purpose wanted) {
  return words(after(call, {error, {"{\"h\":2}", 6, {"/w", "/s", "/t"}}}, row_in(status), wanted, here()));
}

TEST(lifecycle, none_or_destroyed_is_created) {
  EXPECT_EQ(words(next(std::nullopt, purpose::use, here())), "write creating");
  EXPECT_EQ(next_of("destroyed", purpose::use), "write creating");
}

TEST(lifecycle, suspended_is_resumed_and_running_is_used) {
  EXPECT_EQ(next_of("suspended", purpose::use), "write resuming");
  EXPECT_EQ(next_of("running", purpose::use), "ready");
}

TEST(lifecycle, an_intermediate_state_left_by_a_crash_is_finished_or_undone_and_use_goes_on) {
  EXPECT_EQ(next_of("creating", purpose::use), "write creating") << "another's: fenced before the step";
  EXPECT_EQ(next_of("creating", purpose::use, true), "create");
  EXPECT_EQ(next_of("resuming", purpose::use), "write resuming");
  EXPECT_EQ(next_of("resuming", purpose::use, true), "resume");
  EXPECT_EQ(next_of("suspending", purpose::use), "write resuming");
  EXPECT_EQ(next_of("destroying", purpose::use), "write destroying");
  EXPECT_EQ(next_of("destroying", purpose::use, true), "destroy");
  EXPECT_EQ(next_of("resetting", purpose::use), "write resetting");
  EXPECT_EQ(next_of("resetting", purpose::use, true), "destroy");
}

TEST(lifecycle, the_target_state_says_host_and_boot) {
  auto facts = here();
  facts.boot_id = "boot_2";
  auto step = next(row_in("destroyed"), purpose::use, facts);
  EXPECT_EQ(step.row.host_id, "host_1");
  EXPECT_EQ(step.row.boot_id, "boot_2");
  EXPECT_EQ(step.row.generation, 9u) << "the fence is the store's to move";
}

TEST(lifecycle, a_first_create_makes_files_and_a_later_one_never_does) {
  auto first = next(std::nullopt, purpose::use, here()).row;
  EXPECT_EQ(first.file_system_id, "fs_new");
  EXPECT_TRUE(may_make_files(first));
  auto again = next(row_in("destroyed"), purpose::use, here()).row;
  EXPECT_EQ(again.file_system_id, "fs_1");
  EXPECT_FALSE(may_make_files(again));
}

TEST(lifecycle, creating_is_followed_by_running_with_the_instance_and_the_next_epoch) {
  auto step = after(step_kind::create, {std::nullopt, {"{\"h\":2}", 6, {"/w", "/s", "/t"}}}, row_in("creating"),
                    purpose::use, here());
  EXPECT_EQ(words(step), "write running");
  EXPECT_EQ(step.row.handle, "{\"h\":2}");
  EXPECT_EQ(step.row.instance_created_at, 6);
  EXPECT_EQ(step.row.epoch, 4u);
  EXPECT_EQ(step.row.roots_json, R"({"workspace":"/w","skills":"/s","tmp":"/t"})");
}

TEST(lifecycle, a_restarted_machine_has_lost_its_instances_and_not_its_files) {
  auto facts = here();
  facts.boot_id = "boot_2";
  for (auto* status : {"running", "suspended", "suspending", "resuming"}) {
    auto step = next(row_in(status), purpose::use, facts);
    EXPECT_EQ(words(step), "write creating") << status;
    EXPECT_FALSE(may_make_files(step.row)) << status;
  }
}

TEST(lifecycle, an_instance_on_another_host_is_never_rebuilt_here) {
  auto facts = here();
  facts.host_id = "host_2";
  for (auto* status : {"creating", "running", "suspended", "destroyed", "resetting"})
    for (auto wanted : {purpose::use, purpose::suspend, purpose::destroy, purpose::reset, purpose::remove})
      EXPECT_EQ(words(next(row_in(status), wanted, facts)), "fail sandbox.unavailable") << status;
}

TEST(lifecycle, only_the_instance_that_was_found_gone_is_rebuilt) {
  auto facts = here();
  facts.found_gone = identity_of(row_in("running"));
  EXPECT_FALSE(usable(row_in("running"), facts));
  EXPECT_EQ(words(next(row_in("running"), purpose::use, facts)), "write creating");
  facts.found_gone->created_at = 4; // the handle was used again: another instance
  EXPECT_TRUE(usable(row_in("running"), facts));
  EXPECT_EQ(words(next(row_in("running"), purpose::use, facts)), "ready");
}

TEST(lifecycle, usable_is_running_by_the_current_provider_here_with_its_files) {
  EXPECT_TRUE(usable(row_in("running"), here()));
  EXPECT_FALSE(usable(std::nullopt, here()));
  EXPECT_FALSE(usable(row_in("suspended"), here()));
  auto lost = row_in("running");
  lost.fs_status = "lost";
  EXPECT_FALSE(usable(lost, here()));
  auto other = row_in("running");
  other.provider = "docker";
  EXPECT_FALSE(usable(other, here()));
  auto facts = here();
  facts.boot_id = "boot_2";
  EXPECT_FALSE(usable(row_in("running"), facts));
}

TEST(lifecycle, lost_files_are_an_error_until_a_reset) {
  auto row = row_in("running");
  row.fs_status = "lost";
  EXPECT_EQ(words(next(row, purpose::use, here())), "fail environment.files_lost");
  EXPECT_EQ(words(next(row, purpose::reset, here())), "write resetting lost");
  row.status = "resetting";
  EXPECT_EQ(words(after(step_kind::destroy_files, {}, row, purpose::reset, here())), "write destroyed");
}

TEST(lifecycle, files_found_gone_are_recorded_with_the_handle_kept) {
  EXPECT_EQ(after_of("creating", step_kind::create, provider_errc::files_gone, purpose::use), "write destroyed lost");
  auto step = after(step_kind::create, {provider_errc::files_gone, {}}, row_in("creating"), purpose::use, here());
  EXPECT_EQ(step.row.handle, "{\"h\":1}");
  auto target = files_lost(row_in("running"), identity_of(row_in("running")));
  ASSERT_TRUE(target);
  EXPECT_EQ(target->fs_status, "lost");
  EXPECT_EQ(target->handle, "{\"h\":1}");
  EXPECT_FALSE(files_lost(row_in("running"), {"{\"h\":1}", 4})) << "the row records another instance by now";
}

TEST(lifecycle, unreachable_is_not_gone) {
  EXPECT_EQ(after_of("resuming", step_kind::resume, provider_errc::unavailable, purpose::use), "fail sandbox.unavailable");
  EXPECT_EQ(after_of("creating", step_kind::create, provider_errc::unavailable, purpose::use), "fail sandbox.unavailable");
  EXPECT_EQ(after_of("resuming", step_kind::resume, provider_errc::gone, purpose::use), "write creating");
}

TEST(lifecycle, no_provider_is_said_so) {
  auto facts = here();
  facts.provider = "";
  EXPECT_EQ(words(next(std::nullopt, purpose::use, facts)), "fail sandbox.unavailable");
  EXPECT_EQ(words(next(row_in("running"), purpose::use, facts)), "fail sandbox.unavailable");
}

TEST(lifecycle, files_of_another_provider_wait_for_it_and_can_be_deleted_while_it_is_loaded) {
  auto row = row_in("running");
  row.provider = "docker";
  EXPECT_EQ(words(next(row, purpose::use, here())), "fail environment.unavailable");
  EXPECT_EQ(words(next(row, purpose::remove, here())), "write resetting");
  auto facts = here();
  facts.row_provider_loaded = false;
  EXPECT_EQ(words(next(row, purpose::remove, facts)), "fail environment.unavailable");
}

TEST(lifecycle, a_suspend_names_its_state_first_and_ends_suspended) {
  EXPECT_EQ(next_of("running", purpose::suspend), "write suspending");
  EXPECT_EQ(next_of("suspending", purpose::suspend, true), "suspend");
  EXPECT_EQ(after_of("suspending", step_kind::suspend, std::nullopt, purpose::suspend), "write suspended");
  EXPECT_EQ(after_of("suspending", step_kind::suspend, provider_errc::gone, purpose::suspend), "write destroyed");
  EXPECT_EQ(after_of("suspending", step_kind::suspend, provider_errc::younger_generation, purpose::suspend),
            "fail lease.lost");
  EXPECT_EQ(next_of("suspended", purpose::suspend), "ready");
  EXPECT_EQ(next_of("destroyed", purpose::suspend), "fail environment.not_running");
}

TEST(lifecycle, destroying_keeps_the_files_and_resetting_does_not) {
  EXPECT_EQ(next_of("running", purpose::destroy), "write destroying");
  auto destroyed = after(step_kind::destroy, {}, row_in("destroying"), purpose::destroy, here());
  EXPECT_EQ(words(destroyed), "write destroyed");
  EXPECT_EQ(destroyed.row.file_system_id, "fs_1");
  EXPECT_EQ(next_of("running", purpose::reset), "write resetting");
  EXPECT_EQ(after_of("resetting", step_kind::destroy, std::nullopt, purpose::reset), "destroy_files");
  auto reset = after(step_kind::destroy_files, {}, row_in("resetting"), purpose::reset, here());
  EXPECT_EQ(words(reset), "write destroyed");
  EXPECT_EQ(reset.row.file_system_id, "");
  EXPECT_TRUE(may_make_files(reset.row));
}

TEST(lifecycle, removing_ends_with_the_rows) {
  EXPECT_EQ(words(next(std::nullopt, purpose::remove, here())), "purge");
  EXPECT_EQ(next_of("running", purpose::remove), "write resetting");
  auto empty = row_in("destroyed");
  empty.file_system_id = "";
  EXPECT_EQ(words(next(empty, purpose::remove, here())), "forget");
  EXPECT_EQ(words(after(step_kind::forget, {}, empty, purpose::remove, here())), "purge");
  EXPECT_EQ(next_of("destroyed", purpose::remove), "write resetting") << "the files are still there";
}

TEST(lifecycle, settling_ends_what_nobody_waits_for) {
  EXPECT_EQ(next_of("creating", purpose::settle), "write destroying");
  EXPECT_EQ(next_of("resuming", purpose::settle), "write suspending");
  EXPECT_EQ(next_of("suspending", purpose::settle), "write suspending");
  EXPECT_EQ(next_of("destroying", purpose::settle), "write destroying");
  EXPECT_EQ(next_of("resetting", purpose::settle), "write resetting");
  for (auto* status : {"running", "suspended", "destroyed"})
    EXPECT_EQ(next_of(status, purpose::settle), "ready");
}

/// Every row, every wish, every outcome of a call: it comes to an end, and no external step is taken that its own state in
/// the row does not announce.
TEST(lifecycle, from_any_row_every_wish_comes_to_an_end) {
  const std::map<step_kind, std::vector<std::string>> announced = {
      {step_kind::create, {"creating"}},
      {step_kind::resume, {"resuming"}},
      {step_kind::suspend, {"suspending"}},
      {step_kind::destroy, {"destroying", "resetting"}},
      {step_kind::destroy_files, {"resetting"}},
      {step_kind::forget, {"destroyed"}},
  };
  std::vector<std::optional<instance_row>> rows{std::nullopt};
  for (auto* status : {"creating", "running", "suspending", "suspended", "resuming", "destroying", "destroyed", "resetting"})
    for (auto* fs : {"ok", "lost"})
      for (auto* boot : {"boot_1", "boot_0"}) {
        auto row = row_in(status);
        row.fs_status = fs;
        row.boot_id = boot;
        rows.push_back(row);
      }
  std::vector<std::optional<provider_errc>> outcomes{std::nullopt,
                                                     provider_errc::gone,
                                                     provider_errc::files_gone,
                                                     provider_errc::unavailable,
                                                     provider_errc::refused,
                                                     provider_errc::younger_generation,
                                                     provider_errc::failed};
  for (auto& first : rows)
    for (auto wanted : {purpose::use, purpose::suspend, purpose::destroy, purpose::reset, purpose::remove, purpose::settle})
      for (auto outcome : outcomes) {
        auto row = first;
        auto facts = here();
        auto step = next(row, wanted, facts);
        int steps = 0;
        for (; step.kind != step_kind::ready && step.kind != step_kind::fail && step.kind != step_kind::purge; ++steps) {
          ASSERT_LT(steps, 20) << "no end from " << (first ? first->status : "none");
          if (step.kind == step_kind::write) {
            row = step.row;
            ++row->generation;
            facts.owned = row->status != "running" && row->status != "suspended" && row->status != "destroyed";
            step = next(row, wanted, facts);
            continue;
          }
          auto& states = announced.at(step.kind);
          ASSERT_TRUE(row && std::find(states.begin(), states.end(), row->status) != states.end());
          // The first call fails so, later ones succeed.
          auto ends = std::exchange(outcome, std::nullopt);
          step = after(step.kind, {ends, {"{\"h\":2}", 6, {}}}, *row, wanted, facts);
        }
        if (step.kind == step_kind::ready && wanted == purpose::use) {
          EXPECT_TRUE(usable(row, facts));
        }
      }
}

} // namespace
} // namespace holt::actors::logic
