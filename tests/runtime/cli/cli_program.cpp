#include <string>
#include <vector>

#include "runtime/cli/cli.hpp"

/// The client alone, for the tests.
int main(int argc, char** argv) {
  return holt::runtime::cli::run(std::vector<std::string>(argv + 1, argv + argc));
}
