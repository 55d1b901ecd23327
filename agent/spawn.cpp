#include "agent/spawn.hpp"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace holt::agent {

namespace {

constexpr std::size_t stack_size = 64 * 1024;

/// Everything that the child uses, made before it exists: it shares this memory and must not allocate.
struct child_view {
  char* const* argv;
  char* const* env;
  const char* const* candidates; // paths to try, ended by nullptr
  char** script_argv;            // shell, path (to fill in), rest of argv
  const char* name;
  const char* shell;
  int cwd, in, out, err;
  bool terminal;
  std::uint64_t ignored; // bit n - 1: signal n
};

/// The kernel's own structure: the C library's call refuses two signals that it uses itself, and that may have been
/// inherited as ignored.
struct kernel_action {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)();
  std::uint64_t mask;
};

void set_default(int number) {
  kernel_action action{};
  ::syscall(SYS_rt_sigaction, number, &action, nullptr, sizeof action.mask);
}

std::uint64_t ignored_signals() {
  std::uint64_t out = 0;
  for (int number = 1; number < 65; ++number) {
    kernel_action action{};
    if (::syscall(SYS_rt_sigaction, number, nullptr, &action, sizeof action.mask) == 0 && action.handler == SIG_IGN)
      out |= std::uint64_t{1} << (number - 1);
  }
  return out;
}

void say(const char* a, const char* b, const char* c) {
  const char* parts[] = {"holt: ", a, b, c, "\n"};
  for (auto* part : parts) {
    [[maybe_unused]] auto written = ::write(2, part, ::strlen(part));
  }
}

[[noreturn]] void exec(const child_view& view) {
  int problem = ENOENT;
  for (auto* path = view.candidates; *path != nullptr; ++path) {
    ::execve(*path, view.argv, view.env);
    int error = errno;
    if (error == ENOEXEC) {
      view.script_argv[1] = const_cast<char*>(*path);
      ::execve(view.shell, view.script_argv, view.env);
      error = errno;
    }
    // As shells do: a file that is there and may not be run is remembered, and the search goes on.
    if (error != ENOENT && error != ENOTDIR && problem == ENOENT)
      problem = error;
  }
  if (problem == ENOENT) {
    bool path = ::strchr(view.name, '/') != nullptr;
    say(view.name, ": ", path ? "No such file or directory" : "command not found");
    ::_exit(127);
  }
  const char* why = problem == EACCES ? "Permission denied"
                    : problem == E2BIG  ? "Argument list too long"
                    : problem == ENOMEM ? "Cannot allocate memory"
                    : problem == ELOOP  ? "Too many levels of symbolic links"
                    : problem == ENAMETOOLONG ? "File name too long"
                                              : "cannot be executed";
  say(view.name, ": ", why);
  ::_exit(126);
}

int child_main(void* argument) {
  auto& view = *static_cast<const child_view*>(argument);
  // The exec gives handled ones their default; ignored ones stay ignored.
  for (int number = 1; number < 65; ++number)
    if ((view.ignored >> (number - 1) & 1) != 0)
      set_default(number);
  ::setsid();
  // None of the three may be below 3, or one duplicate would overwrite the next: spawn() saw to that.
  ::dup2(view.in, 0);
  ::dup2(view.out, 1);
  ::dup2(view.err, 2);
  if (view.terminal)
    ::ioctl(0, TIOCSCTTY, 0);
  bool moved = view.cwd < 0 || ::fchdir(view.cwd) == 0;
  ::syscall(SYS_close_range, 3u, ~0u, 0u);
  if (!moved) {
    say("cannot enter the working directory", "", "");
    ::_exit(126);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  exec(view);
}

std::vector<std::string> candidates_of(const spawn_plan& plan) {
  auto& name = plan.argv[0];
  if (name.find('/') != name.npos)
    return {name};
  std::vector<std::string> out;
  if (name.empty())
    return out;
  std::size_t at = 0;
  while (at <= plan.search_path.size()) {
    auto end = plan.search_path.find(':', at);
    auto folder = plan.search_path.substr(at, end == plan.search_path.npos ? end : end - at);
    out.push_back((folder.empty() ? std::string{"."} : folder) + "/" + name);
    if (end == plan.search_path.npos)
      break;
    at = end + 1;
  }
  return out;
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  out.reserve(strings.size() + 1);
  for (auto& text : strings)
    out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

/// One stack for all children: the caller sleeps while a child uses it.
char* child_stack() {
  static char* stack = [] {
    auto* memory = ::mmap(nullptr, stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
  }();
  return stack;
}

void write_oom_score(pid_t pid) {
  char path[64] = "/proc/";
  char digits[16];
  std::size_t count = 0;
  for (auto rest = pid; rest > 0; rest /= 10)
    digits[count++] = static_cast<char>('0' + rest % 10);
  std::size_t at = 6;
  while (count > 0)
    path[at++] = digits[--count];
  ::strcpy(path + at, "/oom_score_adj");
  int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return;
  [[maybe_unused]] auto written = ::write(fd, "1000", 4);
  ::close(fd);
}

} // namespace

spawn_result spawn(const spawn_plan& plan) {
  auto* stack = child_stack();
  if (stack == nullptr)
    return {.error = ENOMEM};
  auto candidates = candidates_of(plan);
  auto argv = pointers(plan.argv);
  auto env = pointers(plan.env);
  auto paths = pointers(candidates);
  std::vector<char*> script;
  script.reserve(argv.size() + 2);
  script.push_back(const_cast<char*>(plan.shell));
  script.push_back(nullptr);
  script.insert(script.end(), argv.begin() + 1, argv.end());
  // What the agent ignores is settled before it starts anything.
  static const auto ignored = ignored_signals();
  child_view view{.argv = argv.data(),
                  .env = env.data(),
                  .candidates = paths.data(),
                  .script_argv = script.data(),
                  .name = argv[0],
                  .shell = plan.shell,
                  .cwd = plan.cwd,
                  .in = plan.in,
                  .out = plan.out,
                  .err = plan.err,
                  .terminal = plan.terminal,
                  .ignored = ignored};
  // No handler of ours may run on the child's side.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  auto pid = ::clone(child_main, stack + stack_size, CLONE_VM | CLONE_VFORK | SIGCHLD, &view);
  int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0)
    return {.error = error};
  // From outside: before the exec the child shares our memory, which /proc protects from it as from everyone.
  write_oom_score(pid);
  return {.pid = pid};
}

} // namespace holt::agent
