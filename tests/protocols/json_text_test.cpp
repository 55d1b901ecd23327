#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "protocols/json.hpp"

// One set of cases for both implementations of parse_text: this file is linked once with each.

namespace holt::protocols::json {
namespace {

using ::testing::HasSubstr;

TEST(json_text, every_kind_of_value_arrives_as_it_was_written) {
  const auto read = parse_text(R"( {"n":null,"t":true,"f":false,"i":-1,"u":18446744073709551615,"d":0.1,
                                    "s":"a\u00e9\ud83d\ude00\n","a":[1,[2]],"o":{"k":{}}} )");
  ASSERT_TRUE(read) << read.error().message;
  const object& fields = read->as_object();
  EXPECT_TRUE(fields.at("n").is_null());
  EXPECT_EQ(fields.at("t"), value(true));
  EXPECT_EQ(fields.at("f"), value(false));
  EXPECT_EQ(fields.at("i").as_int64(), -1);
  EXPECT_EQ(fields.at("u").as_uint64(), 18446744073709551615U);
  EXPECT_EQ(fields.at("d").as_double(), 0.1);
  EXPECT_EQ(fields.at("s").as_string(), "a\xC3\xA9\xF0\x9F\x98\x80\n");
  EXPECT_EQ(fields.at("a"), (array{1, array{2}}));
  EXPECT_EQ(fields.at("o"), (object{{"k", object{}}}));
}

TEST(json_text, a_scalar_alone_is_a_text) {
  for (const char* text : {"1", "\"a\"", "null", "true", " [] ", "\t{}\n", "0", "-0", "-0.0", "1e5"}) {
    EXPECT_TRUE(parse_text(text)) << text;
  }
}

TEST(json_text, whole_numbers_keep_every_digit_up_to_64_bits) {
  EXPECT_EQ(parse_text("9223372036854775807")->as_int64(), INT64_MAX);
  EXPECT_EQ(parse_text("-9223372036854775808")->as_int64(), INT64_MIN);
  EXPECT_EQ(parse_text("9223372036854775808")->as_uint64(), 9223372036854775808U);
  EXPECT_EQ(parse_text("18446744073709551615")->as_uint64(), UINT64_MAX);
}

TEST(json_text, larger_whole_numbers_become_doubles) {
  EXPECT_EQ(parse_text("18446744073709551616")->as_double(), 18446744073709551616.0);
  EXPECT_EQ(parse_text("-9223372036854775809")->as_double(), -9223372036854775809.0);
  EXPECT_EQ(parse_text("123456789012345678901234567890")->as_double(), 123456789012345678901234567890.0);
}

TEST(json_text, doubles_are_the_nearest_ones) {
  EXPECT_EQ(parse_text("1.7976931348623157e308")->as_double(), 1.7976931348623157e308);
  EXPECT_EQ(parse_text("2.2250738585072014e-308")->as_double(), 2.2250738585072014e-308);
  EXPECT_EQ(parse_text("5e-324")->as_double(), 5e-324);
  EXPECT_EQ(parse_text("9007199254740993.0")->as_double(), 9007199254740992.0);
  EXPECT_EQ(parse_text("0.30000000000000004")->as_double(), 0.30000000000000004);
  EXPECT_EQ(parse_text("1e-400")->as_double(), 0.0);
}

TEST(json_text, numbers_that_no_double_holds_are_refused) {
  for (const char* text : {"1e309", "-1e400", "[1e99999]"}) {
    const auto read = parse_text(text);
    ASSERT_FALSE(read) << text;
    EXPECT_THAT(read.error().message, HasSubstr("too large")) << text;
  }
}

TEST(json_text, malformed_text_is_refused_with_its_place) {
  const struct {
    const char* text;
    const char* said;
  } cases[] = {
      {"", "is empty"},
      {" \n", "is empty"},
      {"{", "ends too early"},
      {"{\"a\":1,}", "line 1, column 8"},
      {"[1,\n2,\n]", "line 3, column 1"},
      {"[1] 2", "line 1, column 5, more follows"},
      {"{'a':1}", "line 1, column 2"},
      {"nul", "ends too early"},
      {"nulL", "line 1"},
      {"01", "line 1, column 2"},
      {"1.", "ends too early"},
      {"+1", "line 1, column 1"},
      {".5", "line 1, column 1"},
      {"NaN", "line 1, column 1"},
      {"[1 2]", "line 1, column 4"},
      {"{\"a\" 1}", "line 1, column 6"},
      {"{1:1}", "line 1, column 2"},
      {"\"a", "ends too early"},
      {"\"\\x\"", "line 1"},
      {"\"a\nb\"", "line 1"},
      {"// c\n1", "line 1"},
      {"\xEF\xBB\xBF{}", "line 1, column 1"},
  };
  for (const auto& c : cases) {
    const auto read = parse_text(c.text);
    ASSERT_FALSE(read) << c.text;
    EXPECT_EQ(read.error().pointer, "");
    EXPECT_THAT(read.error().message, HasSubstr(c.said)) << c.text;
  }
}

TEST(json_text, text_that_is_not_utf8_is_refused) {
  for (const char* text :
       {"\"\xFF\"", "\"\xC3\"", "\"\xED\xA0\x80\"", "\"\xC0\xAF\"", "\"\xF4\x90\x80\x80\"", "{\"\x80\":1}"}) {
    EXPECT_FALSE(parse_text(text));
  }
}

TEST(json_text, escaped_surrogates_must_come_in_pairs) {
  for (const char* text : {R"("\ud800")", R"("\udc00")", R"("\ud800x")", R"("\ud800\ud800")", R"("\udc00\ud800")",
                           R"({"\ud800":1})", R"({"\udc00":1})", R"("\u12g4")"}) {
    EXPECT_FALSE(parse_text(text)) << text;
  }
  EXPECT_EQ(parse_text(R"("\uD834\uDD1E")")->as_string(), "\xF0\x9D\x84\x9E");
}

TEST(json_text, an_escaped_nul_is_a_character) {
  const auto read = parse_text(R"("a\u0000b")");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->as_string().size(), 3U);
}

TEST(json_text, duplicate_keys_are_refused_with_the_place_of_their_object) {
  const struct {
    const char* text;
    const char* pointer;
    const char* key;
  } cases[] = {
      {R"({"a":1,"a":2})", "", "'a'"},
      {R"({"a":1,"\u0061":2})", "", "'a'"},
      {R"({"x":[0,{"b":1,"c":2,"b":3}]})", "/x/1", "'b'"},
      {R"({"a/b":{"~":{"k":1,"k":1}}})", "/a~1b/~0", "'k'"},
  };
  for (const auto& c : cases) {
    const auto read = parse_text(c.text);
    ASSERT_FALSE(read) << c.text;
    EXPECT_EQ(read.error().pointer, c.pointer) << c.text;
    EXPECT_THAT(read.error().message, HasSubstr(c.key)) << c.text;
    EXPECT_THAT(read.error().message, HasSubstr("more than once")) << c.text;
  }
}

TEST(json_text, many_keys_keep_their_order) {
  std::string text = "{";
  for (int i = 0; i < 500; ++i) {
    text += (i == 0 ? "\"k" : ",\"k") + std::to_string(i) + "\":" + std::to_string(i);
  }
  const auto read = parse_text(text + "}");
  ASSERT_TRUE(read);
  int i = 0;
  for (const auto& field : read->as_object()) {
    EXPECT_EQ(field.value().as_int64(), i++);
  }
  EXPECT_EQ(i, 500);
}

TEST(json_text, nesting_is_limited) {
  const auto nested = [](unsigned depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse_text(nested(32)));
  for (const unsigned depth : {33U, 100U, 5000U, 500000U}) {
    const auto read = parse_text(nested(depth));
    ASSERT_FALSE(read) << depth;
    EXPECT_THAT(read.error().message, HasSubstr("at most 32 levels")) << depth;
  }
  EXPECT_TRUE(parse_text(R"({"a":[1]})", {.max_depth = 2}));
  EXPECT_FALSE(parse_text(R"({"a":[{}]})", {.max_depth = 2}));
  EXPECT_TRUE(parse_text(nested(1000), {.max_depth = 1000}));
}

TEST(json_text, length_is_limited) {
  EXPECT_TRUE(parse_text("[1,2]", {.max_bytes = 5}));
  const auto read = parse_text("[1,2 ]", {.max_bytes = 5});
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "has 6 bytes; at most 5 are accepted");
}

TEST(json_text, long_strings_and_keys_arrive_whole) {
  const std::string word(300000, 'x');
  const auto read = parse_text("{\"" + word + "\":\"" + word + "\\n\"}", {.max_bytes = 1 << 20});
  ASSERT_TRUE(read);
  EXPECT_EQ(read->as_object().at(word).as_string(), word + "\n");
}

TEST(json_text, text_written_is_text_read) {
  for (const char* text :
       {R"({"b":[1,-2,18446744073709551615,0.1,1e+300,"\u0001\"\\é"],"a":{"x":null,"y":[true,false]}})"}) {
    const auto read = parse_text(text);
    ASSERT_TRUE(read);
    EXPECT_EQ(write_text(*read), text);
    EXPECT_EQ(*parse_text(write_text(*read)), *read);
  }
  EXPECT_EQ(write_text(*parse_text("2.0")), "2.0");
}

} // namespace
} // namespace holt::protocols::json
