/// Makes a sandbox as a server would, in a process that a test may kill.
///
///   sandbox_driver DATA AGENT LAUNCHER CGROUPS ENVIRONMENT FILES GENERATION [STEP]
///
/// Prints the handle. With STEP it kills itself (SIGKILL) at that step of create.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "runtime/providers/bubblewrap.hpp"

int main(int argc, char** argv) {
  if (argc < 8)
    return 64;
  holt::providers::bubblewrap_options options;
  options.data_dir = argv[1];
  options.agent = argv[2];
  options.launcher = argv[3];
  options.use_cgroups = std::string(argv[4]) == "yes";
  const std::string step = argc > 8 ? argv[8] : "";
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
  spec.environment_id = argv[5];
  spec.file_system_id = argv[6];
  spec.generation = std::strtoull(argv[7], nullptr, 10);
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
