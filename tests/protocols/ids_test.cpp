#include "protocols/ids.hpp"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace holt::protocols {
namespace {

id_bytes filled(unsigned char byte) {
  id_bytes out;
  out.fill(static_cast<std::byte>(byte));
  return out;
}

TEST(ids, carry_their_kind_and_128_bits) {
  EXPECT_EQ(format_id(id_kind::environment, filled(0)), "env_00000000000000000000000000");
  EXPECT_EQ(format_id(id_kind::operation, filled(0xFF)), "op_zzzzzzzzzzzzzzzzzzzzzzzzzw");
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    id_bytes bytes;
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(random());
    }
    const std::string text = format_id(id_kind::machine, bytes);
    EXPECT_EQ(text.size(), 31U);
    EXPECT_EQ(parse_id(id_kind::machine, text), bytes);
    EXPECT_EQ(kind_of_id(text), id_kind::machine);
  }
}

TEST(ids, every_kind_has_its_own_prefix) {
  std::set<std::string> seen;
  for (int i = 0; i <= static_cast<int>(id_kind::request); ++i) {
    const auto kind = static_cast<id_kind>(i);
    const std::string text = format_id(kind, filled(7));
    EXPECT_TRUE(seen.insert(std::string(prefix_of(kind))).second);
    EXPECT_EQ(kind_of_id(text), kind);
    EXPECT_TRUE(is_op_id(text)) << text;
  }
}

TEST(ids, one_id_has_one_text) {
  const std::string good = format_id(id_kind::environment, filled(0x5A));
  EXPECT_TRUE(is_id(id_kind::environment, good));
  EXPECT_FALSE(is_id(id_kind::conversation, good));
  const std::string rest = good.substr(4);
  for (const std::string& text : {std::string(), std::string("env_"), good + "0", good.substr(0, good.size() - 1),
                                  "ENV_" + rest, "env_" + std::string(26, 'Z'), "env_" + std::string(26, 'i'),
                                  "env_" + std::string(26, 'u'), "env_" + std::string(25, '0') + "1", "env-" + rest,
                                  rest, " " + good, "env_" + std::string(25, '0') + std::string(1, '\0')}) {
    EXPECT_FALSE(is_id(id_kind::environment, text)) << text;
    EXPECT_FALSE(kind_of_id(text)) << text;
  }
}

TEST(ids, an_operations_id_may_be_the_callers_own) {
  for (const std::string& text : {std::string("a"), std::string("0f8fad5b-d9cb-469f-a165-70867728950e"),
                                  std::string("build.1_x-2"), std::string(128, 'a')}) {
    EXPECT_TRUE(is_op_id(text)) << text;
  }
  for (const std::string& text :
       {std::string(), std::string(129, 'a'), std::string("a b"), std::string("a/b"), std::string("a:1"),
        std::string(".."), std::string("-x"), std::string("_x"), std::string("é"), std::string("a\n")}) {
    EXPECT_FALSE(is_op_id(text)) << text;
  }
}

} // namespace
} // namespace holt::protocols
