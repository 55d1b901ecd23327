// A process of its own for the crash tests, which kill it.
//
//   store_writer create FILE PREFIX   writes environments without end; prints the id of each acknowledged one
//   store_writer migrate FILE         opens the database, prints "done"

#include <cstring>
#include <iostream>
#include <semaphore>
#include <string>

#include <unistd.h>

#include "storage/sqlite_store.hpp"

namespace {

using namespace holt::storage;

constexpr std::ptrdiff_t in_flight = 32;

void print(const std::string& text) {
  // One write a line, so that a kill never cuts an id.
  if (::write(STDOUT_FILENO, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    ::_exit(1);
  }
}

[[noreturn]] void create_without_end(store& db, const std::string& prefix) {
  static std::counting_semaphore<in_flight> room(in_flight);
  for (std::uint64_t i = 0;; ++i) {
    room.acquire();
    environment_row row;
    row.id = "env_" + prefix + "_" + std::to_string(i);
    row.org_id = "org_a";
    row.labels = {{"writer", prefix}};
    row.created_at = static_cast<std::int64_t>(i);
    db.create_environment(row, [](store_result<environment_row> made) {
      if (!made) {
        std::cerr << made.error().detail << '\n';
        ::_exit(1);
      }
      print(made->id + "\n");
      room.release();
    });
  }
}

} // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    return 64;
  }
  auto opened = open_sqlite_store(argv[2]);
  if (!opened) {
    std::cerr << opened.error().detail << '\n';
    return 1;
  }
  if (std::strcmp(argv[1], "create") == 0 && argc == 4) {
    create_without_end(**opened, argv[3]);
  }
  (*opened)->close();
  print("done\n");
  return 0;
}
