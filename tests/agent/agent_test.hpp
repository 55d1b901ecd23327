#pragma once

#include <memory>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/agent/agent_client.hpp"

namespace holt::tests {

/// An agent program of its own for each test, in a directory of its own.
class agent_test : public ::testing::Test {
protected:
  agent_client connect(std::uint64_t epoch = 1, std::string incarnation = "one") {
    return agent_client{agent().socket(), epoch, std::move(incarnation)};
  }

  agent_process& agent() {
    if (!agent_)
      agent_ = std::make_unique<agent_process>(home_.path(), program());
    return *agent_;
  }

  /// Ends this run as a crash would, and begins another on the same state.
  void crash() {
    if (agent_)
      agent_->end();
    agent_.reset();
  }

  virtual std::vector<std::string> program() const {
    return {HOLT_AGENT, "serve"};
  }

  /// As root: makes another user the owner of everything in it.
  void give_home_to(uid_t user) {
    for (auto name : {"", "workspace", "skills", "tmp", "state"}) {
      std::filesystem::create_directories(home() / name);
      if (::getuid() == 0) {
        ASSERT_EQ(::chown((home() / name).c_str(), user, user), 0);
      }
    }
  }

  const std::filesystem::path& home() const {
    return home_.path();
  }

  static wire::process_start command(std::string text) {
    wire::process_start start;
    start.command = std::move(text);
    return start;
  }

  static wire::process_start argv(std::vector<std::string> words) {
    wire::process_start start;
    start.argv = std::move(words);
    return start;
  }

private:
  temporary_directory home_;
  std::unique_ptr<agent_process> agent_;
};

/// The same agent, with a clock that the test moves and limits that it sets.
class agent_testbed_test : public agent_test {
protected:
  std::vector<std::string> program() const override {
    std::vector<std::string> out{HOLT_AGENT_TESTBED};
    out.insert(out.end(), options.begin(), options.end());
    return out;
  }
  void skip(milliseconds time) {
    agent().order("skip " + std::to_string(time.count()));
  }
  std::vector<std::string> options;
};

} // namespace holt::tests
