#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

/// Counts of the edge for GET /metrics (spec 102). Any thread; counting a request takes no lock but the histogram's.
namespace holt::runtime::http {

class route_table;

class metrics {
public:
  explicit metrics(const route_table& routes);
  ~metrics();

  static constexpr std::size_t no_route = static_cast<std::size_t>(-1);
  void connection_opened();
  void connection_closed();
  void connection_refused();
  void request_began();
  void request_ended(std::size_t route, unsigned status, std::chrono::nanoseconds took);
  /// Prometheus text.
  std::string text() const;

private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

} // namespace holt::runtime::http
