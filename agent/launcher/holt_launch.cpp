/// holt-launch: the step between the server and bubblewrap (spec 33).
///
/// The server must never fork, and posix_spawn can't drop privileges. So it spawns this program, which does everything
/// that has to happen in a process of its own before the sandbox exists: a session, the cgroups, limits, the
/// environment's own uid, and no descriptor but those that are meant for the sandbox. Then it becomes bubblewrap (same
/// pid).
///
///   holt-launch [option value]... -- PROGRAM [ARGUMENT]...
///
///   --last-fd N          highest descriptor that stays open
///   --record-fd N        writes "PID START_TIME\n" there before anything else: how a server that died finds the
///   launch.
///                        Stays open: bubblewrap adds the sandbox's first process there
///   --join-fd N          an open cgroup `tasks` or `cgroup.procs` file to enter (may repeat)
///   --rlimit NAME=VALUE  nofile, fsize, core, nproc, data (may repeat); the hard limit too, never raised
///   --oom N              oom_score_adj
///   --state-path PATH    directory given to the agent as --state-fd: cloned into a mount of its own, so that `..` from
///   --state-fd N         that descriptor ends at the directory and never reaches the machine
///   --expose SRC=DST     (root) bind SRC over DST in a mount namespace of this process: for a data directory that the
///                        environment's uid may not walk to (may repeat)
///   --uid N --gid N      drop to these, without supplementary groups; no new privileges in any case
///   --self-test          prints "ok": what the server runs as the command of its trial sandbox at start
///
/// Exit status 125 with one line on stderr when a step fails.

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

[[noreturn]] void fail(const char* what) {
  dprintf(2, "holt-launch: %s: %s\n", what, strerror(errno));
  _exit(125);
}

[[noreturn]] void usage(const char* what) {
  dprintf(2, "holt-launch: bad argument: %s\n", what);
  _exit(125);
}

long number(const char* text) {
  char* end = nullptr;
  errno = 0;
  const long value = strtol(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || value < -1000)
    usage(text);
  return value;
}

void write_file(const char* path, const char* text, bool required) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  const size_t size = strlen(text);
  if (fd < 0 || write(fd, text, size) != static_cast<ssize_t>(size)) {
    if (required)
      fail(path);
  }
  if (fd >= 0)
    close(fd);
}

/// Field 22 of /proc/self/stat: with the pid, what tells this process from a later one of the same pid.
void record_self(int fd) {
  char stat[1024];
  const int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  const ssize_t size = file < 0 ? -1 : read(file, stat, sizeof stat - 1);
  if (size <= 0)
    fail("/proc/self/stat");
  close(file);
  stat[size] = '\0';
  char* field = strrchr(stat, ')');
  for (int index = 2; field != nullptr && index < 22; ++index)
    field = strchr(field + 1, ' ');
  if (field == nullptr)
    usage("/proc/self/stat");
  char line[64];
  const int length = snprintf(line, sizeof line, "%d %lld\n", getpid(), atoll(field + 1));
  if (write(fd, line, static_cast<size_t>(length)) != length)
    fail("record");
}

void limit(char* text) {
  char* equals = strchr(text, '=');
  if (equals == nullptr)
    usage(text);
  *equals = '\0';
  const struct {
    const char* name;
    int resource;
  } known[] = {{"nofile", RLIMIT_NOFILE},
               {"fsize", RLIMIT_FSIZE},
               {"core", RLIMIT_CORE},
               {"nproc", RLIMIT_NPROC},
               {"data", RLIMIT_DATA}};
  for (const auto& entry : known) {
    if (strcmp(entry.name, text) != 0)
      continue;
    const auto resource = static_cast<__rlimit_resource_t>(entry.resource);
    rlimit now{};
    if (getrlimit(resource, &now) != 0)
      fail("getrlimit");
    auto value = static_cast<rlim_t>(strtoull(equals + 1, nullptr, 10));
    if (value > now.rlim_max)
      value = now.rlim_max;
    const rlimit wanted{value, value};
    if (setrlimit(resource, &wanted) != 0)
      fail("setrlimit");
    return;
  }
  usage(text);
}

/// A user namespace that changes nothing but what this process may do to its own mounts.
void enter_user_namespace(unsigned uid, unsigned gid) {
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
    fail("user namespace");
  char line[64];
  write_file("/proc/self/setgroups", "deny", false);
  snprintf(line, sizeof line, "%u %u 1\n", uid, uid);
  write_file("/proc/self/uid_map", line, true);
  snprintf(line, sizeof line, "%u %u 1\n", gid, gid);
  write_file("/proc/self/gid_map", line, true);
}

/// False when this process may not (EPERM); any other failure ends the launch.
bool clone_state(const char* path, int state_fd) {
  if (state_fd < 3)
    usage("--state-fd");
  dup2(2, state_fd); // holds the number, so that nothing below is opened at it
  const int tree = static_cast<int>(syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
  if (tree < 0) {
    if (errno == EPERM)
      return false;
    fail("state directory");
  }
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
  if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0)
    fail("state directory's mount");
  const int directory = openat(tree, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0 || dup2(directory, state_fd) < 0)
    fail("state directory");
  close(directory);
  close(tree);
  return true;
}

} // namespace

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "--self-test") == 0)
    return write(1, "ok\n", 3) == 3 ? 0 : 1;

  long uid = -1;
  long gid = -1;
  int last_fd = 2;
  int state_fd = -1;
  const char* state_path = nullptr;
  bool exposed = false;

  int at = 1;
  for (; at < argc && strcmp(argv[at], "--") != 0; at += 2) {
    const char* name = argv[at];
    if (at + 1 >= argc)
      usage(name);
    char* value = argv[at + 1];
    if (strcmp(name, "--last-fd") == 0) {
      last_fd = static_cast<int>(number(value));
    } else if (strcmp(name, "--record-fd") == 0) {
      record_self(static_cast<int>(number(value)));
    } else if (strcmp(name, "--join-fd") == 0) {
      const int fd = static_cast<int>(number(value));
      if (write(fd, "0", 1) != 1)
        fail("cgroup");
      close(fd);
    } else if (strcmp(name, "--rlimit") == 0) {
      limit(value);
    } else if (strcmp(name, "--oom") == 0) {
      write_file("/proc/self/oom_score_adj", value, false);
    } else if (strcmp(name, "--state-path") == 0) {
      state_path = value;
    } else if (strcmp(name, "--state-fd") == 0) {
      state_fd = static_cast<int>(number(value));
    } else if (strcmp(name, "--expose") == 0) {
      char* equals = strchr(value, '=');
      if (equals == nullptr)
        usage(value);
      *equals = '\0';
      if (!exposed && (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0))
        fail("mount namespace");
      exposed = true;
      if (mount(value, equals + 1, nullptr, MS_BIND, nullptr) != 0)
        fail("exposing the data directory");
    } else if (strcmp(name, "--uid") == 0) {
      uid = number(value);
    } else if (strcmp(name, "--gid") == 0) {
      gid = number(value);
    } else {
      usage(name);
    }
  }
  if (at + 1 >= argc)
    usage("no program");
  char** program = argv + at + 1;

  // Whatever the server leaked: a sandbox once held a listener of the server (core-path).
  if (syscall(SYS_close_range, static_cast<unsigned>(last_fd + 1), ~0U, 0) != 0)
    fail("close_range");
  if (setsid() < 0 && errno != EPERM)
    fail("setsid");

  bool has_state = state_path == nullptr || clone_state(state_path, state_fd);
  if (uid >= 0) {
    const auto user = static_cast<uid_t>(uid);
    const auto group = static_cast<gid_t>(gid >= 0 ? gid : uid);
    if (setgroups(0, nullptr) != 0)
      fail("setgroups");
    if (setresgid(group, group, group) != 0)
      fail("setresgid");
    if (setresuid(user, user, user) != 0)
      fail("setresuid");
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    fail("no_new_privs");
  // Dropping the uid made this process unreadable to itself in /proc; what follows reads /proc/self.
  if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0)
    fail("dumpable");
  if (!has_state) {
    enter_user_namespace(geteuid(), getegid());
    has_state = clone_state(state_path, state_fd);
    if (!has_state)
      fail("state directory");
  }
  umask(022);
  execv(program[0], program);
  fail(program[0]);
}
