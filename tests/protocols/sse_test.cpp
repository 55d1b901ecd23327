#include "protocols/sse.hpp"

#include <gtest/gtest.h>

namespace holt::protocols {
namespace {

std::vector<sse_event> parse(std::string_view text) {
  sse_parser parser;
  std::vector<sse_event> events;
  EXPECT_TRUE(parser.feed(text, events));
  return events;
}

TEST(sse, an_event_is_written_field_by_field) {
  std::string out;
  append_sse(out, "stdout", R"({"text":"a"})", "op_1:5");
  EXPECT_EQ(out, "id: op_1:5\nevent: stdout\ndata: {\"text\":\"a\"}\n\n");
}

TEST(sse, data_of_any_lines_arrives_as_it_was) {
  for (const char* data : {"", "a", "a\nb", "a\n", "\n", "\n\n", "\na", " a", "a: b", ":x", "é\n\n€"}) {
    std::string out;
    append_sse(out, "e", data, "1");
    EXPECT_EQ(parse(out), (std::vector<sse_event>{{"e", data, "1"}})) << data;
  }
  std::string out;
  append_sse(out, "e", "a\rb\r\nc\r\n");
  EXPECT_EQ(parse(out)[0].data, "a\nb\nc\n");
}

TEST(sse, nothing_in_a_name_or_id_can_end_its_line) {
  std::string out;
  append_sse(out, "a\nevent: b", "x", std::string_view("1\r\ndata: y\0z", 12));
  EXPECT_EQ(parse(out), (std::vector<sse_event>{{"aevent: b", "x", "1data: yz"}}));
}

TEST(sse, all_line_ends_of_the_format_are_understood) {
  const std::vector<sse_event> expected{{"a", "1\n2", ""}, {"", "3", ""}};
  EXPECT_EQ(parse("event: a\ndata: 1\ndata: 2\n\ndata:3\n\n"), expected);
  EXPECT_EQ(parse("event: a\rdata: 1\rdata: 2\r\rdata:3\r\r"), expected);
  EXPECT_EQ(parse("event: a\r\ndata: 1\r\ndata: 2\r\n\r\ndata:3\r\n\r\n"), expected);
  EXPECT_EQ(parse("\xEF\xBB\xBF"
                  "event: a\ndata: 1\ndata: 2\n\ndata:3\n\n"),
            expected);
}

TEST(sse, a_stream_cut_anywhere_gives_the_same_events) {
  std::string stream = ": hello\r\n\r\nretry: 1500\n\nid: 1\nevent: x\r\ndata: a\r\ndata\ndata: b\r\r";
  append_sse_comment(stream, "alive");
  append_sse(stream, "", "c\n\nd", "2");
  const auto whole = parse(stream);
  ASSERT_EQ(whole.size(), 2U);
  EXPECT_EQ(whole[0], (sse_event{"x", "a\n\nb", "1"}));
  for (std::size_t first = 0; first <= stream.size(); ++first) {
    for (std::size_t second = first; second <= stream.size(); ++second) {
      sse_parser parser;
      std::vector<sse_event> events;
      const std::string_view all = stream;
      EXPECT_TRUE(parser.feed(all.substr(0, first), events));
      EXPECT_TRUE(parser.feed(all.substr(first, second - first), events));
      EXPECT_TRUE(parser.feed(all.substr(second), events));
      EXPECT_EQ(events, whole) << first << ' ' << second;
      EXPECT_EQ(parser.last_id(), "2");
      EXPECT_EQ(parser.retry_ms(), 1500U);
    }
  }
}

TEST(sse, an_event_that_was_cut_off_is_not_delivered_nor_its_id_kept) {
  sse_parser parser;
  std::vector<sse_event> events;
  parser.feed("id: 1\ndata: a\n\nid: 2\ndata: b\n", events);
  EXPECT_EQ(events.size(), 1U);
  EXPECT_EQ(parser.last_id(), "1");
}

TEST(sse, an_id_holds_until_the_next_and_events_without_data_are_none) {
  EXPECT_EQ(parse("id: 7\n\nevent: x\n\ndata: a\n\nid\ndata: b\n\n"),
            (std::vector<sse_event>{{"", "a", "7"}, {"", "b", ""}}));
}

TEST(sse, unknown_fields_and_bad_values_are_skipped) {
  sse_parser parser;
  std::vector<sse_event> events;
  EXPECT_TRUE(parser.feed("foo: 1\nretry: x\nretry: -1\nretry: 99999999999\nid: a", events));
  EXPECT_TRUE(parser.feed(std::string_view("\0b\ndata: 1\n\n", 12), events));
  EXPECT_EQ(events, (std::vector<sse_event>{{"", "1", ""}}));
  EXPECT_FALSE(parser.retry_ms());
}

TEST(sse, an_event_that_never_ends_breaks_the_stream) {
  for (const char* piece : {"data: aaaaaaaaaaaaaaaaaaaa\n", "aaaaaaaaaaaaaaaaaaaaaaa"}) {
    sse_parser parser(100);
    std::vector<sse_event> events;
    int fed = 0;
    while (parser.feed(piece, events) && fed < 100) {
      ++fed;
    }
    EXPECT_LT(fed, 10);
    EXPECT_FALSE(parser.feed("\n\n", events));
    EXPECT_TRUE(events.empty());
  }
}

} // namespace
} // namespace holt::protocols
