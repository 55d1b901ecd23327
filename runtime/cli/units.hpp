#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Times and sizes as people write them on a command line. Pure.
namespace holt::runtime::cli {

/// "500ms", "30s", "5m", "2h", "7d"; a number alone is seconds. nullopt: it is no such time, or longer than 100 years.
std::optional<std::uint64_t> parse_duration_ms(std::string_view text);

/// "4096", "64K", "512M", "2G", "1T" (of 1024 each; "MiB" and "MB" are the same). nullopt: it is no such size.
std::optional<std::uint64_t> parse_size_bytes(std::string_view text);

/// "12.3 MiB".
std::string size_text(std::uint64_t bytes);

} // namespace holt::runtime::cli
