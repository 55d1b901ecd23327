#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "runtime/cli/api.hpp"
#include "runtime/cli/copy_command.hpp"
#include "runtime/cli/exec_events.hpp"
#include "runtime/cli/settings.hpp"
#include "runtime/cli/shell_command.hpp"
#include "runtime/cli/units.hpp"

using namespace holt::runtime::cli;

TEST(cli_events, output_is_its_exact_bytes) {
  auto event = read_exec_event({"stderr", R"({"offset":0,"b64":"AP8K"})", "op_1:3"});
  ASSERT_TRUE(event);
  auto& output = std::get<command_output>(*event);
  EXPECT_TRUE(output.stderr_);
  EXPECT_EQ(output.bytes, std::string("\0\xff\n", 3));
}

TEST(cli_events, an_exit_is_the_commands_own_code_or_its_signal) {
  auto status = [](const std::string& data) {
    auto event = read_exec_event({"exit", data, ""});
    return exit_status(std::get<command_exit>(*event));
  };
  EXPECT_EQ(status(R"({"exit_code":3,"state":"exited"})"), 3);
  EXPECT_EQ(status(R"({"exit_code":255})"), 255);
  EXPECT_EQ(status(R"({"signal":"SIGTERM","state":"killed"})"), 143);
  EXPECT_EQ(status(R"({"signal":"SIGKILL"})"), 137);
  EXPECT_EQ(status(R"({"state":"unknown"})"), std::nullopt) << "spec 39: never an invented exit code";
}

TEST(cli_events, an_error_becomes_its_exit_code_and_words) {
  auto event = read_exec_event(
      {"error", R"({"status":409,"code":"environment.files_lost","detail":"The files are gone."})", ""});
  ASSERT_FALSE(event);
  EXPECT_EQ(event.error().code, exit_refused);
  EXPECT_EQ(event.error().problem, "environment.files_lost");
  EXPECT_NE(event.error().message.find("The files are gone."), std::string::npos);
}

TEST(cli_failures, tell_usage_unavailable_refused_and_bug_apart) {
  auto code = [](unsigned status) { return failure_of({status, {}}, "").code; };
  EXPECT_EQ(code(400), exit_usage);
  EXPECT_EQ(code(422), exit_usage);
  EXPECT_EQ(code(401), exit_refused);
  EXPECT_EQ(code(403), exit_refused);
  EXPECT_EQ(code(404), exit_refused);
  EXPECT_EQ(code(409), exit_refused);
  EXPECT_EQ(code(429), exit_unavailable);
  EXPECT_EQ(code(503), exit_unavailable);
  EXPECT_EQ(code(500), exit_bug);
}

TEST(cli_failures, a_servers_text_can_not_draw_on_the_terminal) {
  auto what = failure_of({404, {}}, "{\"detail\":\"gone\\u001b[2J\\nmore\"}");
  EXPECT_EQ(what.message.find('\x1b'), std::string::npos);
  EXPECT_EQ(what.message.find('\n'), std::string::npos);
}

TEST(cli_addresses, are_a_scheme_a_host_and_a_port) {
  EXPECT_EQ(parse_server_address("http://127.0.0.1:7117/")->text(), "http://127.0.0.1:7117");
  EXPECT_EQ(parse_server_address("https://holt.example")->text(), "https://holt.example");
  EXPECT_EQ(parse_server_address("https://holt.example")->port, 443);
  EXPECT_EQ(parse_server_address("http://[::1]:80")->host, "::1");
  EXPECT_EQ(parse_server_address("http://[::1]:81")->host_header(), "[::1]:81");
  for (auto wrong : {"", "127.0.0.1:7117", "ftp://x", "http://", "http://a:0", "http://a:70000", "http://a:1x",
                     "http://user:secret@a", "http://a/v1", "http://a?b", "http://[::1", "http://[::1]x"}) {
    auto parsed = parse_server_address(wrong);
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_EQ(parsed.error().code, exit_usage);
    EXPECT_EQ(parsed.error().message.find("secret"), std::string::npos);
  }
}

class cli_login_file : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "holt-login-XXXXXX";
    folder = ::mkdtemp(pattern.data());
    ::setenv("XDG_CONFIG_HOME", folder.c_str(), 1);
    ::unsetenv("HOLT_URL");
    ::unsetenv("HOLT_KEY");
  }
  void TearDown() override {
    std::filesystem::remove_all(folder);
  }
  std::string folder;
};

TEST_F(cli_login_file, is_for_its_owner_alone_and_read_back) {
  auto path = *login_file_path();
  ASSERT_TRUE(write_login_file(path, {*parse_server_address("http://127.0.0.1:1"), "holt_key"}));
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat((folder + "/holt").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  auto found = find_access({});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->key, "holt_key");
  EXPECT_EQ(found->address.port, 1);
  std::size_t files = 0;
  for ([[maybe_unused]] auto& entry : std::filesystem::directory_iterator(folder + "/holt"))
    ++files;
  EXPECT_EQ(files, 1u) << "no temporary file stays";
}

TEST_F(cli_login_file, that_others_may_read_is_refused) {
  auto path = *login_file_path();
  ASSERT_TRUE(write_login_file(path, {*parse_server_address("http://127.0.0.1:1"), "holt_key"}));
  ::chmod(path.c_str(), 0640);
  auto found = find_access({});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, exit_refused);
  EXPECT_NE(found.error().message.find("chmod 600"), std::string::npos);
}

TEST_F(cli_login_file, gives_its_key_to_its_own_server_only) {
  ASSERT_TRUE(write_login_file(*login_file_path(), {*parse_server_address("http://127.0.0.1:1"), "holt_key"}));
  auto found = find_access({.url = "http://127.0.0.1:2", .key_file = {}});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, exit_usage);
}

TEST_F(cli_login_file, gives_way_to_variables_and_those_to_flags) {
  ASSERT_TRUE(write_login_file(*login_file_path(), {*parse_server_address("http://127.0.0.1:1"), "of_file"}));
  ::setenv("HOLT_URL", "http://127.0.0.1:2", 1);
  ::setenv("HOLT_KEY", "of_variable", 1);
  EXPECT_EQ(find_access({})->address.port, 2);
  EXPECT_EQ(find_access({})->key, "of_variable");
  std::ofstream(folder + "/key") << " of_flag \nsecond line\n";
  auto found = find_access({.url = "http://127.0.0.1:3", .key_file = folder + "/key"});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->address.port, 3);
  EXPECT_EQ(found->key, "of_flag");
}

TEST_F(cli_login_file, without_any_server_says_what_to_do) {
  auto found = find_access({});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, exit_usage);
  EXPECT_NE(found.error().message.find("holt login"), std::string::npos);
}

TEST(cli_units, are_as_people_write_them) {
  EXPECT_EQ(parse_duration_ms("30"), 30000u);
  EXPECT_EQ(parse_duration_ms("500ms"), 500u);
  EXPECT_EQ(parse_duration_ms("1.5m"), 90000u);
  EXPECT_EQ(parse_duration_ms("7d"), 604800000u);
  EXPECT_EQ(parse_size_bytes("4096"), 4096u);
  EXPECT_EQ(parse_size_bytes("2G"), 2147483648u);
  EXPECT_EQ(parse_size_bytes("1.5k"), 1536u);
  EXPECT_EQ(parse_size_bytes("512MiB"), 536870912u);
  for (auto wrong : {"", "x", "-1s", "5 s", "1w", "1e5", "nan", "1000000d"})
    EXPECT_EQ(parse_duration_ms(wrong), std::nullopt) << wrong;
  for (auto wrong : {"", "G", "-1", "1X", "1GG", "9999999T", "inf"})
    EXPECT_EQ(parse_size_bytes(wrong), std::nullopt) << wrong;
}

TEST(cli_places, are_in_an_environment_when_a_colon_comes_before_the_first_slash) {
  EXPECT_EQ(parse_copy_place("box:/etc").environment, "box");
  EXPECT_EQ(parse_copy_place("box:/etc").path, "/etc");
  EXPECT_EQ(parse_copy_place("box:").path, "");
  EXPECT_EQ(parse_copy_place("./a:b").environment, std::nullopt);
  EXPECT_EQ(parse_copy_place("plain").environment, std::nullopt);
  EXPECT_EQ(parse_copy_place(":x").environment, std::nullopt);
}

TEST(cli_places, of_hostile_names_are_not_files_here) {
  EXPECT_FALSE(safe_name(""));
  EXPECT_FALSE(safe_name("."));
  EXPECT_FALSE(safe_name(".."));
  EXPECT_FALSE(safe_name("a/b"));
  EXPECT_FALSE(safe_name(std::string_view("a\0b", 3)));
  EXPECT_TRUE(safe_name("..foo"));
}

TEST(cli_places, in_a_url_keep_slashes_and_lose_everything_special) {
  EXPECT_EQ(files_target("env_1", "/workspace/a b?#%\xff"), "/v1/environments/env_1/files/workspace/a%20b%3F%23%25%FF");
}

TEST(cli_shell, words_reach_the_shell_as_they_are) {
  EXPECT_EQ(shell_line({"echo", "it's", "$HOME", ""}), R"('echo' 'it'\''s' '$HOME' '')");
}
