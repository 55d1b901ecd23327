#include <cstdio>
#include <string>
#include <vector>

#include "runtime/cli/cli.hpp"
#include "runtime/process/serve.hpp"

namespace {

constexpr const char* help =
    "holt gives AI agents environments to work in.\n"
    "\n"
    "  holt serve           serves the API; `holt serve --help` lists every setting\n"
    "  holt admin           work on a data directory that no server uses\n"
    "\n"
    "As a client of a server:\n"
    "  holt login           keeps the server's address and your key\n"
    "  holt env             create, list, show, delete, reset, suspend, resume; ls, cat, rm of files\n"
    "  holt exec ENV -- …   runs a command and gives its output and exit code\n"
    "  holt shell ENV       a terminal\n"
    "  holt cp FROM TO      copies files in or out (ENV:/workspace/path)\n"
    "\n"
    "  holt --version\n";

} // namespace

int main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  if (args.empty() || args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    std::fputs(help, args.empty() ? stderr : stdout);
    return args.empty() ? 64 : 0;
  }
  if (args[0] == "--version") {
    std::puts("holt " HOLT_VERSION);
    return 0;
  }
  auto rest = std::span{args}.subspan(1);
  if (args[0] == "serve")
    return holt::runtime::process::serve(rest);
  if (args[0] == "admin")
    return holt::runtime::process::admin(rest);
  if (holt::runtime::cli::knows(args[0]))
    return holt::runtime::cli::run(args);
  std::fprintf(stderr, "holt: unknown command '%s'; `holt --help` lists them\n", args[0].c_str());
  return 64;
}
