#include "agent/output_log.hpp"

#include <filesystem>
#include <random>

#include <fcntl.h>
#include <gtest/gtest.h>

#include "tests/agent/state_directory.hpp"

namespace holt::agent {
namespace {

/// What a log should hold, the simple way.
struct reference {
  std::string bytes;
  std::string kinds; // one a byte: 'o' or 'e'

  void append(output_kind kind, std::string_view text) {
    bytes += text;
    kinds.append(text.size(), kind == output_kind::out ? 'o' : 'e');
  }
};

/// Everything from `at` on, by pieces of random sizes.
reference read_all(const output_log& log, std::uint64_t at, std::mt19937& random, bool live, std::vector<log_range>& gaps) {
  reference out;
  std::vector<char> buffer(70'000);
  while (true) {
    auto piece = log.read(at, buffer.data(), 1 + random() % buffer.size(), live);
    if (piece.at > at)
      gaps.push_back({at, piece.at});
    if (piece.size == 0)
      return out;
    out.append(piece.kind, {buffer.data(), piece.size});
    at = piece.at + piece.size;
  }
}

class output_logs : public ::testing::Test {
protected:
  tests::state_directory dir;

  /// Random appends of one kind or both, checked against the reference after each few.
  void check(log_caps caps, std::size_t total, std::size_t most, bool mixed, unsigned seed) {
    std::mt19937 random{seed};
    output_log log{dir.fd(), "o" + std::to_string(seed), caps};
    reference all;
    while (all.bytes.size() < total) {
      std::string text(1 + random() % most, '\0');
      for (auto& c : text)
        c = static_cast<char>(random());
      auto kind = mixed && random() % 2 == 0 ? output_kind::err : output_kind::out;
      log.append(kind, text);
      all.append(kind, text);
      if (random() % (most == 1 ? 10'000 : 16) == 0)
        compare(log, all, caps, random);
    }
    compare(log, all, caps, random);
    // Put away and opened again.
    auto record = log_record::decode(log.record().encode());
    ASSERT_TRUE(record);
    output_log again{dir.fd(), "o" + std::to_string(seed), *record};
    compare(again, all, caps, random);
  }

  static void compare(const output_log& log, const reference& all, log_caps caps, std::mt19937& random) {
    auto end = all.bytes.size();
    ASSERT_EQ(log.end(), end);
    std::optional<log_range> omitted;
    if (end > caps.head + caps.tail)
      omitted = log_range{caps.head, end - caps.tail};
    ASSERT_EQ(log.omitted(), omitted);
    std::vector<log_range> gaps;
    auto kept = read_all(log, 0, random, false, gaps);
    auto expect = [&](const std::string& from) {
      return omitted ? from.substr(0, omitted->from) + from.substr(omitted->to) : from;
    };
    ASSERT_TRUE(kept.bytes == expect(all.bytes));
    ASSERT_TRUE(kept.kinds == expect(all.kinds));
    ASSERT_EQ(gaps.size(), omitted && caps.tail > 0 && omitted->to > omitted->from ? 1u : gaps.size());
    // A live reader a little behind misses nothing.
    auto behind = std::min<std::size_t>(end, random() % 1'000'000);
    gaps.clear();
    auto live = read_all(log, end - behind, random, true, gaps);
    ASSERT_TRUE(gaps.empty());
    ASSERT_TRUE(live.bytes == all.bytes.substr(end - behind));
    ASSERT_TRUE(live.kinds == all.kinds.substr(end - behind));
  }
};

TEST_F(output_logs, keep_every_byte_and_kind_in_memory) {
  for (unsigned seed = 0; seed < 20; ++seed)
    check({}, 10'000, 500, true, seed);
}

TEST_F(output_logs, keep_every_byte_and_kind_in_files) {
  for (unsigned seed = 0; seed < 10; ++seed)
    check({}, 300'000, 9'000, true, seed);
}

TEST_F(output_logs, keep_both_ends_and_name_what_is_omitted) {
  for (unsigned seed = 0; seed < 10; ++seed)
    check({1000 + seed, 3000 + 7 * seed}, 4'000'000, 100'000, true, seed);
}

TEST_F(output_logs, keep_both_ends_of_one_kind) {
  for (unsigned seed = 0; seed < 6; ++seed)
    check({100'000 + seed, 2'000'000}, 6'000'000, 65'536, false, seed);
}

TEST_F(output_logs, single_bytes_alternating) {
  check({5000, 5000}, 60'000, 1, true, 1);
}

TEST_F(output_logs, caps_of_zero_keep_nothing_but_the_count) {
  output_log log{dir.fd(), "o1", log_caps{0, 0}};
  log.append(output_kind::out, "some bytes");
  EXPECT_EQ(log.end(), 10u);
  EXPECT_EQ(log.omitted(), (log_range{0, 10}));
  char buffer[10];
  EXPECT_EQ(log.read(0, buffer, 10, false).size, 0u);
  EXPECT_EQ(log.read(0, buffer, 10, true).size, 10u);
}

TEST_F(output_logs, a_small_log_makes_no_file) {
  output_log log{dir.fd(), "o1", log_caps{}};
  log.append(output_kind::out, std::string(16 * 1024, 'x'));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator{dir.path()}, {}), 0);
  log.append(output_kind::out, "x");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator{dir.path()}, {}), 1);
}

TEST_F(output_logs, what_cannot_be_written_is_named_as_omitted) {
  output_log log{-1, "o1", log_caps{}};
  log.append(output_kind::out, std::string(10'000, 'a'));
  log.append(output_kind::out, std::string(10'000, 'b'));
  log.append(output_kind::err, "c");
  EXPECT_EQ(log.end(), 20'001u);
  EXPECT_EQ(log.omitted(), (log_range{10'000, 20'001}));
  char buffer[20'000];
  EXPECT_EQ(log.read(0, buffer, sizeof buffer, false).size, 10'000u);
  auto record = log_record::decode(log.record().encode());
  ASSERT_TRUE(record);
  EXPECT_EQ(output_log(-1, "o1", *record).read(0, buffer, sizeof buffer, false).size, 10'000u);
}

TEST_F(output_logs, a_record_that_is_cut_is_refused) {
  output_log log{dir.fd(), "o1", log_caps{}};
  log.append(output_kind::out, "text");
  log.append(output_kind::err, "text");
  auto whole = log.record().encode();
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(log_record::decode(std::string_view{whole}.substr(0, size)));
}

} // namespace
} // namespace holt::agent
