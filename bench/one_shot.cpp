#include "bench/one_shot.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "runtime/providers/embedded.hpp"
#include "runtime/providers/sandbox_profile.hpp"
#include "runtime/providers/seccomp_filter.hpp"
#include "runtime/providers/system_etc.hpp"

namespace holt::bench {

namespace {
constexpr int seccomp_number = 7;
constexpr int info_number = 6;
constexpr uid_t nobody_else = 699'999;

/// The same file under a number that no descriptor of the sandbox has: one dup2 must not overwrite the source of the next.
providers::unique_fd out_of_the_way(providers::unique_fd fd) {
  return providers::unique_fd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 20));
}
} // namespace

one_shot_sandbox::one_shot_sandbox(const scratch_directory& scratch, const std::string& program) {
  auto home = scratch.path() / "one-shot";
  std::filesystem::create_directories(home / "workspace");
  auto programs = providers::install_embedded_programs(home);
  auto etc = providers::build_etc(home / "etc", false);
  auto filter = providers::build_seccomp_filter();
  if (!programs || !etc || !filter)
    give_up("the one-shot sandbox can't be prepared");
  seccomp_ = std::move(*filter);
  info_ = out_of_the_way(providers::unique_fd(::open("/dev/null", O_WRONLY | O_CLOEXEC)));

  auto copy = home / "program";
  std::filesystem::copy_file(program, copy, std::filesystem::copy_options::overwrite_existing);
  providers::sandbox_profile profile;
  profile.bwrap = "/usr/bin/bwrap";
  profile.system = providers::find_system_directories();
  profile.etc = *etc;
  profile.workspace = profile.skills = home / "workspace";
  profile.agent = copy;
  profile.tmp_bytes = 1ull << 30;
  profile.shm_bytes = 64ull << 20;
  profile.seccomp_fd = seccomp_number;
  profile.info_fd = info_number;
  words_ = {programs->launcher, "--last-fd", std::to_string(seccomp_number)};
  if (::geteuid() == 0) {
    if (::chown(profile.workspace.c_str(), nobody_else, nobody_else) != 0)
      give_up("cannot give a directory away");
    auto id = std::to_string(nobody_else);
    words_.insert(words_.end(), {"--uid", id, "--gid", id});
  }
  words_.push_back("--");
  auto sandbox = providers::bwrap_arguments(profile);
  words_.insert(words_.end(), sandbox.begin(), sandbox.end());
}

void one_shot_sandbox::run() {
  auto filter = out_of_the_way(providers::reopen(seccomp_.get())); // bwrap reads it from its position on
  spawn_and_wait(words_, {{filter.get(), seccomp_number}, {info_.get(), info_number}});
}

} // namespace holt::bench
