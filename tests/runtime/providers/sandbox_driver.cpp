/// Makes a sandbox as a server would, in a process that a test may kill.
///
///   sandbox_driver DATA AGENT LAUNCHER CGROUPS UID ENVIRONMENT FILES GENERATION [STEP]
///
/// Prints the handle. With STEP it kills itself (SIGKILL) at that step of create.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "runtime/providers/bubblewrap.hpp"

int main(int argc, char** argv) {
  if (argc < 9)
    return 64;
  holt::providers::bubblewrap_options options;
  options.data_dir = argv[1];
  options.agent = argv[2];
  options.launcher = argv[3];
  options.use_cgroups = std::string(argv[4]) == "yes";
  options.uid_first = static_cast<std::uint32_t>(std::strtoul(argv[5], nullptr, 10));
  options.uid_count = 90;
  const std::string step = argc > 9 ? argv[9] : "";
  options.cut = [&step](std::string_view reached) {
    if (reached == step)
      std::raise(SIGKILL);
    return false;
  };
  const auto provider = holt::providers::make_bubblewrap(options);
  if (!provider) {
    std::fprintf(stderr, "%s\n", provider.error().c_str());
    return 1;
  }
  holt::actors::instance_spec spec;
  spec.environment_id = argv[6];
  spec.file_system_id = argv[7];
  spec.generation = std::strtoull(argv[8], nullptr, 10);
  spec.new_files = true;
  const auto made = (*provider)->create(spec);
  if (!made) {
    std::fprintf(stderr, "%s\n", made.error().detail.c_str());
    return 1;
  }
  std::printf("%s\n", made->handle.c_str());
  std::fflush(stdout);
  std::raise(SIGKILL);
}
