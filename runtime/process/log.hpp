#pragma once

#include <string>

namespace holt::runtime::process {

/// Sets up the log once, before any thread starts: to stderr, one JSON object a line (`format` "json") or text.
void start_log(const std::string& level, const std::string& format);

/// One event. `level`: "debug", "info", "warn", "error"; `fields`: a JSON object as text, or empty. Any thread. Never secrets.
void log_event(const char* level, const char* event, const std::string& fields = {});

} // namespace holt::runtime::process
