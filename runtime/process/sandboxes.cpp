#include "runtime/process/sandboxes.hpp"

#include "runtime/providers/bubblewrap.hpp"
#include "runtime/providers/embedded.hpp"

namespace holt::runtime::process {

tl::expected<std::shared_ptr<actors::provider_backend>, std::string> open_sandboxes(const settings& settings,
                                                                                   const std::string& data_dir) {
  auto programs = providers::install_embedded_programs(data_dir);
  if (!programs)
    return tl::unexpected(programs.error());
  providers::bubblewrap_options options;
  options.data_dir = data_dir;
  options.agent = programs->agent;
  options.launcher = programs->launcher;
  options.uid_first = settings.uid_first;
  options.uid_count = settings.uid_count;
  options.default_limits.memory_bytes = settings.memory_bytes;
  options.default_limits.processes = settings.processes;
  if (settings.cpus > 0)
    options.default_limits.cpus = settings.cpus;
  options.default_limits.open_files = settings.open_files;
  if (settings.file_size_bytes > 0)
    options.default_limits.file_size_bytes = settings.file_size_bytes;
  else
    options.default_limits.file_size_bytes = std::nullopt;
  options.tmp_bytes = settings.tmp_bytes;
  options.prepared = settings.prepared;
  options.require = settings.require;
  options.start_deadline = std::chrono::milliseconds{settings.create_timeout_ms};
  auto made = providers::make_bubblewrap(std::move(options));
  if (!made)
    return tl::unexpected(made.error());
  return std::shared_ptr<actors::provider_backend>{std::move(*made)};
}

} // namespace holt::runtime::process
