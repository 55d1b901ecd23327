#include <sys/prctl.h>

#include "tests/runtime/providers/sandbox.hpp"

/// The real agent in a sandbox.
namespace holt::tests {
namespace {

class real_agent : public sandbox_test {
protected:
  void SetUp() override {
    sandbox_test::SetUp();
    options.agent = data / "bin/holt-agent";
    const char* own = std::getenv("HOLT_TEST_PROGRAMS");
    fs::copy_file((own != nullptr ? fs::path(own) : programs()) / "holt-agent", options.agent);
    start();
  }
};

TEST_F(real_agent, it_starts_answers_its_socket_and_is_closed_to_others) {
  const auto made = make("env_a");
  auto opened = provider->open(made.handle);
  ASSERT_TRUE(opened) << opened.error().detail;
  const providers::unique_fd connection(*opened);
  // Nothing before the server's challenge, and not the end of the stream either.
  char byte = 0;
  EXPECT_EQ(::recv(connection.get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);

  const auto pid = std::to_string(record("env_a").agent.pid);
  struct stat status {};
  ASSERT_EQ(::stat(("/proc/" + pid + "/environ").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 0U) << "an agent that can be dumped belongs to its user";
  const auto text = providers::read_file("/proc/" + pid + "/status").value_or("");
  EXPECT_NE(text.find("NoNewPrivs:\t1"), std::string::npos);
  EXPECT_NE(text.find("Seccomp:\t2"), std::string::npos);
  EXPECT_NE(text.find("CapEff:\t0000000000000000"), std::string::npos);
}

TEST_F(real_agent, it_survives_suspend_and_a_restart_of_the_server) {
  const auto made = make("env_a");
  ASSERT_TRUE(provider->suspend(made.handle, 1));
  provider.reset();
  start();
  EXPECT_EQ(status(made.handle), actors::instance_status::suspended);
  ASSERT_TRUE(provider->resume(made.handle));
  auto opened = provider->open(made.handle);
  ASSERT_TRUE(opened) << opened.error().detail;
  ::close(*opened);
}

} // namespace
} // namespace holt::tests
