#include <atomic>
#include <csignal>

#include <gtest/gtest.h>

#include "protocols/base64.hpp"
#include "protocols/json.hpp"
#include "tests/runtime/cli/cli_process.hpp"
#include "tests/runtime/cli/scripted_server.hpp"

using namespace holt::test;

namespace {

constexpr auto exec_target = "/v1/environments/env_1/exec";
constexpr auto processes = "/v1/environments/env_1/processes/";

std::map<std::string, std::string> access_to(const scripted_server& server) {
  return {{"HOLT_URL", server.url()}, {"HOLT_KEY", "holt_secret"}, {"HOME", "/nonexistent"}};
}

std::string output(const std::string& bytes) {
  return "{\"b64\":\"" + holt::protocols::base64_encode(bytes) + "\"}";
}

/// The command's op_id, from the body that asked for it.
std::string op_id_of(const seen_request& request) {
  auto body = holt::protocols::json::parse_text(request.body);
  return body ? std::string(body->at("op_id").as_string()) : std::string{};
}

bool asks_for_command(const seen_request& request) {
  return request.method == "POST" && request.target == exec_target;
}

/// A server that answers exec with these events at once.
scripted_server::handler command_that(std::vector<std::pair<std::string, std::string>> events) {
  return [events = std::move(events)](const seen_request& request, reply_channel& reply) {
    if (!asks_for_command(request))
      return reply.problem(404, "not_found", "no");
    reply.begin_events();
    int position = 0;
    for (const auto& [type, data] : events)
      reply.event(op_id_of(request) + ":" + std::to_string(++position), type, data);
    reply.end_events();
  };
}

} // namespace

TEST(cli_exec, prints_both_outputs_byte_for_byte_and_returns_the_exit_code) {
  std::string bytes("\0\xff\r\n", 4);
  scripted_server server(command_that({{"started", "{}"},
                                       {"stdout", output("one\n" + bytes)},
                                       {"stderr", output("warning\n")},
                                       {"stdout", output("two")},
                                       {"exit", R"({"exit_code":7,"state":"exited"})"}}));
  cli_process holt({"exec", "env_1", "--", "make", "-k", "--", "all"}, access_to(server));
  EXPECT_EQ(holt.wait(), 7);
  EXPECT_EQ(holt.out(), "one\n" + bytes + "two");
  EXPECT_EQ(holt.err(), "warning\n");
  auto request = server.requests().at(0);
  EXPECT_EQ(request.headers["authorization"], "Bearer holt_secret");
  EXPECT_EQ(request.headers["accept"], "text/event-stream");
  auto body = holt::protocols::json::parse_text(request.body);
  ASSERT_TRUE(body);
  EXPECT_EQ(body->at("argv"), boost::json::value({"make", "-k", "--", "all"}));
  EXPECT_EQ(body->at("output_encoding"), "base64");
  EXPECT_FALSE(body->as_object().contains("keep_stdin_open")) << "stdin is /dev/null";
}

TEST(cli_exec, a_signal_that_ended_the_command_is_128_and_its_number) {
  scripted_server server(command_that({{"started", "{}"}, {"exit", R"({"signal":"SIGSEGV","state":"killed"})"}}));
  cli_process holt({"exec", "env_1", "--", "x"}, access_to(server));
  EXPECT_EQ(holt.wait(), 128 + SIGSEGV);
}

TEST(cli_exec, passes_options_on) {
  scripted_server server(command_that({{"started", "{}"}, {"exit", R"({"exit_code":0})"}}));
  cli_process holt({"--json", "exec", "env_1", "--cwd", "src", "-e", "A=1", "-e", "B=x=y", "--timeout", "2m", "--op-id",
                    "mine", "-c", "a | b"},
                   access_to(server));
  EXPECT_EQ(holt.wait(), 0) << holt.err();
  auto body = holt::protocols::json::parse_text(server.requests().at(0).body);
  ASSERT_TRUE(body);
  EXPECT_EQ(body->at("command"), "a | b");
  EXPECT_EQ(body->at("cwd"), "src");
  EXPECT_EQ(body->at("env"), (boost::json::value{{"A", "1"}, {"B", "x=y"}}));
  EXPECT_EQ(body->at("timeout_ms").to_number<int>(), 120000);
  EXPECT_EQ(body->at("op_id"), "mine");
}

TEST(cli_exec, json_is_one_object_with_all_the_output) {
  scripted_server server(command_that({{"started", "{}"},
                                       {"stdout", output("ab")},
                                       {"stderr", output(std::string("\xff", 1))},
                                       {"stdout", output("c")},
                                       {"exit", R"({"exit_code":4,"state":"exited","duration_ms":12})"}}));
  cli_process holt({"exec", "env_1", "--json", "--", "x"}, access_to(server));
  EXPECT_EQ(holt.wait(), 4);
  auto shown = holt::protocols::json::parse_text(holt.out());
  ASSERT_TRUE(shown) << holt.out();
  EXPECT_EQ(shown->at("stdout"), "abc");
  EXPECT_EQ(shown->at("stderr"), (boost::json::value{{"b64", "/w=="}}));
  EXPECT_EQ(shown->at("exit_code").to_number<int>(), 4);
  EXPECT_EQ(shown->at("duration_ms").to_number<int>(), 12);
}

TEST(cli_exec, a_cut_connection_goes_on_at_the_last_position_and_runs_nothing_again) {
  std::atomic<int> attached = 0;
  std::string op_id;
  scripted_server server([&](const seen_request& request, reply_channel& reply) {
    if (asks_for_command(request)) {
      op_id = op_id_of(request);
      reply.begin_events();
      reply.event(op_id + ":0", "started", "{}");
      reply.event(op_id + ":4", "stdout", output("one\n"));
      return reply.cut();
    }
    switch (++attached) {
    case 1: // refused for now: the server is just starting again
      return reply.problem(503, "server.starting", "Not yet.");
    case 2: // cut again, before anything came
      return reply.cut();
    case 3:
      reply.begin_events();
      reply.event(op_id + ":8", "stdout", output("two\n"));
      return reply.cut();
    default:
      reply.begin_events();
      reply.event(op_id + ":14", "stdout", output("three\n"));
      reply.event(op_id + ":14", "exit", R"({"exit_code":3})");
      return reply.end_events();
    }
  });
  cli_process holt({"exec", "env_1", "--", "x"}, access_to(server));
  EXPECT_EQ(holt.wait(), 3) << holt.err();
  EXPECT_EQ(holt.out(), "one\ntwo\nthree\n");
  EXPECT_EQ(server.count("POST", exec_target), 1u);
  auto requests = server.requests();
  ASSERT_EQ(requests.size(), 5u);
  auto events = processes + op_id + "/events?";
  EXPECT_TRUE(requests[1].target.starts_with(events)) << requests[1].target;
  EXPECT_TRUE(requests[1].target.ends_with("after=4")) << requests[1].target;
  EXPECT_TRUE(requests[3].target.ends_with("after=4"));
  EXPECT_TRUE(requests[4].target.ends_with("after=8"));
}

TEST(cli_exec, a_stream_that_ends_without_an_exit_is_lost_and_not_a_success) {
  std::string op_id;
  scripted_server server([&](const seen_request& request, reply_channel& reply) {
    if (asks_for_command(request)) {
      op_id = op_id_of(request);
      reply.begin_events();
      reply.event(op_id + ":0", "started", "{}");
      return reply.end_events();
    }
    reply.problem(410, "operation.expired", "The result is not kept any more.");
  });
  cli_process holt({"exec", "env_1", "--", "x"}, access_to(server));
  EXPECT_EQ(holt.wait(), 77);
  EXPECT_NE(holt.err().find("not kept any more"), std::string::npos);
}

TEST(cli_exec, an_unknown_outcome_is_said_and_never_an_exit_code) {
  scripted_server server(command_that({{"started", "{}"}, {"exit", R"({"state":"unknown"})"}}));
  cli_process holt({"exec", "env_1", "--", "x"}, access_to(server));
  EXPECT_EQ(holt.wait(), 69);
  EXPECT_NE(holt.err().find("not known how the command ended"), std::string::npos);
}

TEST(cli_exec, a_request_cut_before_any_answer_is_asked_after_and_repeated_only_under_its_own_id) {
  std::atomic<int> asked = 0;
  scripted_server server([&](const seen_request& request, reply_channel& reply) {
    if (!asks_for_command(request))
      return reply.problem(404, "process.not_found", "There is no such process.");
    if (++asked == 1)
      return reply.cut();
    reply.begin_events();
    reply.event(op_id_of(request) + ":0", "started", "{}");
    reply.event(op_id_of(request) + ":0", "exit", R"({"exit_code":0})");
    reply.end_events();
  });
  cli_process holt({"exec", "env_1", "--", "x"}, access_to(server));
  EXPECT_EQ(holt.wait(), 0) << holt.err();
  auto requests = server.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[1].method, "GET");
  EXPECT_EQ(requests[0].body, requests[2].body) << "the same op_id and arguments: it can't run twice (spec 44)";
}

TEST(cli_exec, a_refusal_is_one_line_and_its_exit_code) {
  struct {
    int status;
    const char* code;
    int expected;
  } const cases[] = {{404, "environment.not_found", 77}, {401, "auth.missing", 77},
                     {429, "environment.busy", 69},      {503, "sandbox.unavailable", 69},
                     {400, "request.invalid", 64},       {500, "internal", 70},
                     {409, "operation.conflict", 77},    {409, "operation.outcome_unknown", 69}};
  for (const auto& one : cases) {
    scripted_server server(
        [&](const seen_request&, reply_channel& reply) { reply.problem(one.status, one.code, "The reason of it."); });
    cli_process holt({"exec", "env_1", "--", "x"}, access_to(server));
    EXPECT_EQ(holt.wait(), one.expected) << one.code;
    EXPECT_EQ(holt.err().rfind("holt: The reason of it. (", 0), 0u) << holt.err();
    EXPECT_EQ(std::count(holt.err().begin(), holt.err().end(), '\n'), 1) << holt.err();
    EXPECT_EQ(server.requests().size(), 1u) << "asked once: " << one.code;
    EXPECT_EQ(holt.err().find("holt_secret"), std::string::npos);
  }
}

TEST(cli_exec, stdin_goes_along_and_ends) {
  std::string received;
  scripted_server server([&](const seen_request& request, reply_channel& reply) {
    if (asks_for_command(request)) {
      reply.begin_events();
      reply.event(op_id_of(request) + ":0", "started", "{}");
      if (!reply.server().wait_for("POST", processes + op_id_of(request) + "/stdin?close=true"))
        return;
      reply.event(op_id_of(request) + ":0", "exit", R"({"exit_code":0})");
      return reply.end_events();
    }
    received += request.body;
    reply.answer(200, R"({"written_bytes":1,"closed":false,"state":"running"})");
  });
  cli_process holt({"exec", "env_1", "--", "cat"}, access_to(server), true);
  holt.write_stdin("first");
  std::string zeros("\0\0", 2);
  holt.write_stdin(zeros);
  holt.close_stdin();
  EXPECT_EQ(holt.wait(), 0) << holt.err();
  EXPECT_EQ(received, "first" + zeros);
  auto body = holt::protocols::json::parse_text(server.requests().at(0).body);
  EXPECT_EQ(body->at("keep_stdin_open"), true);
}

TEST(cli_exec, a_command_that_ends_before_its_stdin_does_not_hang) {
  scripted_server server(command_that({{"started", "{}"}, {"exit", R"({"exit_code":0})"}}));
  cli_process holt({"exec", "env_1", "--", "true"}, access_to(server), true);
  EXPECT_EQ(holt.wait(), 0) << holt.err();
}

TEST(cli_exec, stdin_that_is_lost_on_the_way_stops_the_command_as_soon_as_the_server_takes_it) {
  scripted_server server([&](const seen_request& request, reply_channel& reply) {
    if (asks_for_command(request)) {
      reply.begin_events();
      reply.event(op_id_of(request) + ":0", "started", "{}");
      if (!reply.server().wait_for("POST", processes + op_id_of(request) + "/stop", 2))
        return;
      reply.event(op_id_of(request) + ":0", "exit", R"({"signal":"SIGTERM","state":"stopped"})");
      return reply.end_events();
    }
    auto stops = reply.server().count("POST", processes + std::string("op_"));
    if (request.target.ends_with("/stdin") || stops == 2) // the first /stop is lost too
      return reply.cut();
    reply.answer(200, "{}");
  });
  cli_process holt({"exec", "env_1", "--", "cat"}, access_to(server), true);
  holt.write_stdin("half of");
  EXPECT_EQ(holt.wait(), 69);
  EXPECT_NE(holt.err().find("the command was stopped"), std::string::npos) << holt.err();
}

TEST(cli_exec, ctrl_c_goes_to_the_command_and_a_second_one_stops_it) {
  scripted_server server([](const seen_request& request, reply_channel& reply) {
    if (asks_for_command(request)) {
      auto op_id = op_id_of(request);
      reply.begin_events();
      reply.event(op_id + ":0", "started", "{}");
      reply.event(op_id + ":6", "stdout", output("ready\n"));
      if (!reply.server().wait_for("POST", processes + op_id + "/stop"))
        return;
      reply.event(op_id + ":6", "exit", R"({"signal":"SIGKILL","state":"stopped"})");
      return reply.end_events();
    }
    reply.answer(200, "{}");
  });
  cli_process holt({"exec", "env_1", "--", "x"}, access_to(server));
  ASSERT_TRUE(server.wait_for("POST", exec_target));
  auto op_id = op_id_of(server.requests().at(0));
  holt.signal(SIGINT);
  ASSERT_TRUE(server.wait_for("POST", processes + op_id + "/signal"));
  holt.signal(SIGINT);
  EXPECT_EQ(holt.wait(), 137) << holt.err();
  auto requests = server.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[1].body, R"({"signal":"SIGINT"})");
}

TEST(cli_exec, ctrl_c_before_the_start_reaches_the_command_when_it_starts) {
  std::string op_id;
  cli_process* client = nullptr;
  std::mutex ready;
  ready.lock();
  scripted_server server([&](const seen_request& request, reply_channel& reply) {
    if (asks_for_command(request)) {
      op_id = op_id_of(request);
      ready.lock(); // until the test has the process in hand
      client->signal(SIGINT);
      reply.begin_events();
      reply.event(op_id + ":0", "started", "{}");
      if (!reply.server().wait_for("POST", processes + op_id + "/signal"))
        return;
      reply.event(op_id + ":0", "exit", R"({"signal":"SIGINT","state":"killed"})");
      return reply.end_events();
    }
    reply.answer(200, "{}");
  });
  cli_process holt({"exec", "env_1", "--", "x"}, access_to(server));
  client = &holt;
  ready.unlock();
  EXPECT_EQ(holt.wait(), 130) << holt.err();
}

TEST(cli_exec, without_a_server_says_what_to_do) {
  std::string url;
  {
    scripted_server gone([](const seen_request&, reply_channel&) {});
    url = gone.url();
  }
  cli_process holt({"exec", "env_1", "--", "x"}, {{"HOLT_URL", url}, {"HOLT_KEY", "k"}});
  EXPECT_EQ(holt.wait(), 69);
  EXPECT_NE(holt.err().find("is holt serve running"), std::string::npos) << holt.err();
}

TEST(cli_exec, something_that_is_no_holt_is_a_bug_and_no_crash) {
  scripted_server server([](const seen_request&, reply_channel& reply) {
    reply.begin_events();
    reply.event("x:1", "stdout", "no json");
    reply.end_events();
  });
  cli_process holt({"exec", "env_1", "--", "x"}, access_to(server));
  EXPECT_EQ(holt.wait(), 70);
}
