#include "storage/cursor.hpp"

#include <gtest/gtest.h>

namespace holt::tests {

using namespace storage;

TEST(cursor, what_was_given_is_read_back) {
  for (const std::string& id : {std::string("env_1"), std::string("a:b:c"), std::string("\xff\x00z", 3)}) {
    for (std::int64_t at : {std::int64_t{0}, std::int64_t{7}, INT64_MAX}) {
      auto text = cursor_text("environments", {at, id});
      EXPECT_EQ(text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
                std::string::npos);
      auto back = read_cursor("environments", text);
      ASSERT_TRUE(back);
      EXPECT_EQ(back->created_at, at);
      EXPECT_EQ(back->id, id);
    }
  }
}

TEST(cursor, an_empty_one_is_the_start) {
  auto start = read_cursor("users", "");
  ASSERT_TRUE(start);
  EXPECT_LT(start->created_at, 0);
  EXPECT_EQ(start->id, "");
}

TEST(cursor, nothing_else_is_accepted) {
  const auto good = cursor_text("users", {12, "user_1"});
  EXPECT_FALSE(read_cursor("keys", good));
  EXPECT_FALSE(read_cursor("user", good));
  EXPECT_FALSE(read_cursor("users", good + "A"));
  EXPECT_FALSE(read_cursor("users", good + "="));
  EXPECT_FALSE(read_cursor("users", good.substr(0, 8)));
  EXPECT_FALSE(read_cursor("users", cursor_text("users", {-1, "x"})));
  EXPECT_FALSE(read_cursor("users", cursor_text("users", {1, ""})));
  EXPECT_FALSE(read_cursor("users", cursor_text("users", {1, std::string(2000, 'x')})));
  EXPECT_FALSE(read_cursor("users", "dXNlcnM6eDp5"));   // users:x:y
  EXPECT_FALSE(read_cursor("users", "dXNlcnM6MDA6eQ")); // users:00:y
}

} // namespace holt::tests
