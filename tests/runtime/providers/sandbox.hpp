#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/providers/bubblewrap.hpp"
#include "runtime/providers/fd.hpp"
#include "runtime/providers/instance_record.hpp"
#include "runtime/providers/process_identity.hpp"

extern char** environ;

/// A provider with a data directory of its own, and the stand-in agent. Ends every sandbox it made.
namespace holt::tests {

namespace fs = std::filesystem;

struct command_result {
  int exit_code = -1;
  std::string output; // stdout and stderr
};

class sandbox_test : public testing::Test {
protected:
  fs::path data;
  providers::bubblewrap_options options;
  std::unique_ptr<actors::provider_backend> provider;
  std::vector<std::string> environments;

  static fs::path programs() {
    return HOLT_PROGRAMS;
  }
  static bool is_root() {
    return ::geteuid() == 0;
  }

  /// Built once: it is the same for all, and many small files.
  static fs::path shared_etc() {
    struct directory {
      std::string name = "/tmp/holt-etc-XXXXXX";
      directory() {
        EXPECT_NE(::mkdtemp(name.data()), nullptr);
      }
      ~directory() {
        fs::remove_all(name);
      }
    };
    static const directory shared;
    return shared.name;
  }

  void SetUp() override {
    // Where a test runs as another user than the build, the programs stand beside it.
    const char* own = std::getenv("HOLT_TEST_PROGRAMS");
    const fs::path directory = own != nullptr ? fs::path(own) : programs();
    std::string name = "/tmp/holt-sandbox-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    data = name;
    options.data_dir = data / "data";
    options.etc_dir = shared_etc();
    fs::create_directories(data / "bin");
    for (const auto* program : {"holt-launch", "stand_in_agent", "sandbox_driver"})
      fs::copy_file(directory / program, data / "bin" / program);
    options.agent = data / "bin/stand_in_agent";
    options.launcher = data / "bin/holt-launch";
    options.default_limits.memory_bytes = 256ULL << 20U;
    options.default_limits.processes = 64;
    options.default_limits.file_size_bytes = 64ULL << 20U;
    options.tmp_bytes = 16ULL << 20U;
  }

  void TearDown() override {
    if (!provider)
      start();
    for (const auto& id : environments) {
      const auto destroyed = provider->destroy(id, "", ~0ULL);
      EXPECT_TRUE(destroyed) << destroyed.error().detail;
    }
    provider.reset();
    const providers::unique_fd tmp(::open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    EXPECT_TRUE(providers::remove_tree(tmp.get(), data.filename().string()));
  }

  void start() {
    auto made = providers::make_bubblewrap(options);
    ASSERT_TRUE(made) << made.error();
    provider = std::move(*made);
    const auto report = provider->report();
    ASSERT_TRUE(report.available) << (report.missing.empty() ? "" : report.missing.front());
  }

  bool has(const std::string& feature) const {
    const auto features = provider->report().features;
    return std::find(features.begin(), features.end(), feature) != features.end();
  }

  actors::instance_spec spec(const std::string& id, std::uint64_t generation = 1) {
    if (std::find(environments.begin(), environments.end(), id) == environments.end())
      environments.push_back(id);
    actors::instance_spec result;
    result.environment_id = id;
    result.file_system_id = "fs_" + id;
    result.new_files = true;
    result.generation = generation;
    return result;
  }

  actors::created_instance make(const actors::instance_spec& wanted) {
    auto made = provider->create(wanted);
    EXPECT_TRUE(made) << made.error().detail;
    return made.value_or(actors::created_instance{});
  }
  actors::created_instance make(const std::string& id, std::uint64_t generation = 1) {
    return make(spec(id, generation));
  }

  command_result run(const std::string& handle, const std::string& command) {
    auto opened = provider->open(handle);
    EXPECT_TRUE(opened) << opened.error().detail;
    if (!opened)
      return {};
    const providers::unique_fd connection(*opened);
    const timeval timeout{30, 0};
    ::setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    EXPECT_EQ(::send(connection.get(), command.data(), command.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(command.size()));
    ::shutdown(connection.get(), SHUT_WR);
    command_result result;
    char buffer[4096];
    for (ssize_t size = 0; (size = ::read(connection.get(), buffer, sizeof buffer)) > 0;)
      result.output.append(buffer, static_cast<std::size_t>(size));
    const auto last = result.output.rfind("\nexit ");
    if (last == std::string::npos)
      return result;
    result.exit_code = std::atoi(result.output.c_str() + last + 6);
    result.output.erase(last);
    while (!result.output.empty() && result.output.back() == '\n')
      result.output.pop_back();
    return result;
  }
  std::string output(const std::string& handle, const std::string& command) {
    return run(handle, command).output;
  }
  std::string attempt(const std::string& handle, const std::string& what) {
    return output(handle, "/run/holt/agent try " + what);
  }

  fs::path run_directory(const std::string& id) const {
    return options.data_dir / "envs" / id / "run";
  }
  providers::instance_record record(const std::string& id) const {
    const auto text = providers::read_file((run_directory(id) / "instance.json").string());
    const auto parsed = text ? providers::read_record(*text) : std::nullopt;
    EXPECT_TRUE(parsed) << "no record of " << id;
    return parsed.value_or(providers::instance_record{});
  }

  actors::instance_status status(const std::string& handle) {
    const auto seen = provider->inspect(handle);
    EXPECT_TRUE(seen) << seen.error().detail;
    return seen.value_or(actors::instance_status::gone);
  }

  /// Runs sandbox_driver to its end; what it printed.
  std::string drive(const std::string& id, std::uint64_t generation, const std::string& step = "") {
    (void)spec(id);
    std::vector<std::string> words{(data / "bin/sandbox_driver").string(),
                                   options.data_dir.string(),
                                   options.agent.string(),
                                   options.launcher.string(),
                                   options.use_cgroups ? "yes" : "no",
                                   std::to_string(options.uid_first),
                                   id,
                                   "fs_" + id,
                                   std::to_string(generation)};
    if (!step.empty())
      words.push_back(step);
    std::vector<char*> argv;
    for (auto& word : words)
      argv.push_back(word.data());
    argv.push_back(nullptr);
    auto pipe = providers::make_pipe();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe->write.get(), 1);
    pid_t pid = 0;
    EXPECT_EQ(::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    pipe->write.reset();
    ::fcntl(pipe->read.get(), F_SETFL, 0);
    std::string text;
    char buffer[512];
    for (ssize_t size = 0; (size = ::read(pipe->read.get(), buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<std::size_t>(size));
    int ended = 0;
    ::waitpid(pid, &ended, 0);
    EXPECT_TRUE(WIFSIGNALED(ended)) << "the driver was not killed, but ended with " << WEXITSTATUS(ended);
    while (!text.empty() && text.back() == '\n')
      text.pop_back();
    return text;
  }
};

} // namespace holt::tests
