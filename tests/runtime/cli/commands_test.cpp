#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <sys/stat.h>

#include <gtest/gtest.h>

#include "protocols/json.hpp"
#include "tests/runtime/cli/cli_process.hpp"
#include "tests/runtime/cli/scripted_server.hpp"

using namespace holt::test;

namespace {

std::map<std::string, std::string> access_to(const scripted_server& server) {
  return {{"HOLT_URL", server.url()}, {"HOLT_KEY", "holt_secret"}, {"HOME", "/nonexistent"}};
}

/// Environments on two pages: box, twin, twin.
void answer_lists(const seen_request& request, reply_channel& reply) {
  if (request.target.find("cursor=") == std::string::npos)
    return reply.answer(200,
                        R"({"items":[{"id":"env_1","name":"box","kind":"cloud","created_at":"2030-01-01T00:00:00.000Z",
      "instance":{"status":"running","fs_status":"ok"}},{"id":"env_2","name":"twin","kind":"cloud"}],"next_cursor":"a b"})");
  reply.answer(200, R"({"items":[{"id":"env_3","name":"twin","kind":"cloud"}]})");
}

} // namespace

TEST(cli_env, create_prints_the_id_and_sends_what_was_given) {
  scripted_server server(
      [](const seen_request&, reply_channel& reply) { reply.answer(201, R"({"id":"env_9","name":"box"})"); });
  cli_process holt({"env", "create", "box", "--memory", "512M", "--cpus", "0.5", "--suspend-after", "10m", "--label",
                    "a=b", "--label", "c=d", "--network", "none"},
                   access_to(server));
  EXPECT_EQ(holt.wait(), 0) << holt.err();
  EXPECT_EQ(holt.out(), "env_9\n");
  auto request = server.requests().at(0);
  EXPECT_EQ(request.method + ' ' + request.target, "POST /v1/environments");
  auto body = holt::protocols::json::parse_text(request.body);
  EXPECT_EQ(*body, holt::protocols::json::parse_text(R"({"name":"box","network":"none","suspend_after_ms":600000,
    "limits":{"memory_bytes":536870912,"cpus":0.5},"labels":{"a":"b","c":"d"}})"));
}

TEST(cli_env, list_follows_the_pages_as_a_table_or_as_json) {
  scripted_server server(answer_lists);
  cli_process people({"env", "list"}, access_to(server));
  EXPECT_EQ(people.wait(), 0) << people.err();
  EXPECT_NE(people.out().find("env_1  box   cloud  running"), std::string::npos) << people.out();
  EXPECT_NE(people.out().find("env_3"), std::string::npos);
  cli_process programs({"env", "list", "--json"}, access_to(server));
  EXPECT_EQ(programs.wait(), 0);
  auto shown = holt::protocols::json::parse_text(programs.out());
  ASSERT_TRUE(shown);
  EXPECT_EQ(shown->at("items").as_array().size(), 3u);
}

TEST(cli_env, a_name_stands_for_its_id_unless_several_have_it) {
  scripted_server server([](const seen_request& request, reply_channel& reply) {
    if (request.target.starts_with("/v1/environments?"))
      return answer_lists(request, reply);
    reply.answer(200, R"({"id":"env_1","name":"box"})");
  });
  cli_process by_name({"env", "suspend", "box"}, access_to(server));
  EXPECT_EQ(by_name.wait(), 0) << by_name.err();
  EXPECT_EQ(server.count("POST", "/v1/environments/env_1/suspend"), 1u);
  cli_process twins({"env", "suspend", "twin"}, access_to(server));
  EXPECT_EQ(twins.wait(), 64);
  EXPECT_NE(twins.err().find("env_2, env_3"), std::string::npos) << twins.err();
  cli_process nobody({"env", "suspend", "nobody"}, access_to(server));
  EXPECT_EQ(nobody.wait(), 64);
  EXPECT_NE(nobody.err().find("holt env list"), std::string::npos);
}

TEST(cli_env, delete_waits_for_its_operation_and_tells_a_failure) {
  scripted_server server([](const seen_request& request, reply_channel& reply) {
    if (request.method == "DELETE")
      return reply.answer(202, R"({"id":"op_1","status":"running"})");
    bool first = reply.server().count("GET", "/v1/operations/op_1") == 1;
    reply.answer(200,
                 first ? R"({"id":"op_1","status":"running"})" : R"({"id":"op_1","status":"failed","error":"disk"})");
  });
  cli_process holt({"env", "delete", "env_1"}, access_to(server));
  EXPECT_EQ(holt.wait(), 69);
  EXPECT_EQ(server.count("GET", "/v1/operations/op_1"), 2u);
  EXPECT_NE(holt.err().find("disk"), std::string::npos);
}

TEST(cli_env, ls_shows_names_that_can_not_draw_on_the_terminal) {
  scripted_server server([](const seen_request& request, reply_channel& reply) {
    if (request.method == "GET")
      return reply.answer(200, R"({"id":"env_1","roots":{"workspace":"/home/me/work","skills":"/s","tmp":"/t"}})");
    reply.answer(200, R"({"items":[{"name":"dir","type":"directory","size":0,"mode":"0755"},
      {"name":"a\u001b[2J","type":"file","size":3,"mode":"0644"},{"name":{"b64":"/w=="},"type":"file","size":1,"mode":"0600"}],"truncated":false})");
  });
  cli_process holt({"env", "ls", "env_1:src"}, access_to(server));
  EXPECT_EQ(holt.wait(), 0) << holt.err();
  EXPECT_EQ(holt.out(), "dir/\na?[2J\n\xff\n");
  auto body = holt::protocols::json::parse_text(server.requests().at(1).body);
  EXPECT_EQ(body->at("path"), "/home/me/work/src")
      << "relative paths start at the environment's own workspace (spec 3)";
}

TEST(cli_env, rm_asks_for_recursion_only_when_told_and_never_takes_a_whole_environment) {
  scripted_server server([](const seen_request&, reply_channel& reply) { reply.answer(204, ""); });
  cli_process one({"env", "rm", "env_1:/workspace/a b"}, access_to(server));
  EXPECT_EQ(one.wait(), 0) << one.err();
  EXPECT_EQ(server.requests().at(0).target, "/v1/environments/env_1/files/workspace/a%20b");
  cli_process tree({"env", "rm", "-r", "env_1:/workspace/d"}, access_to(server));
  EXPECT_EQ(tree.wait(), 0);
  EXPECT_EQ(server.requests().at(1).target, "/v1/environments/env_1/files/workspace/d?recursive=true");
  cli_process all({"env", "rm", "-r", "env_1"}, access_to(server));
  EXPECT_EQ(all.wait(), 64);
  EXPECT_EQ(server.requests().size(), 2u);
}

TEST(cli_usage, mistakes_are_64_and_one_line) {
  for (std::vector<std::string> args : std::vector<std::vector<std::string>>{{},
                                                                             {"nonsense"},
                                                                             {"env"},
                                                                             {"env", "show"},
                                                                             {"env", "list", "--wrong"},
                                                                             {"exec", "env_1"},
                                                                             {"exec", "env_1", "--"},
                                                                             {"exec", "env_1", "-c", "a", "--", "b"},
                                                                             {"env", "create", "--memory", "much"},
                                                                             {"cp", "a", "b"},
                                                                             {"cp", "a:x", "b:y"},
                                                                             {"shell", "env_1"}}) {
    cli_process holt(args, {{"HOLT_URL", "http://127.0.0.1:9"}, {"HOLT_KEY", "k"}});
    EXPECT_EQ(holt.wait(), 64) << testing::PrintToString(args) << holt.err();
    EXPECT_EQ(std::count(holt.err().begin(), holt.err().end(), '\n'), 1) << holt.err();
  }
}

TEST(cli_usage, help_is_on_stdout_and_a_success) {
  cli_process all({"--help"}, {});
  EXPECT_EQ(all.wait(), 0);
  EXPECT_NE(all.out().find("exec"), std::string::npos);
  cli_process one({"exec", "--help"}, {});
  EXPECT_EQ(one.wait(), 0);
  EXPECT_NE(one.out().find("--op-id"), std::string::npos) << one.out();
}

class cli_login : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "holt-login-XXXXXX";
    folder = ::mkdtemp(pattern.data());
    std::ofstream(folder + "/key") << "holt_secret\n";
  }
  void TearDown() override {
    std::filesystem::remove_all(folder);
  }
  std::string folder;
};

TEST_F(cli_login, tries_the_key_and_keeps_it_for_its_owner_alone) {
  scripted_server server([](const seen_request& request, reply_channel& reply) {
    if (request.headers.at("authorization") != "Bearer holt_secret")
      return reply.problem(401, "auth.invalid", "No.");
    answer_lists(request, reply);
  });
  std::map<std::string, std::string> variables{{"HOME", folder}};
  cli_process login({"login", "--url", server.url(), "--key-file", folder + "/key"}, variables);
  EXPECT_EQ(login.wait(), 0) << login.err();
  EXPECT_EQ(login.out().find("holt_secret"), std::string::npos);
  struct stat status {};
  ASSERT_EQ(::stat((folder + "/.config/holt/client.json").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  cli_process list({"env", "list"}, variables);
  EXPECT_EQ(list.wait(), 0) << list.err();
}

TEST_F(cli_login, keeps_nothing_that_the_server_refuses) {
  scripted_server server(
      [](const seen_request&, reply_channel& reply) { reply.problem(401, "auth.invalid", "This key is not known."); });
  cli_process login({"login", "--url", server.url(), "--key-file", folder + "/key"}, {{"HOME", folder}});
  EXPECT_EQ(login.wait(), 77);
  EXPECT_FALSE(std::filesystem::exists(folder + "/.config/holt/client.json"));
}
