#include "runtime/cli/units.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

namespace holt::runtime::cli {

namespace {

/// A number of at least 0, and what stands behind it.
std::optional<std::pair<double, std::string_view>> number_and_unit(std::string_view text) {
  double number = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (ec != std::errc{} || number < 0 || !std::isfinite(number))
    return std::nullopt;
  return std::pair{number, text.substr(static_cast<std::size_t>(end - text.data()))};
}

std::optional<std::uint64_t> scaled(double number, double scale, double most) {
  auto value = std::round(number * scale);
  if (value > most)
    return std::nullopt;
  return static_cast<std::uint64_t>(value);
}

} // namespace

std::optional<std::uint64_t> parse_duration_ms(std::string_view text) {
  auto read = number_and_unit(text);
  if (!read)
    return std::nullopt;
  static constexpr std::array<std::pair<std::string_view, double>, 6> units{
      {{"", 1e3}, {"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}, {"d", 86400e3}}};
  for (auto [unit, scale] : units)
    if (read->second == unit)
      return scaled(read->first, scale, 100.0 * 365 * 86400e3);
  return std::nullopt;
}

std::optional<std::uint64_t> parse_size_bytes(std::string_view text) {
  auto read = number_and_unit(text);
  if (!read)
    return std::nullopt;
  auto unit = read->second;
  if (unit.ends_with("iB"))
    unit.remove_suffix(2);
  else if (unit.ends_with('B'))
    unit.remove_suffix(1);
  static constexpr std::string_view prefixes = "KMGT";
  if (unit.empty())
    return scaled(read->first, 1, 0x1p50);
  auto at = prefixes.find(static_cast<char>(unit[0] & ~0x20)); // "k" as well as "K"
  if (unit.size() != 1 || at == std::string_view::npos)
    return std::nullopt;
  return scaled(read->first, std::exp2(10.0 * static_cast<double>(at + 1)), 0x1p50);
}

std::string size_text(std::uint64_t bytes) {
  static constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

} // namespace holt::runtime::cli
