#include "runtime/process/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace holt::runtime::process {

namespace {
bool as_json = true;
}

void start_log(const std::string& level, const std::string& format) {
  as_json = format == "json";
  auto logger = std::make_shared<spdlog::logger>("holt", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(spdlog::level::from_str(level));
  // The message is JSON already: time and level are put before it as members of the same object.
  logger->set_pattern(as_json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%fZ","level":"%l",%v})" : "%H:%M:%S.%e %l %v",
                      spdlog::pattern_time_type::utc);
  spdlog::set_default_logger(logger);
}

void log_event(const char* level, const char* event, const std::string& fields) {
  auto at = spdlog::level::from_str(level);
  if (!spdlog::default_logger_raw()->should_log(at))
    return;
  bool empty = fields.size() < 3; // "" or "{}"
  if (as_json)
    spdlog::log(at, "\"event\":\"{}\"{}{}", event, empty ? "" : ",",
                empty ? std::string_view{} : std::string_view{fields}.substr(1, fields.size() - 2));
  else
    spdlog::log(at, "{} {}", event, fields);
}

} // namespace holt::runtime::process
