#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "actors/provider_backend.hpp"

/// The provider `bubblewrap` (spec 33): a sandbox on this machine, which outlives the server.
///
/// What lies where, beneath the data directory:
///
///   uids                       which host uid belongs to which environment (uid_ledger.hpp)
///   etc/VERSION/               the /etc that sandboxes see
///   trash/                     files being removed
///   envs/ID/files/FS/workspace and skills     kept files; FS is the file-system id
///   envs/ID/state/             the agent's ledger and logs: outlives instances, goes with `forget`
///   envs/ID/run/               instance.json (instance_record.hpp), launch, agent.sock: root's (the server's) alone
namespace holt::providers {

struct bubblewrap_options {
  std::filesystem::path data_dir;
  /// The static programs; see embedded.hpp for where the server has them from.
  std::filesystem::path agent;
  std::filesystem::path launcher;
  std::string bwrap = "/usr/bin/bwrap";
  /// Where the sandboxes' /etc is kept; default: `etc` in the data directory.
  std::filesystem::path etc_dir;

  /// Host uids for environments when started as root; nobody else on the machine may use them.
  std::uint32_t uid_first = 700'000;
  std::uint32_t uid_count = 100'000;

  /// What applies where an environment's own settings say nothing.
  actors::environment_limits default_limits{.memory_bytes = 2ULL << 30U,
                                            .processes = 512,
                                            .cpus = std::nullopt,
                                            .open_files = 4096,
                                            .file_size_bytes = 8ULL << 30U,
                                            .disk_bytes = std::nullopt};
  std::uint64_t tmp_bytes = 1ULL << 30U;  // of /tmp, which is memory
  std::uint64_t shm_bytes = 64ULL << 20U; // of /dev/shm

  /// Features (provider_report) without which the server refuses to start.
  std::vector<std::string> require;
  /// Off: limits by rlimits, suspend by signals, as where the machine has no writable cgroups.
  bool use_cgroups = true;

  /// Spare sandboxes that are started without a name and get one when a new environment without settings of its own is
  /// made: each costs what a live sandbox costs, and saves the start. 0: none.
  std::size_t prepared = 0;

  /// How long a sandbox may take until its agent listens, and until it is dead after a kill.
  std::chrono::milliseconds start_deadline{10'000};
  std::chrono::milliseconds stop_deadline{10'000};
  /// How long the ledger of an environment without files is kept when nobody calls `forget` (spec 44: ids live 30
  /// days).
  std::chrono::hours state_retention{24 * 31};

  /// Called with the name of each step of create; true leaves create there, as a crash of the server would.
  std::function<bool(std::string_view step)> cut;
};

/// Probes the machine, builds what all sandboxes share, and runs one trial sandbox. Fails when the data directory can't
/// be used, or something in `require` is missing; a machine that can't isolate at all is told by report().available.
tl::expected<std::unique_ptr<actors::provider_backend>, std::string> make_bubblewrap(bubblewrap_options options);

} // namespace holt::providers
