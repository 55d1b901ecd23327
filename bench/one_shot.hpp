#pragma once

#include <string>
#include <vector>

#include "bench/harness.hpp"
#include "runtime/providers/fd.hpp"

/// One bubblewrap per command, of exactly the profile that the provider uses: what a sandbox costs without an agent
/// that stays. The step to a uid of its own is done by holt-launch, as the provider does it, when this runs as root.
namespace holt::bench {

class one_shot_sandbox {
public:
  /// `program` is a path of this machine; it is what runs inside, as /run/holt/agent.
  one_shot_sandbox(const scratch_directory& scratch, const std::string& program);
  void run();

private:
  std::vector<std::string> words_;
  providers::unique_fd seccomp_;
  providers::unique_fd info_;
};

} // namespace holt::bench
