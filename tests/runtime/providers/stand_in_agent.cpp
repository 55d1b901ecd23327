/// A static program with two parts, for tests of the sandbox alone.
///
///   serve …      stands in for holt-agent: PID 1, listens, and runs what a connection sends with sh, answering its
///   output
///                and a last line "exit N"
///   try WHAT …   attempts one thing that a sandbox must not allow; prints "allowed" or the error's name
///
/// Reached inside as /run/holt/agent, since that is the one file of ours that a sandbox shows.

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

namespace {

void handle(int connection) {
  static char command[64 * 1024];
  size_t size = 0;
  while (size + 1 < sizeof command) {
    const ssize_t got = read(connection, command + size, sizeof command - 1 - size);
    if (got <= 0)
      break;
    size += static_cast<size_t>(got);
  }
  command[size] = '\0';
  const pid_t pid = fork();
  if (pid == 0) {
    // As the agent does for its commands: their own session, first to be killed for memory, no descriptor of the agent.
    setsid();
    const int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score >= 0 && write(score, "1000", 4) != 4)
      _exit(126);
    const int null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    dup2(connection, 1);
    dup2(connection, 2);
    syscall(SYS_close_range, 3U, ~0U, 0);
    execl("/bin/sh", "sh", "-c", command, nullptr);
    _exit(127);
  }
  int status = 1 << 8;
  if (pid > 0)
    waitpid(pid, &status, 0);
  dprintf(connection, "\nexit %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  _exit(0);
}

int serve(int argc, char** argv) {
  int listener = -1;
  int ready = -1;
  for (int at = 2; at + 1 < argc; at += 2) {
    if (strcmp(argv[at], "--listen-fd") == 0)
      listener = atoi(argv[at + 1]);
    if (strcmp(argv[at], "--ready-fd") == 0)
      ready = atoi(argv[at + 1]);
  }
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  if (write(ready, "r", 1) != 1)
    return 1;
  close(ready);
  struct sigaction ignore_children {};
  ignore_children.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &ignore_children, nullptr);
  for (;;) {
    const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (connection < 0)
      continue;
    if (fork() == 0)
      handle(connection);
    close(connection);
  }
}

int tell(long status) {
  if (status >= 0)
    puts("allowed");
  else
    puts(strerrorname_np(errno));
  return 0;
}

int child_of_clone(void*) {
  return 0;
}

int attempt(const char* what, const char* argument) {
  const long number = argument != nullptr ? atol(argument) : 0;
  if (strcmp(what, "unshare-user") == 0)
    return tell(unshare(CLONE_NEWUSER));
  if (strcmp(what, "unshare-time") == 0)
    return tell(unshare(CLONE_NEWTIME));
  if (strcmp(what, "clone-user") == 0) {
    static char stack[64 * 1024];
    return tell(clone(child_of_clone, stack + sizeof stack, CLONE_NEWUSER | SIGCHLD, nullptr));
  }
  if (strcmp(what, "clone3-user") == 0) {
    clone_args arguments{};
    arguments.flags = CLONE_NEWUSER;
    arguments.exit_signal = SIGCHLD;
    const long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid == 0)
      _exit(0);
    return tell(pid);
  }
  if (strcmp(what, "setns") == 0)
    return tell(setns(open("/proc/self/ns/uts", O_RDONLY), 0));
  if (strcmp(what, "mount") == 0)
    return tell(mount("none", "/tmp", "tmpfs", 0, nullptr));
  if (strcmp(what, "umount") == 0)
    return tell(umount2("/proc", MNT_DETACH));
  if (strcmp(what, "open-tree") == 0)
    return tell(syscall(SYS_open_tree, AT_FDCWD, "/workspace", 1));
  if (strcmp(what, "module") == 0)
    return tell(syscall(SYS_init_module, "", 0, ""));
  if (strcmp(what, "bpf") == 0)
    return tell(syscall(SYS_bpf, 0, nullptr, 0));
  if (strcmp(what, "perf") == 0)
    return tell(syscall(SYS_perf_event_open, nullptr, 0, -1, -1, 0));
  if (strcmp(what, "keyctl") == 0)
    return tell(syscall(SYS_keyctl, 0, -3, 0, 0, 0));
  if (strcmp(what, "userfaultfd") == 0)
    return tell(syscall(SYS_userfaultfd, 1));
  if (strcmp(what, "handle") == 0)
    return tell(syscall(SYS_open_by_handle_at, AT_FDCWD, nullptr, 0));
  if (strcmp(what, "io-uring") == 0) {
    io_uring_params parameters{};
    return tell(syscall(SYS_io_uring_setup, 8, &parameters));
  }
  if (strcmp(what, "socket") == 0)
    return tell(socket(static_cast<int>(number), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (strcmp(what, "socket-high") == 0) // the same, with bits above those that the kernel looks at
    return tell(syscall(SYS_socket, (1ULL << 40U) | static_cast<unsigned long>(number), SOCK_STREAM, 0));
  if (strcmp(what, "tiocsti") == 0) {
    char byte = 'x';
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    return tell(ioctl(terminal, TIOCSTI, &byte));
  }
  if (strcmp(what, "tiocsti-high") == 0) {
    char byte = 'x';
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    return tell(syscall(SYS_ioctl, terminal, (1ULL << 40U) | TIOCSTI, &byte));
  }
  if (strcmp(what, "trace") == 0)
    return tell(ptrace(PTRACE_SEIZE, static_cast<pid_t>(number), nullptr, nullptr));
  if (strcmp(what, "read-memory") == 0) {
    char buffer[16];
    iovec local{buffer, sizeof buffer};
    iovec remote{reinterpret_cast<void*>(0x400000), sizeof buffer};
    return tell(process_vm_readv(static_cast<pid_t>(number), &local, 1, &remote, 1, 0));
  }
  if (strcmp(what, "open-memory") == 0) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/mem", number);
    return tell(open(path, O_RDWR));
  }
  if (strcmp(what, "steal-descriptor") == 0) {
    const long pidfd = syscall(SYS_pidfd_open, number, 0);
    return pidfd < 0 ? tell(pidfd) : tell(syscall(SYS_pidfd_getfd, pidfd, 3, 0));
  }
  if (strcmp(what, "trace-own-child") == 0) {
    const pid_t child = fork();
    if (child == 0) {
      for (;;)
        pause();
    }
    const long status = ptrace(PTRACE_SEIZE, child, nullptr, nullptr);
    tell(status);
    kill(child, SIGKILL);
    return 0;
  }
  if (strcmp(what, "memory") == 0) { // as many MiB, touched
    for (long at = 0; at < number; ++at) {
      void* block = mmap(nullptr, 1U << 20U, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (block == MAP_FAILED)
        return tell(-1);
      memset(block, 1, 1U << 20U);
    }
    return tell(0);
  }
  if (strcmp(what, "processes") == 0) { // how many of as many can be made
    long made = 0;
    for (; made < number; ++made) {
      const pid_t child = fork();
      if (child < 0)
        break;
      if (child == 0) {
        for (;;)
          pause();
      }
    }
    printf("%ld\n", made);
    fflush(stdout);
    kill(0, SIGKILL);
    return 0;
  }
  if (strcmp(what, "file") == 0) { // a file of as many MiB
    signal(SIGXFSZ, SIG_IGN);
    const int file = open("/workspace/large", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const int status = ftruncate(file, number << 20U);
    tell(status);
    unlink("/workspace/large");
    return 0;
  }
  if (strcmp(what, "privileges") == 0) { // of a program that is set-uid root on the machine
    printf("%d %d %d\n", getuid(), geteuid(), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    return 0;
  }
  if (strcmp(what, "become-root") == 0)
    return tell(setuid(0));
  if (strcmp(what, "foreign-call")
      == 0) { // getpid by the 32-bit entry, which would pass by a filter for this one alone
    long result = 20;
    asm volatile("int $0x80" : "+a"(result) : : "memory");
    if (result < 0) {
      errno = static_cast<int>(-result);
      return tell(-1);
    }
    return tell(0);
  }
  fprintf(stderr, "what is %s?\n", what);
  return 2;
}

} // namespace

int main(int argc, char** argv) {
  if (argc >= 2 && strcmp(argv[1], "serve") == 0)
    return serve(argc, argv);
  if (argc >= 3 && strcmp(argv[1], "try") == 0)
    return attempt(argv[2], argc >= 4 ? argv[3] : nullptr);
  return 2;
}
