#include <boost/describe/enum.hpp>
#include <boost/json/object.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocols/control.hpp"
#include "protocols/json_canonical.hpp"
#include "protocols/json_read.hpp"
#include "protocols/json_write.hpp"

namespace holt::protocols::json {
namespace {

using ::testing::HasSubstr;

enum class colour { red, green };
BOOST_DESCRIBE_ENUM(colour, red, green)

struct inner {
  std::string name;
  std::optional<std::int64_t> size;
  bool operator==(const inner&) const = default;
  static constexpr std::array required{"name"};
};
BOOST_DESCRIBE_STRUCT(inner, (), (name, size))

bool is_even_length(std::string_view text) {
  return text.size() % 2 == 0;
}

struct everything {
  bool flag = false;
  std::int8_t i8 = 0;
  std::uint8_t u8 = 0;
  std::int16_t i16 = 0;
  std::uint16_t u16 = 0;
  std::int32_t i32 = 0;
  std::uint32_t u32 = 0;
  std::int64_t i64 = 0;
  std::uint64_t u64 = 0;
  double number = 0;
  std::string command = "default";
  value any;
  std::optional<std::string> maybe;
  std::vector<inner> list;
  std::map<std::string, std::uint32_t> limits;
  inner nested;
  colour paint = colour::red;
  std::string network = "none";
  std::optional<std::string> pairs;
  bool operator==(const everything&) const = default;

  static constexpr std::array rules{
      field_rule{.name = "i16", .min = 1, .max = 10},
      field_rule{.name = "u16", .min = 2, .max = 9},
      field_rule{.name = "command", .min_length = 1, .max_length = 8, .no_nul = true},
      field_rule{.name = "list", .max_items = 2},
      field_rule{.name = "network", .one_of = "none|egress|host"},
      field_rule{.name = "pairs", .check = is_even_length, .expected = "of even length"},
  };
};
BOOST_DESCRIBE_STRUCT(everything, (),
                      (flag, i8, u8, i16, u16, i32, u32, i64, u64, number, command, any, maybe, list, limits, nested,
                       paint, network, pairs))

struct with_kind {
  static constexpr const char* kind = "x.y";
  std::uint32_t n = 0;
};
BOOST_DESCRIBE_STRUCT(with_kind, (), (n))

/// Field names that look like traits are only fields.
struct trait_names {
  std::string kind;
  std::vector<std::string> required;
  std::string rules;
  std::string doc;
};
BOOST_DESCRIBE_STRUCT(trait_names, (), (kind, required, rules, doc))

error failure(std::string_view text, unknown_fields unknown = unknown_fields::refuse) {
  const auto read = read_text<everything>(text, unknown);
  return read ? error{"", "was read"} : read.error();
}

TEST(json_read, every_type_of_member_is_read_and_written_back) {
  const std::string text =
      R"({"flag":true,"i8":-128,"u8":255,"i16":10,"u16":2,"i32":-2147483648,"u32":4294967295,)"
      R"("i64":-9223372036854775808,"u64":18446744073709551615,"number":0.5,"command":"é\n","any":{"b":1,"a":[null]},)"
      R"("maybe":"m","list":[{"name":"a"},{"name":"b","size":-1}],"limits":{"x":1,"y":2},"nested":{"name":"n"},)"
      R"("paint":"green","network":"host","pairs":"ab"})";
  const auto read = read_text<everything>(text);
  ASSERT_TRUE(read) << read.error().pointer << read.error().message;
  EXPECT_EQ(read->u64, UINT64_MAX);
  EXPECT_EQ(read->paint, colour::green);
  EXPECT_EQ(read->list[1].size, -1);
  EXPECT_EQ(write(*read), text);
  EXPECT_EQ(write_text(to_value(*read)), text);
}

TEST(json_read, absent_fields_keep_their_defaults) {
  const auto read = read_text<everything>("{}");
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, everything{});
}

TEST(json_read, null_is_absent_for_an_optional_and_an_error_for_the_rest) {
  const auto read = read_text<everything>(R"({"maybe":null,"any":null})");
  ASSERT_TRUE(read);
  EXPECT_FALSE(read->maybe);
  EXPECT_EQ(failure(R"({"command":null})").message, "must be a string, and is null");
}

TEST(json_read, errors_say_where_and_what_would_be_right) {
  const struct {
    const char* text;
    const char* pointer;
    const char* message;
  } cases[] = {
      {"[]", "", "must be an object, and is an array"},
      {R"({"flag":1})", "/flag", "must be true or false, and is a whole number"},
      {R"({"i8":128})", "/i8", "must be a whole number from -128 to 127"},
      {R"({"u8":-1})", "/u8", "must be a whole number from 0 to 255"},
      {R"({"u8":"1"})", "/u8", "must be a whole number from 0 to 255, and is a string"},
      {R"({"u32":1.5})", "/u32", "must be a whole number from 0 to 4294967295"},
      {R"({"u64":18446744073709551616})", "/u64", "must be a whole number from 0 to 18446744073709551615"},
      {R"({"i64":9223372036854775808})", "/i64",
       "must be a whole number from -9223372036854775808 to 9223372036854775807"},
      {R"({"i16":0})", "/i16", "must be a whole number from 1 to 10"},
      {R"({"u16":10})", "/u16", "must be a whole number from 2 to 9"},
      {R"({"number":"x"})", "/number", "must be a number, and is a string"},
      {R"({"command":""})", "/command", "must have from 1 to 8 characters, and has 0"},
      {R"({"command":"123456789"})", "/command", "must have from 1 to 8 characters, and has 9"},
      {R"({"command":"a\u0000b"})", "/command", "must have no NUL character inside"},
      {R"({"list":[{"name":"a"},{"name":"b"},{"name":"c"}]})", "/list", "must have at most 2 items, and has 3"},
      {R"({"list":[{"name":"a"},{}]})", "/list/1/name", "is required and missing"},
      {R"({"list":[{"name":"a","size":"s"}]})", "/list/0/size",
       "must be a whole number from -9223372036854775808 to 9223372036854775807, and is a string"},
      {R"({"limits":{"a/b~c":-1}})", "/limits/a~1b~0c", "must be a whole number from 0 to 4294967295"},
      {R"({"limits":[]})", "/limits", "must be an object, and is an array"},
      {R"({"paint":"blue"})", "/paint", "must be one of red, green, and is 'blue'"},
      {R"({"paint":1})", "/paint", "must be one of red, green, and is a whole number"},
      {R"({"network":"nonw"})", "/network", "must be one of none, egress, host, and is 'nonw'"},
      {R"({"pairs":"abc"})", "/pairs", "must be of even length, and is 'abc'"},
      {R"({"comand":"x"})", "/comand", "unknown field 'comand'; did you mean 'command'?"},
      {R"({"nested":{"name":"a","naem":1}})", "/nested/naem", "unknown field 'naem'; did you mean 'name'?"},
      {R"({"nested":{"name":"a","entirely":1}})", "/nested/entirely",
       "unknown field 'entirely'; the fields here are name, size"},
  };
  for (const auto& c : cases) {
    const error found = failure(c.text);
    EXPECT_EQ(found.pointer, c.pointer) << c.text;
    EXPECT_EQ(found.message, c.message) << c.text;
  }
}

TEST(json_read, characters_are_counted_not_bytes) {
  EXPECT_TRUE(read_text<everything>(R"({"command":"éééééééé"})"));
}

TEST(json_read, whole_numbers_may_be_written_with_a_point) {
  EXPECT_EQ(read_text<everything>(R"({"u8":2.0,"i8":-1e2})")->i8, -100);
}

TEST(json_read, unknown_fields_are_skipped_where_a_newer_version_may_speak) {
  EXPECT_TRUE(read_text<everything>(R"({"new":{"x":1},"nested":{"name":"n","later":2}})", unknown_fields::ignore));
}

TEST(json_read, the_callers_words_are_quoted_short_and_printable) {
  const error found = failure(R"({"network":")" + std::string(1000, 'x') + R"("})");
  EXPECT_LT(found.message.size(), 200U);
  EXPECT_THAT(failure(R"({"network":"a\nb"})").message, HasSubstr("'a?b'"));
}

TEST(json_read, members_named_like_traits_are_members) {
  const auto read = read_text<trait_names>(R"({"kind":"k","required":["a"],"rules":"r","doc":"d"})");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(write(*read), R"({"kind":"k","required":["a"],"rules":"r","doc":"d"})");
}

TEST(json_write, control_messages_begin_with_their_kind) {
  EXPECT_EQ(write_control(with_kind{7}), R"({"kind":"x.y","n":7})");
  const auto parsed = parse_control(R"({"n":7,"kind":"x.y","newer":[]})");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(kind_of(*parsed), "x.y");
  EXPECT_EQ(read_control<with_kind>(*parsed)->n, 7U);
  EXPECT_FALSE(read_control<with_kind>(*parse_control(R"({"kind":"other"})")));
  EXPECT_EQ(kind_of(*parse_control("[]")), "");
  EXPECT_EQ(kind_of(*parse_control(R"({"kind":1})")), "");
}

TEST(json_write, the_protocols_own_messages_survive_the_way) {
  agent::op_start start;
  start.op_id = "op_1";
  start.operation = "process.start";
  agent::process_start arguments;
  arguments.argv = {{"true"}};
  arguments.env = {{{"A", "b"}}};
  start.arguments = to_value(arguments);
  start.streams = {{"output", 5}};
  const auto read = read_control<agent::op_start>(*parse_control(write_control(start)));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->streams[0].stream, 5U);
  const auto inside = json::read<agent::process_start>(read->arguments);
  ASSERT_TRUE(inside);
  EXPECT_EQ(*inside->argv, std::vector<std::string>{"true"});
  EXPECT_EQ(inside->env->at("A"), "b");
  EXPECT_FALSE(inside->command);
}

TEST(json_write, strings_are_always_valid_utf8) {
  EXPECT_EQ(write(inner{.name = "a\xFFz", .size = {}}), "{\"name\":\"a\xEF\xBF\xBDz\"}");
  EXPECT_EQ(write_text(value("\xC3")), "\"\xEF\xBF\xBD\"");
  EXPECT_EQ(write(std::string("\"\\/\b\f\n\r\t\x01\x7F")), "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\x7F\"");
}

TEST(json_write, numbers_that_are_not_finite_become_null) {
  EXPECT_EQ(write(std::vector<double>{1.5, 2, HUGE_VAL}), "[1.5,2.0,null]");
}

TEST(raw_name, is_text_where_it_can_be_and_base64_where_not) {
  EXPECT_EQ(write(agent::raw_name{"é"}), "\"é\"");
  EXPECT_EQ(write(agent::raw_name{"a\xFF"}), R"({"b64":"Yf8="})");
  for (const char* bytes : {"", "plain", "é", "a\xFF", "\xC3"}) {
    EXPECT_EQ(read_text<agent::raw_name>(write(agent::raw_name{bytes})), agent::raw_name{bytes});
  }
  EXPECT_FALSE(read_text<agent::raw_name>(R"("a\u0000")"));
  EXPECT_FALSE(read_text<agent::raw_name>(R"({"b64":"AA=="})"));
  EXPECT_FALSE(read_text<agent::raw_name>(R"({"b64":"Y"})"));
  EXPECT_FALSE(read_text<agent::raw_name>(R"({"b64":1})"));
  EXPECT_FALSE(read_text<agent::raw_name>(R"({"b64":"YQ==","x":1})"));
  EXPECT_FALSE(read_text<agent::raw_name>("1"));
  const auto wrong = read_text<agent::file_stat>(R"({"path":{"b64":"!"}})");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().pointer, "/path/b64");
}

TEST(canonical, equal_values_have_one_text_whatever_their_order) {
  EXPECT_EQ(canonical(*parse_text(R"({"b":1,"a":{"y":[2,{"q":1,"p":2}],"x":1.0}})")),
            R"({"a":{"x":1,"y":[2,{"p":2,"q":1}]},"b":1})");
  EXPECT_EQ(canonical(*parse_text("[1e0,-0.0,0.5,1e300,18446744073709551615]")),
            "[1,0,0.5,1e+300,18446744073709551615]");
  EXPECT_NE(canonical(*parse_text(R"({"a":"1"})")), canonical(*parse_text(R"({"a":1})")));
  EXPECT_NE(canonical(*parse_text("[1,2]")), canonical(*parse_text("[2,1]")));
}

} // namespace
} // namespace holt::protocols::json
