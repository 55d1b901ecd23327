// What a durable write costs, beside what the disk asks for one: a loop of write + fdatasync on the same file system,
// in the same run.
//
//   store_bench [--dir DIR] [--seconds N]      DIR: on the disk to be measured, by default the current directory

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "storage/sql_store.hpp"
#include "storage/sqlite_store.hpp"

namespace {

using namespace holt::storage;
using clock_type = std::chrono::steady_clock;
using std::chrono::duration;

struct outcome {
  double per_second = 0;
  double p50_us = 0;
  double p99_us = 0;
};

/// Callers that each call again once they were answered, for `time`.
outcome measure(int callers, duration<double> time, const std::function<void(int caller, int turn)>& call) {
  std::mutex mutex;
  std::vector<double> took;
  std::vector<std::thread> threads;
  const auto start = clock_type::now();
  const auto end = start + time;
  for (int i = 0; i < callers; ++i) {
    threads.emplace_back([&, i] {
      std::vector<double> own;
      for (int turn = 0; clock_type::now() < end; ++turn) {
        const auto before = clock_type::now();
        call(i, turn);
        own.push_back(duration<double, std::micro>(clock_type::now() - before).count());
      }
      std::lock_guard lock(mutex);
      took.insert(took.end(), own.begin(), own.end());
    });
  }
  for (auto& each : threads) {
    each.join();
  }
  const double seconds = duration<double>(clock_type::now() - start).count();
  std::sort(took.begin(), took.end());
  return {static_cast<double>(took.size()) / seconds, took[took.size() / 2], took[took.size() * 99 / 100]};
}

template <class T, class Call>
T wait_for(Call call) {
  std::promise<store_result<T>> promised;
  auto answer = promised.get_future();
  call([&](store_result<T> result) { promised.set_value(std::move(result)); });
  auto result = answer.get();
  if (!result) {
    std::fprintf(stderr, "the store failed: %s\n", result.error().detail.c_str());
    std::exit(1);
  }
  return std::move(*result);
}

environment_row environment(int caller, int turn, const char* kind) {
  environment_row row;
  row.id = "env_" + std::to_string((caller * 2654435761u) ^ (static_cast<unsigned>(turn) * 40503u)) + "_"
           + std::to_string(caller) + "_" + std::to_string(turn) + kind;
  row.org_id = "org_1";
  row.kind = "cloud";
  row.created_by = "user_1";
  row.created_at = turn;
  return row;
}

void print(const char* name, const outcome& got, const outcome& floor) {
  std::printf("%-34s %10.0f/s   p50 %8.1f us   p99 %8.1f us   %6.2f x floor\n", name, got.per_second, got.p50_us,
              got.p99_us, got.per_second / floor.per_second);
}

} // namespace

int main(int argc, char** argv) {
  std::string directory = ".";
  duration<double> time{3};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--dir") {
      directory = argv[i + 1];
    } else if (std::string(argv[i]) == "--seconds") {
      time = duration<double>(std::atof(argv[i + 1]));
    }
  }
  std::string own = directory + "/store_bench-XXXXXX";
  if (::mkdtemp(own.data()) == nullptr) {
    std::perror(own.c_str());
    return 1;
  }

  // As SQLite's log does: the file is as long as it will be, and is written over, a commit's few pages at a time.
  const std::string floor_file = own + "/floor";
  int file = ::open(floor_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const std::string pages(8 * 4096, 'x');
  for (int i = 0; i < 128; ++i) {
    if (::pwrite(file, pages.data(), pages.size(), static_cast<off_t>(i * pages.size())) < 0) {
      return 1;
    }
  }
  ::fsync(file);
  auto floor_measured = measure(1, time, [&](int, int turn) {
    if (::pwrite(file, pages.data(), pages.size(), static_cast<off_t>(turn % 128 * pages.size())) < 0
        || ::fdatasync(file) != 0) {
      std::exit(1);
    }
  });
  ::close(file);
  print("write 32 KiB + fdatasync", floor_measured, floor_measured);

  auto opened = sqlite_database::open(own + "/holt.db", {}, known_migrations(), 1);
  if (!opened) {
    std::fprintf(stderr, "%s\n", opened.error().detail.c_str());
    return 1;
  }
  sqlite_database& database = **opened;
  sql_store db(std::move(*opened), [] { return std::int64_t{1}; });
  wait_for<org_row>([&](auto reply) { db.create_org({"org_1", "bench", 1}, reply); });

  auto durable = [&](const char* name, int callers, const std::function<void(int, int)>& call) {
    const auto before = database.count();
    print(name, measure(callers, time, call), floor_measured);
    const auto after = database.count();
    std::printf("%-34s %10.1f calls a commit\n", "",
                double(after.calls - before.calls) / double(after.commits - before.commits));
  };
  for (int callers : {1, 50}) {
    const auto suffix = callers == 1 ? ", 1 caller" : ", 50 callers";
    durable((std::string("create_environment") + suffix).c_str(), callers, [&](int caller, int turn) {
      wait_for<environment_row>(
          [&](auto reply) { db.create_environment(environment(caller, turn, callers == 1 ? "a" : "b"), reply); });
    });
    std::vector<std::uint64_t> generations(static_cast<std::size_t>(callers), 0);
    std::vector<std::string> ids;
    for (int i = 0; i < callers; ++i) {
      auto row = environment(i, 0, callers == 1 ? "w" : "x");
      ids.push_back(row.id);
      wait_for<environment_row>([&](auto reply) { db.create_environment(row, reply); });
    }
    durable((std::string("write_instance, fenced") + suffix).c_str(), callers, [&](int caller, int) {
      const auto own_place = static_cast<std::size_t>(caller);
      instance_row row;
      row.environment_id = ids[own_place];
      row.status = "running";
      auto& generation = generations[own_place];
      generation = wait_for<instance_row>([&](auto reply) { db.write_instance(row, generation, reply); }).generation;
    });
    print((std::string("get_environment") + suffix).c_str(),
          measure(callers, time,
                  [&](int caller, int) {
                    wait_for<environment_record>(
                        [&](auto reply) { db.get_environment("org_1", ids[static_cast<std::size_t>(caller)], reply); });
                  }),
          floor_measured);
    print((std::string("touch_instance") + suffix).c_str(),
          measure(callers, time,
                  [&](int caller, int turn) { db.touch_instance(ids[static_cast<std::size_t>(caller)], turn); }),
          floor_measured);
  }
  db.close();
  std::filesystem::remove_all(own);
  return 0;
}
