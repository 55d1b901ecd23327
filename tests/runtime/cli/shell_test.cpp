#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>

#include <fcntl.h>
#include <pty.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/runtime/cli/scripted_server.hpp"

using namespace holt::test;

namespace {

/// The client on a terminal of its own.
class shell_process {
public:
  shell_process(const scripted_server& server, std::vector<std::string> args) {
    winsize size{.ws_row = 30, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
    if (::openpty(&master_, &terminal_, nullptr, nullptr, &size) != 0)
      std::abort();
    ::fcntl(master_, F_SETFD, FD_CLOEXEC);
    before_ = mode();
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    for (int fd : {0, 1, 2})
      ::posix_spawn_file_actions_adddup2(&actions, terminal_, fd);
    args.insert(args.begin(), {HOLT_CLI_PROGRAM, "shell", "env_1"});
    std::vector<char*> argv;
    for (auto& word : args)
      argv.push_back(word.data());
    argv.push_back(nullptr);
    std::string url = "HOLT_URL=" + server.url();
    char* envp[] = {url.data(), const_cast<char*>("HOLT_KEY=k"), nullptr};
    if (::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), envp) != 0)
      std::abort();
    ::posix_spawn_file_actions_destroy(&actions);
  }
  ~shell_process() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      wait();
    }
    ::close(master_);
    ::close(terminal_);
  }

  void type(const std::string& keys) {
    if (::write(master_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size()))
      std::abort();
  }
  /// Reads what is on the screen until it holds this.
  bool shows(const std::string& text) {
    char buffer[4096];
    while (screen_.find(text) == std::string::npos) {
      auto n = ::read(master_, buffer, sizeof buffer);
      if (n <= 0)
        return false;
      screen_.append(buffer, static_cast<std::size_t>(n));
    }
    return true;
  }
  void resize(unsigned short rows, unsigned short cols) {
    winsize size{.ws_row = rows, .ws_col = cols, .ws_xpixel = 0, .ws_ypixel = 0};
    ::ioctl(terminal_, TIOCSWINSZ, &size);
    ::kill(pid_, SIGWINCH); // the kernel does it for a controlling terminal
  }
  bool mode_is_as_before() {
    auto now = mode();
    return now.c_lflag == before_.c_lflag && now.c_iflag == before_.c_iflag && now.c_oflag == before_.c_oflag;
  }
  bool is_raw() {
    return (mode().c_lflag & (ICANON | ECHO | ISIG)) == 0;
  }
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

private:
  termios mode() {
    termios now{};
    ::tcgetattr(terminal_, &now);
    return now;
  }
  int master_ = -1;
  int terminal_ = -1;
  pid_t pid_ = -1;
  termios before_{};
  std::string screen_;
};

std::string next(reply_channel& reply) {
  bool text = false;
  std::string bytes;
  if (!reply.next_message(text, bytes))
    return "(end)";
  return (text ? "text " : "bytes ") + bytes;
}

} // namespace

TEST(cli_shell, keys_go_there_raw_and_the_terminal_is_given_back) {
  std::vector<std::string> messages;
  scripted_server server([&](const seen_request& request, reply_channel& reply) {
    reply.upgrade(request);
    reply.message(true, R"({"started":{"op_id":"op_7","attached":false}})");
    messages.push_back(next(reply)); // the size
    reply.message(false, "$ ");
    messages.push_back(next(reply)); // keys
    reply.message(false, "typed");
    messages.push_back(next(reply)); // the new size
    reply.message(true, R"({"exit":{"op_id":"op_7","state":"exited","exit_code":5}})");
    next(reply);
    reply.cut();
  });
  shell_process shell(server, {"--", "bash", "-l"});
  ASSERT_TRUE(shell.shows("$ "));
  EXPECT_TRUE(shell.is_raw());
  shell.type("\x03");
  ASSERT_TRUE(shell.shows("typed"));
  shell.resize(50, 200);
  EXPECT_EQ(shell.wait(), 5);
  EXPECT_TRUE(shell.mode_is_as_before());
  EXPECT_EQ(messages, (std::vector<std::string>{R"(text {"resize":{"cols":100,"rows":30}})", "bytes \x03",
                                                R"(text {"resize":{"cols":200,"rows":50}})"}));
  EXPECT_EQ(server.requests().at(0).target,
            "/v1/environments/env_1/terminal?cols=100&rows=30&command=%27bash%27%20%27-l%27");
}

TEST(cli_shell, a_cut_connection_is_taken_up_at_its_last_position) {
  scripted_server server([&](const seen_request& request, reply_channel& reply) {
    reply.upgrade(request);
    next(reply);
    if (reply.server().requests().size() == 1) {
      reply.message(true, R"({"started":{"op_id":"op_7","attached":false}})");
      reply.message(false, "12345");
      return reply.cut();
    }
    reply.message(true, R"({"started":{"op_id":"op_7","attached":true}})");
    reply.message(false, "67");
    reply.message(true, R"({"exit":{"state":"killed","signal":"SIGHUP"}})");
    next(reply);
    reply.cut();
  });
  shell_process shell(server, {});
  EXPECT_TRUE(shell.shows("1234567"));
  EXPECT_EQ(shell.wait(), 128 + SIGHUP);
  EXPECT_TRUE(server.requests().at(1).target.ends_with("&op_id=op_7&from=5")) << server.requests().at(1).target;
}

TEST(cli_shell, a_refusal_leaves_the_terminal_as_it_was) {
  scripted_server server([&](const seen_request&, reply_channel& reply) {
    reply.problem(404, "environment.not_found", "There is no such environment.");
  });
  shell_process shell(server, {});
  EXPECT_TRUE(shell.shows("There is no such environment."));
  EXPECT_EQ(shell.wait(), 77);
  EXPECT_TRUE(shell.mode_is_as_before());
}
