/// Grep and glob beside ripgrep on the same tree (links: holt::agent_search).
///
///   search_bench TREE [ROUNDS]
///
/// The library runs in this process, `rg` (from PATH) as a child, in turn, so that drift hits both alike. Prints the
/// median of each in milliseconds, their ratio, and how many results both found.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "agent/search/glob.hpp"
#include "agent/search/grep.hpp"

extern char** environ;

namespace {

using namespace holt::agent;
namespace wire = holt::protocols::agent;
using clock_type = std::chrono::steady_clock;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Runs rg, counts the lines that it writes.
std::uint64_t run_rg(const std::vector<std::string>& arguments) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    std::abort();
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  std::vector<char*> argv;
  argv.push_back(const_cast<char*>("rg"));
  for (const auto& each : arguments)
    argv.push_back(const_cast<char*>(each.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  if (::posix_spawnp(&child, "rg", &actions, nullptr, argv.data(), environ) != 0) {
    std::fprintf(stderr, "search_bench: can't run rg; install ripgrep\n");
    std::exit(69);
  }
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::uint64_t lines = 0;
  std::vector<char> buffer(256 * 1024);
  for (long count; (count = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    lines += static_cast<std::uint64_t>(std::count(buffer.begin(), buffer.begin() + count, '\n'));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return lines;
}

void compare(const char* name, int rounds, const std::function<std::uint64_t()>& ours, std::vector<std::string> rg) {
  std::vector<double> our_times;
  std::vector<double> rg_times;
  std::uint64_t our_count = 0;
  std::uint64_t rg_count = 0;
  for (int i = 0; i < rounds; ++i) {
    auto start = clock_type::now();
    our_count = ours();
    auto between = clock_type::now();
    rg_count = run_rg(rg);
    auto end = clock_type::now();
    our_times.push_back(std::chrono::duration<double, std::milli>(between - start).count());
    rg_times.push_back(std::chrono::duration<double, std::milli>(end - between).count());
  }
  std::printf("%-28s holt %7.0f ms   rg %7.0f ms   ratio %.2f   results %llu / %llu\n", name, median(our_times),
              median(rg_times), median(our_times) / median(rg_times), static_cast<unsigned long long>(our_count),
              static_cast<unsigned long long>(rg_count));
  std::fflush(stdout);
}

} // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: search_bench TREE [ROUNDS]\n");
    return 64;
  }
  std::string tree = argv[1];
  int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 7;
  int directory = ::open(tree.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) {
    std::perror(tree.c_str());
    return 66;
  }
  files::root_table roots({{tree, directory, true}});

  auto grep = [&](std::string pattern, std::function<void(wire::search_grep&)> change = {}) {
    return [&roots, pattern, change] {
      wire::search_grep arguments;
      arguments.pattern = pattern;
      arguments.limit = 100'000'000;
      arguments.max_line_bytes = 1'000'000;
      if (change)
        change(arguments);
      std::uint64_t count = 0;
      auto done = search::grep(roots, arguments, [&](wire::grep_record&& record) {
        count += record.type != "binary";
        return true;
      });
      if (!done)
        std::fprintf(stderr, "search_bench: %s\n", done.error().message.c_str());
      return count;
    };
  };
  auto glob = [&](std::string pattern) {
    return [&roots, pattern] {
      wire::search_glob arguments;
      arguments.pattern = pattern;
      arguments.limit = 100'000'000;
      std::uint64_t count = 0;
      auto done = search::glob(roots, arguments, [&](wire::file_entry&&) {
        ++count;
        return true;
      });
      if (!done)
        std::fprintf(stderr, "search_bench: %s\n", done.error().message.c_str());
      return count;
    };
  };
  auto files_of = [](wire::search_grep& arguments) { arguments.output = "files"; };

  const std::string text = "--no-heading";
  compare("literal", rounds, grep("pthread_mutex_unlock", [](auto& a) { a.literal = true; }),
          {"-uu", text, "-nF", "pthread_mutex_unlock", tree});
  compare("literal, common", rounds, grep("return", [](auto& a) { a.literal = true; }),
          {"-uu", text, "-nF", "return", tree});
  compare("regex", rounds, grep("[a-z]+_mutex_(un)?lock\\("), {"-uu", text, "-n", "[a-z]+_mutex_(un)?lock\\(", tree});
  compare("regex, alternatives", rounds, grep("(mutex|semaphore)_(init|destroy)"),
          {"-uu", text, "-n", "(mutex|semaphore)_(init|destroy)", tree});
  compare("regex, no literal", rounds, grep("[A-Z]{7}[0-9]{3}"), {"-uu", text, "-n", "[A-Z]{7}[0-9]{3}", tree});
  compare("-i", rounds, grep("PTHREAD_mutex_unlock", [](auto& a) { a.literal = a.ignore_case = true; }),
          {"-uu", text, "-niF", "PTHREAD_mutex_unlock", tree});
  compare("-i, regex", rounds, grep("[a-z]+_MUTEX_(un)?lock\\(", [](auto& a) { a.ignore_case = true; }),
          {"-uu", text, "-ni", "[a-z]+_MUTEX_(un)?lock\\(", tree});
  compare("files", rounds, grep("pthread", files_of), {"-uu", "-l", "pthread", tree});
  compare("multiline", rounds,
          grep("struct \\w+ \\{\\n\\s+int ",
               [](auto& a) {
                 a.multiline = true;
                 a.output = "files";
               }),
          {"-uu", "-lU", "struct \\w+ \\{\\n\\s+int ", tree});
  compare("glob **/*.h", rounds, glob("**/*.h"), {"-uu", "--files", "-g", "*.h", tree});
  return 0;
}
