// holt-agent: the program inside an environment. See README.md.

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string_view>

#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/agent.hpp"

namespace {

using holt::agent::unique_fd;

constexpr int usage_error = 64;
constexpr int unavailable = 69;

[[noreturn]] void die(int code, const char* what, const char* why = "") {
  std::fprintf(stderr, "holt-agent: %s%s%s\n", what, *why != '\0' ? ": " : "", why);
  std::exit(code);
}

unique_fd listen_at(const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (std::strlen(path) >= sizeof address.sun_path)
    die(usage_error, "--listen-path is too long");
  std::strcpy(address.sun_path, path);
  unique_fd socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  ::unlink(path);
  auto before = ::umask(0177);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0
      || ::listen(socket.get(), 64) != 0)
    die(unavailable, path, std::strerror(errno));
  ::umask(before);
  return socket;
}

int number(const char* text) {
  char* end;
  auto value = std::strtol(text, &end, 10);
  if (*text == '\0' || *end != '\0' || value < 0 || value > 1'000'000)
    die(usage_error, "not a descriptor number", text);
  return static_cast<int>(value);
}

/// Nothing of the agent may be read, traced or dumped by what runs beside it (spec 46).
void harden() {
  ::prctl(PR_SET_DUMPABLE, 0);
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// Lets go of the pages of code and constants, after starting and at rest: they are most of what a resting agent holds, and
/// what is used again comes back from the page cache. For the static file only: a loader may have changed such pages of a
/// shared one.
void release_clean_pages() {
  ::dl_iterate_phdr(
    [](dl_phdr_info* info, std::size_t, void*) {
      bool loaded = false;
      for (int i = 0; i < info->dlpi_phnum; ++i)
        loaded = loaded || info->dlpi_phdr[i].p_type == PT_INTERP;
      for (int i = 0; i < info->dlpi_phnum && !loaded; ++i) {
        auto& part = info->dlpi_phdr[i];
        if (part.p_type != PT_LOAD || (part.p_flags & PF_W) != 0)
          continue;
        constexpr std::uintptr_t page = 4096;
        // Whole pages of this part alone.
        auto begin = (info->dlpi_addr + part.p_vaddr + page - 1) / page * page;
        auto end = (info->dlpi_addr + part.p_vaddr + part.p_filesz) / page * page;
        if (begin < end)
          ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
      }
      // Only the program itself, which comes first.
      return 1;
    },
    nullptr);
}
#else
void release_clean_pages() {
  // A sanitizer's program is not static.
}
#endif

} // namespace

/// The C++ library's own names the exception on stderr, and for that brings a demangler and the formatting of every
/// locale into a static program. Nobody reads an agent's stderr.
void __gnu_cxx::__verbose_terminate_handler() {
  std::abort();
}

int main(int argc, char** argv) {
  harden();
  // One heap for all threads, given back when it is free: many agents share a machine.
  ::mallopt(M_ARENA_MAX, 1);
  ::mallopt(M_TRIM_THRESHOLD, 128 * 1024);
  ::mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  if (argc < 2 || std::string_view{argv[1]} != "serve")
    die(usage_error, "usage: holt-agent serve (--listen-fd N | --listen-path P) (--state-fd N | --state-dir P) "
                     "[--ready-fd N] [--workspace P] [--skills P] [--tmp P] [--shell P]");
  holt::agent::agent_options options;
  unique_fd ready; // told once, by one byte, that the socket is served
  for (int i = 2; i < argc; i += 2) {
    std::string_view name{argv[i]};
    if (i + 1 >= argc)
      die(usage_error, "a value is missing", argv[i]);
    const char* value = argv[i + 1];
    if (name == "--listen-fd")
      options.listener.reset(number(value));
    else if (name == "--listen-path")
      options.listener = listen_at(value);
    else if (name == "--state-fd")
      options.state.reset(number(value));
    else if (name == "--state-dir")
      options.state.reset(::open(value, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    else if (name == "--ready-fd")
      ready.reset(number(value));
    else if (name == "--workspace")
      options.roots.workspace = value;
    else if (name == "--skills")
      options.roots.skills = value;
    else if (name == "--tmp")
      options.roots.tmp = value;
    else if (name == "--shell")
      options.shell = value;
    else
      die(usage_error, "unknown option", argv[i]);
  }
  if (!options.listener || !options.state)
    die(usage_error, "a listening socket and a state directory are needed");
  struct stat status;
  if (::fstat(options.state.get(), &status) != 0 || !S_ISDIR(status.st_mode))
    die(usage_error, "the state is not a directory");
  for (int fd : {options.listener.get(), options.state.get()})
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  ::fcntl(options.listener.get(), F_SETFL, O_NONBLOCK);
  options.on_rest = [] {
    ::malloc_trim(0);
    release_clean_pages();
  };
  holt::agent::agent agent{std::move(options)};
  if (!agent.problem().empty())
    die(unavailable, agent.problem().c_str());
  if (ready && ::write(ready.get(), "r", 1) != 1)
    die(unavailable, "--ready-fd", std::strerror(errno));
  ready.reset();
  release_clean_pages();
  agent.run();
}
