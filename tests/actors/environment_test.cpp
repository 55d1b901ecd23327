#include <gtest/gtest.h>

#include "tests/actors/house.hpp"

/// What a use of an environment promises (spec 3, 4, 14–19, 44), with all actors and a scripted agent.
namespace holt::actors {
namespace {

using namespace std::chrono_literals;
using logic::purpose;
using tests::asked;
using tests::behaviour;
using tests::house;
using storage::store_errc;

void read_only(use_request& request) {
  request.operation = "file.read";
  request.counted = false;
  request.safe_to_repeat = true;
}

TEST(environment, a_first_use_creates_and_runs_and_answers_with_roots) {
  house h;
  auto use = h.use("op_1");
  h.run();
  ASSERT_EQ(use->answers, 1);
  EXPECT_EQ(use->code(), "");
  EXPECT_EQ(use->output->bytes, "hello\n");
  EXPECT_TRUE(use->output->last);
  EXPECT_EQ(use->result.finals, std::vector<std::uint64_t>{6});
  EXPECT_EQ(use->observer->accepted, 1);
  EXPECT_FALSE(use->result.restarted);
  ASSERT_TRUE(use->result.roots);
  EXPECT_EQ(use->result.roots->workspace, "/workspace");
  EXPECT_EQ(h.world->count("create"), 1u);
  EXPECT_EQ(h.store->instance("env_1").status, "running");
}

TEST(environment, a_create_and_its_first_use_cost_two_durable_commits) {
  house h;
  h.use("op_1");
  h.run();
  EXPECT_EQ(h.store->count("write"), 2u);
  EXPECT_EQ(h.store->count("epoch"), 0u) << "the first session's epoch is written with the row";
  ASSERT_EQ(h.store->written.size(), 2u);
  EXPECT_EQ(h.store->written[0].status, "creating");
  EXPECT_EQ(h.store->written[1].status, "running");
}

TEST(environment, a_warm_use_asks_neither_store_nor_provider) {
  house h;
  h.use("op_1");
  h.run();
  auto calls = h.store->calls.size();
  auto provider_calls = h.world->calls.size();
  auto use = h.use("op_2");
  h.run();
  EXPECT_EQ(use->answers, 1);
  EXPECT_EQ(h.store->calls.size(), calls);
  EXPECT_EQ(h.world->calls.size(), provider_calls);
}

TEST(environment, with_other_writers_the_row_is_read_again_under_each_shared_lease) {
  house h{1, {}, false};
  h.use("op_1");
  h.run();
  auto loads = h.store->count("load");
  auto use = h.use("op_2");
  h.run();
  EXPECT_EQ(use->code(), "");
  EXPECT_EQ(h.store->count("load"), loads + 1);
  // Another replica suspended it meanwhile.
  h.store->instance("env_1").status = "suspended";
  ++h.store->instance("env_1").generation;
  auto third = h.use("op_3");
  h.run();
  EXPECT_EQ(third->code(), "");
  EXPECT_EQ(h.world->count("resume"), 1u);
}

TEST(environment, missing_deleted_and_of_another_org_answer_the_same) {
  house h;
  auto missing = h.use("op_1", [](auto& request) { request.environment_id = "env_none"; });
  auto foreign = h.use("op_2", [](auto& request) { request.org_id = "org_b"; });
  h.run();
  h.store->add_environment("env_2");
  h.store->rows.at("env_2").environment.deleted_at = 1;
  auto deleted = h.use("op_3", [](auto& request) { request.environment_id = "env_2"; });
  h.run();
  EXPECT_EQ(missing->code(), "environment.not_found");
  EXPECT_EQ(foreign->code(), "environment.not_found");
  EXPECT_EQ(deleted->code(), "environment.not_found");
  EXPECT_EQ(missing->result.error->message, foreign->result.error->message);
  EXPECT_EQ(h.world->calls.size(), 0u);
}

TEST(environment, ids_that_do_not_exist_leave_no_actor) {
  house h;
  for (int i = 0; i < 10; ++i)
    h.use("op", [&](auto& request) { request.environment_id = "env_none_" + std::to_string(i); });
  h.run();
  EXPECT_EQ(h.actors_running(), house::idle_actors);
}

TEST(environment, an_environment_not_in_use_has_no_actor) {
  house h;
  h.use("op_1");
  h.run();
  EXPECT_GT(h.actors_running(), house::idle_actors);
  h.advance(h.shared->settings.passivate_after + 1s, 1s);
  EXPECT_EQ(h.actors_running(), house::idle_actors);
  EXPECT_EQ(h.world->open_connections(), 0u);
  EXPECT_TRUE(h.world->instances.contains("env_1")) << "the sandbox lives on";
  auto again = h.use("op_2");
  h.run();
  EXPECT_EQ(again->code(), "");
  EXPECT_EQ(h.world->count("create"), 1u);
}

TEST(environment, a_use_under_way_keeps_its_actor) {
  house h;
  h.world->behaves = [](auto&) { return behaviour::run; };
  auto use = h.use("op_1");
  h.advance(10min, 5s);
  EXPECT_EQ(use->answers, 0);
  h.world->complete("op_1");
  h.run();
  EXPECT_EQ(use->code(), "");
}

TEST(environment, a_restarted_server_adopts_the_running_instance) {
  house before;
  before.use("op_1");
  before.run();
  house after{before};
  auto use = after.use("op_2");
  after.run();
  EXPECT_EQ(use->code(), "");
  EXPECT_EQ(after.world->count("create"), 0u);
  EXPECT_EQ(after.store->count("epoch"), 1u) << "a higher epoch";
}

TEST(environment, use_if_running_never_creates_or_resumes) {
  house h;
  auto polls = [](use_request& request) { request.if_running = true; };
  auto none = h.use("op_1", polls);
  h.run();
  EXPECT_EQ(none->code(), "environment.not_running");
  h.use("op_2");
  h.run();
  auto runs = h.use("op_3", polls);
  h.run();
  EXPECT_EQ(runs->code(), "");
  h.change(purpose::suspend);
  h.run();
  auto suspended = h.use("op_4", polls);
  h.run();
  EXPECT_EQ(suspended->code(), "environment.not_running");
  EXPECT_EQ(h.world->count("create"), 1u);
  EXPECT_EQ(h.world->count("resume"), 0u);
}

// -- leases (spec 7, 8) ---------------------------------------------------------------------------------------------------

TEST(environment, commands_count_up_to_the_cap_and_the_rest_wait_in_order) {
  house h{1, [](auto& settings) { settings.max_concurrent_commands = 2; }};
  h.world->behaves = [](auto&) { return behaviour::run; };
  std::vector<std::shared_ptr<asked>> uses;
  for (int i = 0; i < 4; ++i)
    uses.push_back(h.use("op_" + std::to_string(i)));
  h.run();
  EXPECT_EQ(h.world->begun.size(), 2u);
  auto activity = h.activity();
  EXPECT_EQ(activity.uses, 2u);
  EXPECT_EQ(activity.waiting, 2u);
  auto file = h.use("op_file", read_only);
  h.run();
  EXPECT_EQ(h.world->begun.count("op_file"), 1u) << "file operations don't count";
  auto first = h.world->begun.begin()->first;
  h.world->complete(first);
  h.run();
  EXPECT_EQ(h.world->begun.size(), 4u);
  for (int i = 0; i < 4; ++i)
    h.world->complete("op_" + std::to_string(i));
  h.run();
  for (int i = 0; i < 4; ++i)
    h.world->complete("op_" + std::to_string(i));
  h.world->complete("op_file");
  h.run();
  for (auto& use : uses)
    EXPECT_EQ(use->code(), "");
}

TEST(environment, the_cap_is_read_at_every_use) {
  house h{1, [](auto& settings) { settings.max_concurrent_commands = 1; }};
  h.world->behaves = [](auto&) { return behaviour::run; };
  h.use("op_1");
  h.run();
  h.shared->max_concurrent_commands = 2;
  h.use("op_2");
  h.run();
  EXPECT_EQ(h.world->begun.size(), 2u);
}

TEST(environment, a_wait_that_is_too_long_answers_busy_with_a_time_to_come_again) {
  house h{1, [](auto& settings) {
    settings.max_concurrent_commands = 1;
    settings.lease_wait = 2s;
  }};
  h.world->behaves = [](auto&) { return behaviour::run; };
  auto first = h.use("op_1");
  h.run();
  auto second = h.use("op_2");
  h.advance(1900ms);
  EXPECT_EQ(second->answers, 0);
  h.advance(300ms);
  EXPECT_EQ(second->code(), "environment.busy");
  EXPECT_TRUE(second->result.error->retry_after);
  EXPECT_EQ(first->answers, 0);
  EXPECT_EQ(h.world->begun.count("op_2"), 0u);
}

TEST(environment, a_full_queue_is_refused_at_once) {
  house h{1, [](auto& settings) {
    settings.max_concurrent_commands = 1;
    settings.max_waiting = 1;
  }};
  h.world->behaves = [](auto&) { return behaviour::run; };
  h.use("op_1");
  h.run();
  h.use("op_2");
  auto third = h.use("op_3");
  h.run();
  EXPECT_EQ(third->code(), "environment.busy");
}

TEST(environment, a_background_process_holds_its_lease_only_while_it_starts) {
  house h{1, [](auto& settings) { settings.max_concurrent_commands = 1; }};
  h.world->behaves = [](auto&) { return behaviour::run; };
  auto background = h.use("op_1", [](auto& request) { request.releases_when_accepted = true; });
  h.run();
  auto second = h.use("op_2");
  h.run();
  EXPECT_EQ(h.world->begun.count("op_2"), 1u);
  EXPECT_EQ(background->answers, 0);
  h.world->complete("op_1");
  h.world->complete("op_2");
  h.run();
  EXPECT_EQ(background->code(), "");
  EXPECT_EQ(second->code(), "");
}

TEST(environment, a_suspend_lets_running_users_finish_and_new_ones_wait_behind_it) {
  house h;
  h.world->behaves = [](auto&) { return behaviour::run; };
  auto first = h.use("op_1");
  h.run();
  auto suspend = h.change(purpose::suspend);
  h.run();
  auto second = h.use("op_2");
  h.run();
  EXPECT_EQ(suspend->answers, 0);
  EXPECT_EQ(h.world->begun.count("op_2"), 0u);
  h.world->complete("op_1");
  h.run();
  EXPECT_EQ(first->code(), "");
  EXPECT_EQ(suspend->code(), "");
  EXPECT_EQ(h.world->count("suspend"), 1u);
  EXPECT_EQ(h.world->count("resume"), 1u) << "the waiting use resumed it";
  EXPECT_EQ(h.world->begun.count("op_2"), 1u);
  h.world->complete("op_2");
  h.run();
  EXPECT_EQ(second->code(), "");
}

TEST(environment, an_exclusive_that_waits_too_long_gives_up_and_lets_the_rest_in) {
  house h{1, [](auto& settings) { settings.lease_wait = 10min; }};
  h.world->behaves = [](auto&) { return behaviour::run; };
  h.use("op_1");
  h.run();
  auto suspend = h.change(purpose::suspend);
  h.run();
  h.use("op_2");
  h.advance(61s, 1s);
  EXPECT_EQ(suspend->code(), "environment.busy");
  EXPECT_EQ(h.world->begun.count("op_2"), 1u);
}

TEST(environment, a_waiting_use_that_is_cancelled_is_answered_and_never_begun) {
  house h{1, [](auto& settings) { settings.max_concurrent_commands = 1; }};
  h.world->behaves = [](auto&) { return behaviour::run; };
  auto first = h.use("op_1");
  h.run();
  auto second = h.use("op_2");
  h.run();
  h.cancel("op_2");
  h.run();
  EXPECT_EQ(second->code(), "operation.cancelled");
  h.cancel("op_1");
  h.run();
  EXPECT_EQ(first->code(), "") << "the operation's own result";
  EXPECT_EQ(h.world->begun.count("op_2"), 0u);
}

// -- gone, restarted, lost (spec 15–18, 22) -------------------------------------------------------------------------------

TEST(environment, an_operation_that_did_not_start_is_run_once_more_on_a_rebuilt_instance) {
  house h;
  h.use("op_1");
  h.run();
  h.world->behaves = [&](auto&) { return h.world->count("create") == 1 ? behaviour::not_started : behaviour::answer; };
  auto use = h.use("op_2");
  h.advance(10s);
  EXPECT_EQ(use->code(), "operation.outcome_unknown") << "it was sent, and nothing proves that it was not begun";
  auto third = h.use("op_3");
  h.advance(10s);
  EXPECT_EQ(third->code(), "");
  EXPECT_EQ(h.world->count("create"), 2u);
}

TEST(environment, a_read_on_a_gone_instance_is_run_once_more_with_restarted) {
  house h;
  h.use("op_1");
  h.run();
  h.world->behaves = [&](auto&) { return h.world->count("create") == 1 ? behaviour::not_started : behaviour::answer; };
  auto use = h.use("op_2", read_only);
  h.advance(10s);
  EXPECT_EQ(use->code(), "");
  EXPECT_TRUE(use->result.restarted);
  EXPECT_EQ(use->output->bytes, "hello\n");
  EXPECT_FALSE(use->output->out_of_order);
  EXPECT_EQ(h.world->count("create"), 2u);
}

TEST(environment, an_instance_gone_before_the_session_is_rebuilt_and_the_command_runs_once) {
  house h;
  h.use("op_1");
  h.run();
  h.world->vanish("env_1");
  h.run();
  auto use = h.use("op_2");
  h.advance(10s);
  EXPECT_EQ(use->code(), "");
  EXPECT_TRUE(use->result.restarted);
  EXPECT_EQ(h.world->begun["op_2"], 1);
  EXPECT_EQ(h.world->files["env_1"].size(), 1u) << "on the kept files";
}

TEST(environment, gone_a_second_time_is_an_error) {
  house h;
  h.world->behaves = [](auto&) { return behaviour::not_started; };
  auto use = h.use("op_1", read_only);
  h.advance(20s);
  EXPECT_EQ(use->code(), "instance.gone");
  EXPECT_EQ(h.world->count("create"), 2u);
}

TEST(environment, a_command_that_may_have_run_is_never_run_again) {
  house h;
  h.world->behaves = [](auto&) { return behaviour::vanish; };
  auto use = h.use("op_1");
  h.advance(20s);
  EXPECT_EQ(use->code(), "operation.outcome_unknown");
  EXPECT_EQ(h.world->begun["op_1"], 1);
  EXPECT_EQ(use->output->closed, 1);
}

TEST(environment, unreachable_is_never_rebuilt) {
  house h;
  h.use("op_1");
  h.run();
  h.advance(3min, 1s);
  h.world->fails = [](auto& call, auto&) -> std::optional<provider_errc> {
    return call == "open" ? std::optional{provider_errc::unavailable} : std::nullopt;
  };
  auto use = h.use("op_2");
  h.advance(20s);
  EXPECT_EQ(use->code(), "sandbox.unavailable");
  EXPECT_TRUE(use->result.error->retry_after);
  EXPECT_EQ(h.world->count("create"), 1u);
  EXPECT_EQ(h.store->instance("env_1").status, "running");
  h.world->fails = {};
  auto again = h.use("op_3");
  h.advance(5s);
  EXPECT_EQ(again->code(), "");
}

TEST(environment, an_agent_that_says_nothing_is_unavailable_in_time) {
  house h;
  h.world->mute = true;
  auto use = h.use("op_1");
  h.advance(2min, 1s);
  EXPECT_EQ(use->code(), "sandbox.unavailable");
  EXPECT_EQ(h.world->open_connections(), 0u);
}

TEST(environment, an_agent_of_another_version_is_refused_with_a_reason) {
  house h;
  h.world->version = 9;
  auto use = h.use("op_1");
  h.advance(1min, 1s);
  EXPECT_EQ(use->code(), "sandbox.unavailable");
  EXPECT_TRUE(std::count(h.world->control.begin(), h.world->control.end(), "error") > 0);
}

TEST(environment, files_found_gone_are_recorded_and_nothing_works_until_a_reset) {
  house h;
  h.use("op_1");
  h.run();
  h.world->vanish("env_1");
  h.world->files["env_1"].clear();
  auto use = h.use("op_2");
  h.advance(10s);
  EXPECT_EQ(use->code(), "environment.files_lost");
  EXPECT_EQ(h.store->instance("env_1").fs_status, "lost");
  EXPECT_FALSE(h.store->instance("env_1").handle.empty()) << "a reset still destroys it";
  auto again = h.use("op_3");
  h.run();
  EXPECT_EQ(again->code(), "environment.files_lost");
  EXPECT_TRUE(h.world->files["env_1"].empty()) << "never recreated silently";
  auto reset = h.change(purpose::reset);
  h.run();
  EXPECT_EQ(reset->code(), "");
  auto after = h.use("op_4");
  h.run();
  EXPECT_EQ(after->code(), "");
  EXPECT_EQ(h.world->files["env_1"].size(), 1u);
}

TEST(environment, files_found_gone_on_opening_are_recorded_while_the_row_records_that_instance) {
  house h;
  h.use("op_1");
  h.run();
  h.advance(3min, 1s);
  h.world->fails = [](auto& call, auto&) -> std::optional<provider_errc> {
    return call == "open" ? std::optional{provider_errc::files_gone} : std::nullopt;
  };
  auto generation = h.store->instance("env_1").generation;
  auto use = h.use("op_2");
  h.run();
  EXPECT_EQ(use->code(), "environment.files_lost");
  EXPECT_EQ(h.store->instance("env_1").fs_status, "lost");
  EXPECT_EQ(h.store->instance("env_1").generation, generation + 1) << "the fence moves on";
}

TEST(environment, a_holder_learns_once_that_its_processes_are_gone) {
  house h;
  auto alice = [](use_request& request) { request.holder = "conv_a"; };
  auto bob = [](use_request& request) { request.holder = "conv_b"; };
  auto first = h.use("op_1", alice);
  h.run();
  EXPECT_FALSE(first->result.restarted) << "a first use is not a restart";
  h.world->vanish("env_1");
  auto second = h.use("op_2", alice);
  h.advance(5s);
  EXPECT_TRUE(second->result.restarted);
  auto third = h.use("op_3", alice);
  auto other = h.use("op_4", bob);
  h.run();
  EXPECT_FALSE(third->result.restarted);
  EXPECT_FALSE(other->result.restarted);
}

TEST(environment, a_restart_while_the_holder_was_away_is_told_by_another_server) {
  house before;
  before.use("op_1", [](auto& request) { request.holder = "conv_a"; });
  before.run();
  before.world->vanish("env_1");
  house after{before};
  auto use = after.use("op_2", [](auto& request) { request.holder = "conv_a"; });
  after.advance(5s);
  EXPECT_EQ(use->code(), "");
  EXPECT_TRUE(use->result.restarted);
}

TEST(environment, an_unchanged_holder_asks_the_store_once) {
  house h;
  for (int i = 0; i < 5; ++i) {
    h.use("op_" + std::to_string(i), [](auto& request) { request.holder = "conv_a"; });
    h.run();
  }
  EXPECT_EQ(h.store->count("seen"), 1u);
}

TEST(environment, a_seen_record_that_cannot_be_written_fails_no_use) {
  house h;
  h.store->fails = [](auto& call) { return call == "seen" ? std::optional{store_errc::unavailable} : std::nullopt; };
  auto use = h.use("op_1", [](auto& request) { request.holder = "conv_a"; });
  h.run();
  EXPECT_EQ(use->code(), "");
  EXPECT_FALSE(use->result.restarted);
}

// -- dropped connections (spec 56, 44) ------------------------------------------------------------------------------------

TEST(environment, reconnect_never_reruns) {
  house h;
  h.world->behaves = [](auto&) { return behaviour::drop_after_start; };
  auto use = h.use("op_1");
  h.advance(5s);
  EXPECT_EQ(use->answers, 0) << "it runs";
  EXPECT_EQ(h.world->begun["op_1"], 1);
  h.world->complete("op_1");
  h.run();
  EXPECT_EQ(use->code(), "");
  EXPECT_EQ(h.world->begun["op_1"], 1);
  EXPECT_EQ(use->output->bytes, "hello\n");
  EXPECT_EQ(use->output->closed, 0);
}

TEST(environment, output_goes_on_at_the_exact_position_after_a_dropped_connection) {
  house h;
  h.world->behaves = [](auto&) { return behaviour::run; };
  auto use = h.use("op_1");
  h.run();
  EXPECT_EQ(use->output->bytes, "hello\n");
  h.world->drop_connections("env_1");
  h.world->print("op_1", "more\n");
  h.advance(5s);
  EXPECT_EQ(use->output->bytes, "hello\nmore\n");
  EXPECT_FALSE(use->output->out_of_order);
  h.world->complete("op_1");
  h.run();
  EXPECT_EQ(use->code(), "");
  EXPECT_EQ(use->result.finals, std::vector<std::uint64_t>{11});
  EXPECT_EQ(use->observer->accepted, 2) << "the observer learns the new channel";
}

TEST(environment, an_operation_that_the_ledger_does_not_know_is_begun_again) {
  house h;
  int arrivals = 0;
  h.world->behaves = [&](auto&) { return ++arrivals == 1 ? behaviour::drop_before_ledger : behaviour::answer; };
  auto use = h.use("op_1");
  h.advance(5s);
  EXPECT_EQ(use->code(), "");
  EXPECT_EQ(h.world->begun["op_1"], 1);
}

TEST(environment, result_before_close_is_delivered) {
  house h;
  h.world->behaves = [](auto&) { return behaviour::run; };
  auto use = h.use("op_1");
  h.run();
  h.world->complete("op_1"); // result, and at once the close behind it
  h.world->drop_connections("env_1");
  h.advance(1s);
  EXPECT_EQ(use->code(), "");
  EXPECT_EQ(h.world->begun["op_1"], 1);
}

TEST(environment, a_kept_result_is_fetched_after_a_dropped_connection) {
  house h;
  h.world->behaves = [](auto&) { return behaviour::drop_after_result; };
  auto use = h.use("op_1");
  h.advance(5s);
  EXPECT_EQ(use->code(), "");
  EXPECT_EQ(use->output->bytes, "hello\n");
  EXPECT_EQ(h.world->begun["op_1"], 1);
}

TEST(environment, an_outcome_that_the_agent_does_not_know_is_told) {
  house h;
  h.world->behaves = [](auto&) { return behaviour::lose_result; };
  auto use = h.use("op_1");
  h.advance(5s);
  EXPECT_EQ(use->code(), "operation.outcome_unknown");
  EXPECT_EQ(h.world->begun["op_1"], 1);
}

TEST(environment, the_same_id_again_attaches_to_the_running_operation) {
  house h;
  h.world->behaves = [](auto&) { return behaviour::run; };
  auto first = h.use("op_1");
  h.run();
  auto second = h.use("op_1");
  h.run();
  h.world->complete("op_1");
  h.run();
  EXPECT_EQ(first->code(), "");
  EXPECT_EQ(second->code(), "");
  EXPECT_EQ(second->output->bytes, "hello\n");
  EXPECT_EQ(h.world->begun["op_1"], 1);
}

TEST(environment, the_same_id_with_other_arguments_is_a_conflict) {
  house h;
  h.use("op_1");
  h.run();
  auto other = h.use("op_1", [](auto& request) { request.digest = "another"; });
  h.run();
  EXPECT_EQ(other->code(), "operation.conflict");
}

TEST(environment, attach_and_query_find_what_another_server_began) {
  house before;
  before.world->behaves = [](auto&) { return behaviour::run; };
  before.use("op_1");
  before.run();
  house after{before};
  auto query = after.use("op_1", [](auto& request) {
    request.kind = use_kind::query;
    request.streams.clear();
  });
  auto attach = after.use("op_1", [](auto& request) {
    request.kind = use_kind::attach;
    request.attach_from = 2;
  });
  after.run();
  EXPECT_EQ(query->code(), "");
  EXPECT_EQ(query->result.result->at("state").as_string(), "running");
  after.world->complete("op_1");
  after.run();
  EXPECT_EQ(attach->code(), "");
  EXPECT_EQ(after.world->begun["op_1"], 1);
}

TEST(environment, every_session_has_a_higher_epoch) {
  house h;
  h.use("op_1");
  h.run();
  for (int i = 0; i < 3; ++i) {
    h.world->drop_connections("env_1");
    h.run();
    h.use("op_again_" + std::to_string(i));
    h.advance(5s);
  }
  h.change(purpose::suspend);
  h.run();
  auto last = h.use("op_last");
  h.advance(5s);
  EXPECT_EQ(last->code(), ""); // the world complains of an epoch that doesn't grow
  EXPECT_EQ(h.world->connections, 5u);
}

// -- store and lifecycle --------------------------------------------------------------------------------------------------

TEST(environment, a_fenced_write_is_looked_at_again_and_nothing_is_overwritten) {
  house h{1, {}, false};
  bool once = true;
  h.store->fails = [&](auto& call) -> std::optional<store_errc> {
    if (call == "write" && std::exchange(once, false))
      return store_errc::fenced;
    return std::nullopt;
  };
  auto use = h.use("op_1");
  h.run();
  EXPECT_EQ(use->code(), "");
  EXPECT_EQ(h.world->count("create"), 1u);
}

TEST(environment, a_fence_that_moves_on_twice_is_a_lost_lease) {
  house h;
  h.store->fails = [](auto& call) { return call == "write" ? std::optional{store_errc::fenced} : std::nullopt; };
  auto use = h.use("op_1");
  h.run();
  EXPECT_EQ(use->code(), "lease.lost");
  EXPECT_EQ(h.world->calls.size(), 0u);
}

TEST(environment, a_store_that_does_not_answer_is_given_up_in_time) {
  house h;
  h.store->held_names = {"load"};
  auto use = h.use("op_1");
  h.advance(16s, 1s);
  EXPECT_EQ(use->code(), "storage.unavailable");
  h.store->release();
  h.run();
  EXPECT_EQ(use->answers, 1);
  auto again = h.use("op_2");
  h.run();
  EXPECT_EQ(again->code(), "");
}

TEST(environment, a_write_whose_answer_was_lost_is_found_and_finished) {
  house h;
  h.store->stores_though_unavailable = true;
  int writes = 0;
  h.store->fails = [&](auto& call) -> std::optional<store_errc> {
    return call == "write" && ++writes == 1 ? std::optional{store_errc::unavailable} : std::nullopt;
  };
  auto use = h.use("op_1");
  h.run();
  EXPECT_EQ(use->code(), "storage.unavailable");
  EXPECT_EQ(h.store->instance("env_1").status, "creating");
  auto again = h.use("op_2");
  h.run();
  EXPECT_EQ(again->code(), "");
  EXPECT_EQ(h.store->instance("env_1").status, "running");
}

TEST(environment, a_late_answer_of_the_provider_is_logged_and_not_acted_on) {
  house h{1, [](auto& settings) { settings.create_timeout = 5s; }};
  h.checks_calls = false;
  h.pool->holds = true;
  auto use = h.use("op_1");
  h.advance(6s);
  EXPECT_EQ(use->code(), "sandbox.unavailable");
  EXPECT_EQ(h.store->instance("env_1").status, "creating");
  h.pool->release();
  h.run();
  EXPECT_TRUE(h.logged("provider.late_answer"));
  EXPECT_EQ(h.store->instance("env_1").status, "creating");
  auto again = h.use("op_2");
  h.run();
  EXPECT_EQ(again->code(), "");
  EXPECT_EQ(h.world->instances.at("env_1").generation, h.store->instance("env_1").generation - 1);
}

TEST(environment, a_refusal_of_the_provider_passes_through) {
  house h;
  h.world->fails = [](auto& call, auto&) { return call == "create" ? std::optional{provider_errc::refused} : std::nullopt; };
  auto use = h.use("op_1");
  h.run();
  EXPECT_EQ(use->code(), "sandbox.refused");
}

TEST(environment, an_instance_that_keeps_vanishing_is_not_rebuilt_without_end) {
  house h;
  for (int i = 0; i < 20; ++i) {
    h.use("op_" + std::to_string(i));
    h.run();
    h.world->vanish("env_1");
    h.run();
  }
  EXPECT_LE(h.world->count("create"), 8u);
  EXPECT_TRUE(h.logged("environment.rebuilds_exhausted"));
}

TEST(environment, uses_that_wait_for_one_create_share_it) {
  house h;
  std::vector<std::shared_ptr<asked>> uses;
  for (int i = 0; i < 6; ++i)
    uses.push_back(h.use("op_" + std::to_string(i)));
  h.run();
  for (auto& use : uses)
    EXPECT_EQ(use->code(), "");
  EXPECT_EQ(h.world->count("create"), 1u);
}

TEST(environment, a_reset_gives_new_files) {
  house h;
  h.use("op_1");
  h.run();
  auto before = h.store->instance("env_1").file_system_id;
  auto reset = h.change(purpose::reset);
  h.run();
  EXPECT_EQ(reset->code(), "");
  EXPECT_TRUE(h.world->files["env_1"].empty());
  h.use("op_2");
  h.run();
  EXPECT_NE(h.store->instance("env_1").file_system_id, before);
}

TEST(environment, a_removal_ends_instance_files_and_rows_and_its_operation) {
  house h;
  h.use("op_1");
  h.run();
  h.store->rows.at("env_1").environment.deleted_at = 1;
  auto remove = h.change(purpose::remove, [](auto& call) { call.operation_id = "op_del"; });
  auto use = h.use("op_2");
  h.run();
  EXPECT_EQ(remove->code(), "");
  EXPECT_EQ(use->code(), "environment.not_found");
  EXPECT_FALSE(h.store->rows.contains("env_1"));
  EXPECT_TRUE(h.world->instances.empty());
  EXPECT_TRUE(h.world->files["env_1"].empty());
  EXPECT_TRUE(h.world->forgotten.contains("env_1"));
  EXPECT_EQ(h.store->operations["op_del"].status, "done");
}

TEST(environment, a_failed_removal_keeps_the_row_and_says_so) {
  house h;
  h.use("op_1");
  h.run();
  h.store->rows.at("env_1").environment.deleted_at = 1;
  h.world->fails = [](auto& call, auto&) {
    return call == "destroy" ? std::optional{provider_errc::unavailable} : std::nullopt;
  };
  auto remove = h.change(purpose::remove, [](auto& call) { call.operation_id = "op_del"; });
  h.run();
  EXPECT_EQ(remove->code(), "sandbox.unavailable");
  EXPECT_EQ(h.store->operations["op_del"].status, "failed");
  EXPECT_TRUE(h.store->instance("env_1").sweep_failed_at);
  h.world->fails = {};
  h.sweep("remove");
  h.run();
  EXPECT_FALSE(h.store->rows.contains("env_1"));
}

TEST(environment, a_suspend_detaches_what_still_runs_and_it_is_found_again) {
  house h;
  h.world->behaves = [](auto&) { return behaviour::run; };
  auto background = h.use("op_1", [](auto& request) { request.releases_when_accepted = true; });
  h.run();
  auto suspend = h.change(purpose::suspend);
  h.run();
  EXPECT_EQ(suspend->code(), "");
  EXPECT_EQ(background->code(), "operation.detached");
  EXPECT_EQ(h.world->open_connections(), 0u);
  auto attach = h.use("op_1", [](auto& request) { request.kind = use_kind::attach; });
  h.advance(5s);
  h.world->complete("op_1");
  h.run();
  EXPECT_EQ(attach->code(), "");
  EXPECT_EQ(h.world->begun["op_1"], 1);
}

TEST(environment, stopping_answers_everything) {
  house h{1, [](auto& settings) { settings.max_concurrent_commands = 1; }};
  h.world->behaves = [](auto&) { return behaviour::run; };
  auto running = h.use("op_1");
  h.run();
  auto waiting = h.use("op_2");
  auto suspend = h.change(purpose::suspend);
  h.run();
  h.stop();
  EXPECT_EQ(running->code(), "server.stopping");
  EXPECT_EQ(waiting->code(), "server.stopping");
  EXPECT_EQ(suspend->code(), "server.stopping");
  EXPECT_EQ(h.world->open_connections(), 0u);
  EXPECT_TRUE(h.world->instances.contains("env_1")) << "sandboxes live on";
}

TEST(environment, too_many_environments_are_refused_clearly) {
  house h;
  std::vector<std::shared_ptr<asked>> uses;
  for (int i = 0; i < 101; ++i) {
    auto id = "env_many_" + std::to_string(i);
    h.store->add_environment(id);
    uses.push_back(h.use("op_" + std::to_string(i), [&](auto& request) { request.environment_id = id; }));
    h.run();
  }
  EXPECT_EQ(uses[99]->code(), "");
  EXPECT_EQ(uses[100]->code(), "environment.busy");
}

TEST(environment, last_use_is_written_now_and_then) {
  house h;
  for (int i = 0; i < 30; ++i) {
    h.use("op_" + std::to_string(i));
    h.advance(1s);
  }
  EXPECT_GE(h.store->touched.size(), 3u);
  EXPECT_LE(h.store->touched.size(), 5u);
}

// -- sweeps (spec 23–29) --------------------------------------------------------------------------------------------------

TEST(sweeps, an_idle_instance_is_suspended_and_an_unused_one_destroyed_with_its_files_kept) {
  house h;
  h.use("op_1");
  h.run();
  h.advance(31min, 10s);
  h.sweep("suspend");
  h.advance(1s);
  EXPECT_EQ(h.store->instance("env_1").status, "suspended");
  h.advance(24h * 8, 1h);
  h.sweep("destroy");
  h.advance(1s);
  EXPECT_EQ(h.store->instance("env_1").status, "destroyed");
  EXPECT_TRUE(h.world->instances.empty());
  EXPECT_EQ(h.world->files["env_1"].size(), 1u);
}

TEST(sweeps, long_running_is_not_idle) {
  house h;
  h.world->behaves = [](auto&) { return behaviour::run; };
  h.use("op_1", [](auto& request) { request.releases_when_accepted = true; });
  h.run();
  house later{h}; // nobody follows it any more
  later.advance(2h, 1min);
  later.sweep("suspend");
  later.advance(1s);
  EXPECT_EQ(later.store->instance("env_1").status, "running");
  later.world->complete("op_1");
  later.advance(2h, 1min);
  later.sweep("suspend");
  later.advance(1s);
  EXPECT_EQ(later.store->instance("env_1").status, "suspended");
}

TEST(sweeps, activity_is_rechecked_under_the_lease) {
  house h;
  h.use("op_1");
  h.run();
  h.advance(31min, 10s);
  // The sweep has read the row; before it has the lease somebody uses the environment.
  h.store->held_names = {"list"};
  h.sweep("suspend");
  h.run();
  h.world->behaves = [](auto&) { return behaviour::run; };
  auto use = h.use("op_2");
  h.run();
  h.store->release();
  h.advance(6s);
  h.world->complete("op_2");
  h.advance(1s);
  EXPECT_EQ(use->code(), "");
  EXPECT_EQ(h.store->instance("env_1").status, "running");
  EXPECT_EQ(h.world->count("suspend"), 0u);
}

TEST(sweeps, a_use_that_came_and_went_since_the_row_was_read_counts) {
  house h;
  h.use("op_1");
  h.run();
  h.advance(31min, 10s);
  h.store->held_names = {"list"};
  h.sweep("suspend");
  h.run();
  auto held_row = h.store->instance("env_1").last_used_at;
  h.use("op_2");
  h.run();
  h.store->instance("env_1").last_used_at = held_row; // the touch is not there yet
  h.store->release();
  h.advance(6s);
  EXPECT_EQ(h.world->count("suspend"), 0u);
}

TEST(sweeps, a_sweep_never_overlaps_itself) {
  house h;
  h.store->held_names = {"list"};
  h.sweep("suspend");
  h.sweep("suspend");
  h.sweep("suspend");
  h.run();
  h.store->release();
  h.run();
  EXPECT_EQ(h.store->count("list"), 1u);
}

TEST(sweeps, many_environments_are_swept_a_few_at_a_time_and_counted) {
  house h;
  for (int i = 0; i < 250; ++i) {
    auto id = "env_deleted_" + std::to_string(i);
    h.store->add_environment(id);
    h.store->rows.at(id).environment.deleted_at = 1;
  }
  h.sweep("remove");
  h.run();
  EXPECT_EQ(h.store->rows.size(), 1u);
  EXPECT_TRUE(std::any_of(h.log.begin(), h.log.end(), [](auto& line) {
    return line.first == "sweep.done" && line.second.find("\"done\":250") != std::string::npos;
  }));
}

TEST(sweeps, what_a_crash_left_half_done_is_settled) {
  for (auto [status, settled] : {std::pair{"creating", "destroyed"}, {"suspending", "suspended"}, {"resuming", "suspended"},
                                 {"destroying", "destroyed"}, {"resetting", "destroyed"}}) {
    house before;
    before.use("op_1");
    before.run();
    before.store->instance("env_1").status = status;
    house after{before};
    after.sweep("settle");
    after.run();
    EXPECT_EQ(after.store->instance("env_1").status, settled) << status;
  }
}

} // namespace
} // namespace holt::actors
