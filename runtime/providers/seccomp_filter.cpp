#include "runtime/providers/seccomp_filter.hpp"

#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace holt::providers {

namespace {

struct release_filter {
  void operator()(void* filter) const {
    seccomp_release(filter);
  }
};

constexpr std::uint64_t low_word = 0xffffffffU; // the kernel looks at 32 bits of these arguments

// Refused whatever their arguments. Most need privileges that a sandbox lacks anyway: the filter stands in front of the
// kernel's own check, so that a fault behind it is out of reach.
constexpr const char* refused[] = {
    // mounts and namespaces
    "mount",
    "umount",
    "umount2",
    "pivot_root",
    "chroot",
    "move_mount",
    "open_tree",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "setns",
    // the kernel itself
    "init_module",
    "finit_module",
    "delete_module",
    "create_module",
    "kexec_load",
    "kexec_file_load",
    "reboot",
    "bpf",
    "perf_event_open",
    "syslog",
    "acct",
    "swapon",
    "swapoff",
    "quotactl",
    "quotactl_fd",
    "settimeofday",
    "clock_settime",
    "clock_adjtime",
    "adjtimex",
    "iopl",
    "ioperm",
    "nfsservctl",
    "lookup_dcookie",
    "fanotify_init",
    "vhangup",
    // keys of the kernel are not separated by user namespace everywhere
    "add_key",
    "request_key",
    "keyctl",
    // large surfaces that no command needs
    "userfaultfd",
    "open_by_handle_at",
    "name_to_handle_at",
    "uselib",
    "ustat",
    "sysfs",
    "_sysctl",
};

// "No such call": programs ask for these first and have another way.
constexpr const char* absent[] = {"clone3", "io_uring_setup", "io_uring_enter", "io_uring_register"};

constexpr int namespaces[] = {CLONE_NEWUSER, CLONE_NEWNS,  CLONE_NEWPID,    CLONE_NEWNET,
                              CLONE_NEWIPC,  CLONE_NEWUTS, CLONE_NEWCGROUP, 0x80 /* CLONE_NEWTIME */};

scmp_arg_cmp argument(unsigned index, scmp_compare how, scmp_datum_t first, scmp_datum_t second = 0) {
  return {index, how, first, second};
}

int add_rules(scmp_filter_ctx filter) {
  const auto by_name = [&](const char* name, std::uint32_t action) {
    const int call = seccomp_syscall_resolve_name(name);
    // Unknown to this libseccomp, or not of this architecture.
    return call < 0 ? 0 : seccomp_rule_add(filter, action, call, 0);
  };
  for (const char* name : refused) {
    if (const int status = by_name(name, SCMP_ACT_ERRNO(EPERM)))
      return status;
  }
  for (const char* name : absent) {
    if (const int status = by_name(name, SCMP_ACT_ERRNO(ENOSYS)))
      return status;
  }
  for (const int flag : namespaces) {
    const auto bit = static_cast<scmp_datum_t>(flag);
    if (const int status = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(unshare), 1,
                                            argument(0, SCMP_CMP_MASKED_EQ, bit, bit)))
      return status;
    // For clone the low byte is the exit signal, where CLONE_NEWTIME would be: that flag exists for clone3 and unshare
    // only.
    if (flag == 0x80)
      continue;
    if (const int status = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                                            argument(0, SCMP_CMP_MASKED_EQ, bit, bit)))
      return status;
  }
  // Typing into the terminal of whoever started the command.
  for (const auto request : {TIOCSTI, TIOCLINUX}) {
    if (const int status =
            seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
                             argument(1, SCMP_CMP_MASKED_EQ, low_word, static_cast<scmp_datum_t>(request))))
      return status;
  }
  // Sockets of the families that programs use: unix, IPv4, IPv6, netlink. All others, AF_VSOCK (to the host of a
  // virtual machine) and AF_ALG among them, are refused.
  for (int family = 0; family <= AF_NETLINK; ++family) {
    if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK)
      continue;
    if (const int status =
            seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                             argument(0, SCMP_CMP_MASKED_EQ, low_word, static_cast<scmp_datum_t>(family))))
      return status;
  }
  return seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                          argument(0, SCMP_CMP_GT, AF_NETLINK));
}

} // namespace

tl::expected<unique_fd, std::string> build_seccomp_filter() {
  const auto fail = [](const char* what, int status) {
    return tl::unexpected(std::string("seccomp: ") + what + ": " + std::strerror(-status));
  };
  const std::unique_ptr<void, release_filter> filter(seccomp_init(SCMP_ACT_ALLOW));
  if (!filter)
    return fail("init", -ENOMEM);
  // Calls of another architecture (32-bit, x32) would pass by every rule: they don't exist here.
  if (const int status = seccomp_attr_set(filter.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS)))
    return fail("architectures", status);
  if (const int status = add_rules(filter.get()))
    return fail("rule", status);
  unique_fd file(::memfd_create("holt-seccomp", MFD_CLOEXEC));
  if (!file)
    return fail("memory file", -errno);
  if (const int status = seccomp_export_bpf(filter.get(), file.get()))
    return fail("export", status);
  return file;
}

unique_fd reopen(int fd) {
  return unique_fd(::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC));
}

} // namespace holt::providers
