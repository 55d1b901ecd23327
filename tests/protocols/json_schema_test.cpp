#include "protocols/json_schema.hpp"

#include <stdexcept>

#include <boost/describe/enum.hpp>
#include <gtest/gtest.h>

#include "protocols/json_bytes.hpp"

namespace holt::protocols::json {
namespace other {
struct schema_point {
  bool x = false;
};
BOOST_DESCRIBE_STRUCT(schema_point, (), (x))
} // namespace other

namespace {

enum class side { left, right };
BOOST_DESCRIBE_ENUM(side, left, right)

struct schema_point {
  std::int32_t x = 3;
  std::optional<std::int64_t> y;
  static constexpr std::string_view doc = "A place.";
};
BOOST_DESCRIBE_STRUCT(schema_point, (), (x, y))

struct schema_request {
  std::string command;
  std::uint64_t timeout_ms = 0;
  std::string network = "none";
  std::vector<schema_point> points;
  std::map<std::string, std::string> env;
  std::optional<schema_point> origin;
  side where = side::left;
  agent::raw_name path;
  value any;
  double ratio = 0.5;
  std::uint8_t small = 0;

  static constexpr std::array required{"command"};
  static constexpr std::array rules{
      field_rule{.name = "command", .doc = "For the shell.", .min_length = 1, .no_nul = true},
      field_rule{.name = "timeout_ms", .max = 1000},
      field_rule{.name = "network", .one_of = "none|host"},
      field_rule{.name = "points", .max_items = 4},
      field_rule{.name = "env", .max_length = 9, .max_items = 5},
      field_rule{.name = "origin", .doc = "Where it begins."},
  };
};
BOOST_DESCRIBE_STRUCT(schema_request, (),
                      (command, timeout_ms, network, points, env, origin, where, path, any, ratio, small))

TEST(json_schema, shows_types_rules_defaults_and_what_is_required) {
  const value expected = *parse_text(R"({
    "type": "object",
    "properties": {
      "command": {"type": "string", "description": "For the shell.", "minLength": 1, "pattern": "^[^\\u0000]*$"},
      "timeout_ms": {"type": "integer", "format": "int64", "minimum": 0, "maximum": 1000, "default": 0},
      "network": {"type": "string", "enum": ["none", "host"], "default": "none"},
      "points": {"type": "array", "maxItems": 4, "items": {
        "type": "object", "description": "A place.", "additionalProperties": false, "properties": {
          "x": {"type": "integer", "minimum": -2147483648, "maximum": 2147483647, "default": 3},
          "y": {"type": "integer", "format": "int64"}}}},
      "env": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "string", "maxLength": 9}},
      "origin": {
        "type": "object", "description": "Where it begins.", "additionalProperties": false, "properties": {
          "x": {"type": "integer", "minimum": -2147483648, "maximum": 2147483647, "default": 3},
          "y": {"type": "integer", "format": "int64"}}},
      "where": {"type": "string", "enum": ["left", "right"], "default": "left"},
      "path": {"description": "A name: text, or its bytes in base64 where they are not UTF-8.", "oneOf": [
        {"type": "string"},
        {"type": "object", "properties": {"b64": {"type": "string", "contentEncoding": "base64"}},
         "required": ["b64"], "additionalProperties": false}]},
      "any": {},
      "ratio": {"type": "number", "default": 0.5},
      "small": {"type": "integer", "minimum": 0, "maximum": 255, "default": 0}
    },
    "required": ["command"],
    "additionalProperties": false
  })");
  EXPECT_EQ(schema<schema_request>(), expected) << write_text(schema<schema_request>());
}

TEST(json_schema, an_answer_always_has_what_is_not_optional) {
  const value out = schema<schema_point>(direction::output);
  EXPECT_EQ(out.at("required"), (array{"x"}));
  EXPECT_FALSE(out.as_object().contains("additionalProperties"));
  EXPECT_FALSE(out.at("properties").at("x").as_object().contains("default"));
}

TEST(json_schema, structs_are_collected_by_name_and_referred_to) {
  schema_set set;
  EXPECT_EQ(schema_ref<schema_request>(set, direction::input),
            (object{{"$ref", "#/components/schemas/SchemaRequest"}}));
  EXPECT_EQ(set.schemas().size(), 2U);
  const value& request = set.schemas().at("SchemaRequest");
  EXPECT_EQ(request.at("properties").at("points").at("items"), (object{{"$ref", "#/components/schemas/SchemaPoint"}}));
  EXPECT_EQ(request.at("properties").at("origin"),
            (object{{"$ref", "#/components/schemas/SchemaPoint"}, {"description", "Where it begins."}}));
}

TEST(json_schema, a_struct_that_differs_by_direction_has_two_names) {
  schema_set set;
  schema_ref<schema_point>(set, direction::input);
  EXPECT_EQ(schema_ref<std::vector<schema_point>>(set, direction::output).at("items").at("$ref"),
            "#/components/schemas/SchemaPointOutput");
  EXPECT_EQ(schema_ref<schema_point>(set, direction::input).at("$ref"), "#/components/schemas/SchemaPoint");
  EXPECT_EQ(set.schemas().size(), 2U);
}

TEST(json_schema, two_types_of_one_name_are_a_bug) {
  schema_set set;
  schema_ref<schema_point>(set, direction::input);
  EXPECT_THROW(schema_ref<other::schema_point>(set, direction::input), std::logic_error);
}

} // namespace
} // namespace holt::protocols::json
