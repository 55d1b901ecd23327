#include "runtime/process/settings.hpp"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

namespace holt::runtime::process {
namespace {

tl::expected<settings, parse_end> parse(std::vector<std::string> args) {
  return parse_settings(args);
}

std::string file_with(const std::string& text) {
  auto path = ::testing::TempDir() + "holt-settings-" + std::to_string(::getpid()) + ".toml";
  std::ofstream{path} << text;
  return path;
}

TEST(settings, without_any_everything_has_its_default) {
  auto parsed = parse({});
  ASSERT_TRUE(parsed) << parsed.error().text;
  EXPECT_EQ(parsed->listen, "127.0.0.1:7117");
  EXPECT_EQ(parsed->max_concurrent_commands, 8u);
  EXPECT_FALSE(parsed->data_dir.empty());
}

TEST(settings, a_section_of_the_file_is_the_dot_of_a_key) {
  auto path = file_with("data_dir = \"/x\"\n[sandbox]\nmax_concurrent_commands = 3\nrequire = [\"seccomp\", \"memory_limit\"]\n");
  auto parsed = parse({"--config", path});
  ASSERT_TRUE(parsed) << parsed.error().text;
  EXPECT_EQ(parsed->max_concurrent_commands, 3u);
  EXPECT_EQ(parsed->data_dir, "/x");
  EXPECT_EQ(parsed->require, (std::vector<std::string>{"seccomp", "memory_limit"}));
}

TEST(settings, a_flag_wins_over_a_variable_and_that_over_the_file) {
  auto path = file_with("[sandbox]\nmax_concurrent_commands = 3\nmax_waiting = 4\nopen_files = 100\n");
  ::setenv("HOLT_SANDBOX_MAX_CONCURRENT_COMMANDS", "5", 1);
  ::setenv("HOLT_SANDBOX_MAX_WAITING", "6", 1);
  auto parsed = parse({"--config", path, "--sandbox.max-concurrent-commands", "7"});
  ::unsetenv("HOLT_SANDBOX_MAX_CONCURRENT_COMMANDS");
  ::unsetenv("HOLT_SANDBOX_MAX_WAITING");
  ASSERT_TRUE(parsed) << parsed.error().text;
  EXPECT_EQ(parsed->max_concurrent_commands, 7u);
  EXPECT_EQ(parsed->max_waiting, 6u);
  EXPECT_EQ(parsed->open_files, 100u);
}

TEST(settings, an_unknown_key_of_the_file_is_refused_with_the_nearest_name) {
  auto parsed = parse({"--config", file_with("[sandbox]\nmax_concurent_commands = 3\n")});
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().status, 64);
  EXPECT_NE(parsed.error().text.find("did you mean 'sandbox.max_concurrent_commands'"), std::string::npos) << parsed.error().text;
}

TEST(settings, an_unknown_flag_is_refused_with_the_nearest_name) {
  auto parsed = parse({"--lisen", "127.0.0.1:1"});
  ASSERT_FALSE(parsed);
  EXPECT_NE(parsed.error().text.find("did you mean '--listen'"), std::string::npos) << parsed.error().text;
}

TEST(settings, a_value_out_of_bounds_is_refused) {
  for (auto& args : std::vector<std::vector<std::string>>{{"--sandbox.processes", "1"},
                                                          {"--sandbox.processes", "many"},
                                                          {"--log.level", "loud"},
                                                          {"--roles", "king"},
                                                          {"--lease.wait-ms", "-1"}}) {
    auto parsed = parse(args);
    ASSERT_FALSE(parsed) << args[0] << " " << args[1];
    EXPECT_EQ(parsed.error().status, 64);
  }
}

TEST(settings, help_is_no_mistake) {
  auto parsed = parse({"--help"});
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().status, 0);
  EXPECT_NE(parsed.error().text.find("--listen"), std::string::npos);
}

TEST(settings, the_page_in_docs_is_the_generated_one) {
  std::ifstream in{std::string{std::getenv("HOLT_SOURCE_DIR")} + "/docs/configuration.md"};
  std::stringstream page;
  page << in.rdbuf();
  EXPECT_EQ(page.str(), settings_page()) << "write it anew: holt serve --print-config-page > docs/configuration.md";
}

} // namespace
} // namespace holt::runtime::process
