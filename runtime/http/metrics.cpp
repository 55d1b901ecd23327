#include "runtime/http/metrics.hpp"

#include <dirent.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "runtime/http/router.hpp"

namespace holt::runtime::http {

namespace {

/// Every status that is counted by itself; others are counted as the first of their hundred.
constexpr std::size_t statuses = 600;

const prometheus::Histogram::BucketBoundaries& latency_bounds() {
  static const prometheus::Histogram::BucketBoundaries bounds{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                              0.1,    0.25,  0.5,    1,     2.5,  5,     10};
  return bounds;
}

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double open_descriptors() {
  double count = 0;
  if (DIR* directory = opendir("/proc/self/fd")) {
    while (readdir(directory) != nullptr)
      ++count;
    closedir(directory);
    count -= 3; // ".", ".." and the directory itself
  }
  return count;
}

double cpu_seconds() {
  timespec spent{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return static_cast<double>(spent.tv_sec) + static_cast<double>(spent.tv_nsec) / 1e9;
}

} // namespace

struct metrics::parts {
  struct per_route {
    std::string name;
    prometheus::Histogram* latency = nullptr;
    std::array<std::atomic<prometheus::Counter*>, statuses> by_status{};
  };

  mutable prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& requests =
    prometheus::BuildCounter().Name("holt_http_requests_total").Help("Requests answered, by route and status.").Register(registry);
  prometheus::Family<prometheus::Histogram>& latency =
    prometheus::BuildHistogram().Name("holt_http_request_seconds").Help("Time from header to last byte of the answer.").Register(registry);
  prometheus::Gauge& in_flight = prometheus::BuildGauge()
                                   .Name("holt_http_requests_in_flight")
                                   .Help("Requests being answered.")
                                   .Register(registry)
                                   .Add({});
  prometheus::Gauge& connections =
    prometheus::BuildGauge().Name("holt_http_connections").Help("Open connections.").Register(registry).Add({});
  prometheus::Counter& refused = prometheus::BuildCounter()
                                   .Name("holt_http_connections_refused_total")
                                   .Help("Connections over the limit.")
                                   .Register(registry)
                                   .Add({});
  prometheus::Gauge& resident = prometheus::BuildGauge()
                                  .Name("process_resident_memory_bytes")
                                  .Help("Resident memory.")
                                  .Register(registry)
                                  .Add({});
  prometheus::Gauge& descriptors =
    prometheus::BuildGauge().Name("process_open_fds").Help("Open descriptors.").Register(registry).Add({});
  prometheus::Gauge& cpu = prometheus::BuildGauge()
                             .Name("process_cpu_seconds_total")
                             .Help("Processor time, user and system.")
                             .Register(registry)
                             .Add({});
  std::vector<std::unique_ptr<per_route>> routes; // the last one: no route
};

metrics::metrics(const route_table& table) : parts_(std::make_unique<parts>()) {
  auto add = [&](std::string name) {
    auto one = std::make_unique<parts::per_route>();
    one->latency = &parts_->latency.Add({{"route", name}}, latency_bounds());
    one->name = std::move(name);
    parts_->routes.push_back(std::move(one));
  };
  for (auto& one : table.all())
    add(one->doc.id);
  add("none");
}

metrics::~metrics() = default;

void metrics::connection_opened() {
  parts_->connections.Increment();
}

void metrics::connection_closed() {
  parts_->connections.Decrement();
}

void metrics::connection_refused() {
  parts_->refused.Increment();
}

void metrics::request_began() {
  parts_->in_flight.Increment();
}

void metrics::request_ended(std::size_t route, unsigned status, std::chrono::nanoseconds took) {
  parts_->in_flight.Decrement();
  auto& one = *parts_->routes[std::min(route, parts_->routes.size() - 1)];
  auto& slot = one.by_status[std::min<std::size_t>(status, statuses - 1)];
  auto* counter = slot.load(std::memory_order_acquire);
  if (counter == nullptr) {
    // The family answers the same counter to whoever else gets here.
    counter = &parts_->requests.Add({{"route", one.name}, {"code", std::to_string(status)}});
    slot.store(counter, std::memory_order_release);
  }
  counter->Increment();
  one.latency->Observe(std::chrono::duration<double>(took).count());
}

std::string metrics::text() const {
  parts_->resident.Set(resident_bytes());
  parts_->descriptors.Set(open_descriptors());
  parts_->cpu.Set(cpu_seconds());
  return prometheus::TextSerializer{}.Serialize(parts_->registry.Collect());
}

} // namespace holt::runtime::http
