#include "actors/config.hpp"

#include <algorithm>
#include <thread>

namespace holt::actors {

system_config::system_config(std::uint32_t threads) {
  if (threads == 0)
    threads = std::max(1u, std::thread::hardware_concurrency());
  set("scheduler.policy", caf::atom("sharing"));
  set("scheduler.max-threads", static_cast<std::size_t>(threads));
  set("scheduler.max-throughput", std::size_t{50});
}

} // namespace holt::actors
