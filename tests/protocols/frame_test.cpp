#include "protocols/frame.hpp"

#include <random>

#include <gtest/gtest.h>

namespace holt::protocols {
namespace {

std::string header_bytes(std::uint32_t length, std::uint8_t type, std::uint8_t flags, std::uint16_t reserved,
                         std::uint32_t stream, std::uint64_t offset) {
  std::string out;
  const auto put = [&](std::uint64_t number, int size) {
    for (int i = size - 1; i >= 0; --i) {
      out += static_cast<char>(number >> (8 * i) & 0xFF);
    }
  };
  put(length, 4);
  put(type, 1);
  put(flags, 1);
  put(reserved, 2);
  put(stream, 4);
  put(offset, 8);
  return out;
}

tl::expected<frame_header, frame_ec> decode(const std::string& bytes) {
  return decode_header(bytes_of(bytes).first<frame_header_size>());
}

struct seen {
  frame_header header;
  std::string payload;
  bool operator==(const seen&) const = default;
};

/// Every frame of the pieces, and the error if there was one.
std::pair<std::vector<seen>, std::optional<frame_ec>> decode_all(const std::vector<std::string>& pieces) {
  frame_decoder decoder;
  std::vector<seen> all;
  for (const std::string& piece : pieces) {
    decoder.feed(bytes_of(piece));
    while (true) {
      const auto next = decoder.next();
      if (!next) {
        return {all, next.error()};
      }
      if (!*next) {
        break;
      }
      all.push_back({(*next)->header, std::string((*next)->text())});
    }
  }
  return {all, std::nullopt};
}

TEST(frame, a_header_is_twenty_bytes_in_network_order) {
  const frame_header header{
      .length = 0x0102, .type = frame_type::data, .flags = 3, .stream = 0x03040506, .offset = 0x0708090A0B0C0D0E};
  const auto bytes = encode(header);
  const std::string expected = header_bytes(0x0102, 2, 3, 0, 0x03040506, 0x0708090A0B0C0D0E);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), expected);
  EXPECT_EQ(decode(expected), header);
  EXPECT_TRUE(header.last());
  EXPECT_TRUE(header.is_stderr());
}

TEST(frame, what_breaks_a_rule_is_refused) {
  const struct {
    const char* what;
    std::string bytes;
    frame_ec code;
  } cases[] = {
      {"65537 bytes", header_bytes(65537, 2, 0, 0, 1, 0), frame_ec::payload_too_long},
      {"4 GiB", header_bytes(0xFFFFFFFF, 2, 0, 0, 1, 0), frame_ec::payload_too_long},
      {"type 0", header_bytes(0, 0, 0, 0, 0, 0), frame_ec::unknown_type},
      {"type 6", header_bytes(0, 6, 0, 0, 0, 0), frame_ec::unknown_type},
      {"reserved", header_bytes(0, 1, 0, 1, 0, 0), frame_ec::reserved_not_zero},
      {"flag 4", header_bytes(0, 2, 4, 0, 1, 0), frame_ec::unknown_flags},
      {"flags of control", header_bytes(0, 1, 1, 0, 0, 0), frame_ec::unknown_flags},
      {"flags of window", header_bytes(8, 3, 1, 0, 1, 0), frame_ec::unknown_flags},
      {"data on 0", header_bytes(0, 2, 0, 0, 0, 0), frame_ec::stream_missing},
      {"window on 0", header_bytes(8, 3, 0, 0, 0, 0), frame_ec::stream_missing},
      {"control on 1", header_bytes(0, 1, 0, 0, 1, 0), frame_ec::stream_unexpected},
      {"ping on 1", header_bytes(0, 4, 0, 0, 1, 0), frame_ec::stream_unexpected},
      {"pong on 1", header_bytes(0, 5, 0, 0, 1, 0), frame_ec::stream_unexpected},
      {"window of 7", header_bytes(7, 3, 0, 0, 1, 0), frame_ec::window_malformed},
      {"window of 9", header_bytes(9, 3, 0, 0, 1, 0), frame_ec::window_malformed},
      {"position", header_bytes(1, 2, 0, 0, 1, max_position), frame_ec::position_too_large},
      {"position", header_bytes(0, 2, 0, 0, 1, UINT64_MAX), frame_ec::position_too_large},
  };
  for (const auto& c : cases) {
    const auto header = decode(c.bytes);
    ASSERT_FALSE(header) << c.what;
    EXPECT_EQ(header.error(), c.code) << c.what;
    EXPECT_FALSE(to_string(c.code).empty());
  }
  EXPECT_TRUE(decode(header_bytes(65536, 2, 0, 0, 1, 0)));
  EXPECT_TRUE(decode(header_bytes(0, 2, 1, 0, 1, max_position)));
}

TEST(frame, a_window_carries_limit_and_consumed) {
  const auto bytes = window_frame(7, 1000, 600);
  const auto message = decode_message(bytes);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->header.stream, 7U);
  EXPECT_EQ(message->header.offset, 1000U);
  EXPECT_EQ(window_consumed(*message), 600U);
}

TEST(frame, a_window_that_consumed_more_than_its_limit_is_refused) {
  std::string bytes = header_bytes(8, 3, 0, 0, 1, 5) + std::string("\0\0\0\0\0\0\0\6", 8);
  EXPECT_EQ(decode_message(bytes_of(bytes)).error(), frame_ec::window_malformed);
  EXPECT_EQ(decode_all({bytes}).second, frame_ec::window_malformed);
  EXPECT_EQ(decode_all({bytes.substr(0, 21), bytes.substr(21)}).second, frame_ec::window_malformed);
}

TEST(frame, a_message_is_exactly_one_frame) {
  const std::string one = control_frame("{}");
  EXPECT_TRUE(decode_message(bytes_of(one)));
  for (const std::string& bytes : {std::string(), one.substr(0, 19), one.substr(0, 21), one + "x", one + one}) {
    const auto message = decode_message(bytes_of(bytes));
    ASSERT_FALSE(message);
    EXPECT_EQ(message.error(), frame_ec::message_size);
  }
}

TEST(frame_decoder, frames_cut_anywhere_arrive_whole_and_in_order) {
  std::string stream = control_frame(R"({"kind":"x"})");
  append_frame(stream, {.type = frame_type::data, .stream = 3, .offset = 9}, "hello");
  const auto window = window_frame(3, 70000, 12);
  stream.append(reinterpret_cast<const char*>(window.data()), window.size());
  append_frame(stream, {.type = frame_type::data, .flags = frame_last, .stream = 3, .offset = 14}, "");
  stream += ping_frame() + pong_frame("p");
  const auto [whole, none] = decode_all({stream});
  EXPECT_FALSE(none);
  ASSERT_EQ(whole.size(), 6U);
  EXPECT_EQ(whole[1].payload, "hello");
  EXPECT_EQ(whole[3].header.flags, frame_last);
  for (std::size_t first = 0; first <= stream.size(); ++first) {
    const auto cut = decode_all({stream.substr(0, first), stream.substr(first)});
    EXPECT_EQ(cut.first, whole) << first;
    EXPECT_FALSE(cut.second);
  }
  std::vector<std::string> bytes;
  for (const char c : stream) {
    bytes.emplace_back(1, c);
  }
  EXPECT_EQ(decode_all(bytes).first, whole);
}

TEST(frame_decoder, large_frames_in_random_pieces_lose_no_byte) {
  std::mt19937 random(7);
  std::string stream;
  std::vector<std::string> payloads;
  std::uint64_t offset = 0;
  for (int i = 0; i < 40; ++i) {
    std::string payload(random() % (max_payload + 1), '\0');
    for (char& c : payload) {
      c = static_cast<char>(random());
    }
    append_frame(stream, {.type = frame_type::data, .stream = 1, .offset = offset}, payload);
    offset += payload.size();
    payloads.push_back(std::move(payload));
  }
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t n = 1 + random() % 200000;
    pieces.push_back(stream.substr(at, n));
    at += n;
  }
  const auto [all, error] = decode_all(pieces);
  EXPECT_FALSE(error);
  ASSERT_EQ(all.size(), payloads.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].payload, payloads[i]);
  }
}

TEST(frame_decoder, a_whole_frame_is_not_copied) {
  std::string stream;
  append_frame(stream, {.type = frame_type::data, .stream = 1}, "payload");
  frame_decoder decoder;
  decoder.feed(bytes_of(stream));
  const auto next = decoder.next();
  ASSERT_TRUE(next && *next);
  EXPECT_EQ((*next)->text().data(), stream.data() + frame_header_size);
}

TEST(frame_decoder, after_an_error_nothing_more_is_decoded) {
  frame_decoder decoder;
  const std::string bytes = header_bytes(0, 9, 0, 0, 0, 0) + ping_frame();
  decoder.feed(bytes_of(bytes));
  EXPECT_FALSE(decoder.next());
  EXPECT_EQ(decoder.next().error(), frame_ec::unknown_type);
}

TEST(frame_decoder, a_refused_length_reserves_no_memory) {
  frame_decoder decoder;
  const std::string bytes = header_bytes(0xFFFFFFFF, 2, 0, 0, 1, 0);
  decoder.feed(bytes_of(bytes));
  EXPECT_EQ(decoder.next().error(), frame_ec::payload_too_long);
  EXPECT_EQ(decoder.pending(), 0U);
}

} // namespace
} // namespace holt::protocols
