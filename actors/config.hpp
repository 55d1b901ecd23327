#pragma once

#include <cstdint>

#include <caf/actor_system_config.hpp>

namespace holt::actors {

/// The one place that configures the actor system: policy `sharing`, since the default starves actors on few cores
/// (two busy pairs kept a third waiting for seconds), throughput 50, and as many threads as asked for (0: cores).
class system_config : public caf::actor_system_config {
public:
  explicit system_config(std::uint32_t threads = 0);
};

} // namespace holt::actors
