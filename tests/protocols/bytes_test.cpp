#include <gtest/gtest.h>

#include "protocols/base64.hpp"
#include "protocols/utf8.hpp"

namespace holt::protocols {
namespace {

TEST(utf8, only_the_characters_of_rfc_3629_are_valid) {
  for (const char* text : {"", "plain", "é", "€", "\xF0\x9F\x98\x80", "\xEF\xBF\xBD", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xF4\x8F\xBF\xBF", "12345678é12345678"}) {
    EXPECT_TRUE(utf8::valid(text)) << text;
  }
  for (const char* text :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC3", "\xE2\x82", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "12345678\xFE", "a\xC3z"}) {
    EXPECT_FALSE(utf8::valid(text)) << text;
  }
}

TEST(utf8, broken_pieces_are_replaced_one_by_one_and_reported) {
  const struct {
    const char* bytes;
    const char* text;
  } cases[] = {
      {"a\xFFz", "a\xEF\xBF\xBDz"},
      {"\xE2\x82z", "\xEF\xBF\xBDz"},
      {"\xE2\x82", "\xEF\xBF\xBD"},
      {"\xF0\x9F\x98", "\xEF\xBF\xBD"},
      {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"\xC3\xC3\xA9", "\xEF\xBF\xBDé"},
  };
  for (const auto& c : cases) {
    const auto fixed = utf8::repair(c.bytes);
    EXPECT_EQ(fixed.text, c.text);
    EXPECT_TRUE(fixed.lossy);
    EXPECT_TRUE(utf8::valid(fixed.text));
  }
  EXPECT_FALSE(utf8::repair("völlig gut").lossy);
}

TEST(utf8, text_is_cut_only_between_characters) {
  const std::string text = "aé€\xF0\x9F\x98\x80z";
  for (std::size_t n = 0; n <= text.size(); ++n) {
    const std::string_view cut = std::string_view(text).substr(0, n);
    const std::size_t whole = utf8::complete_prefix(cut);
    EXPECT_TRUE(utf8::valid(cut.substr(0, whole))) << n;
    EXPECT_LE(n - whole, 3U) << n;
  }
  EXPECT_EQ(utf8::complete_prefix("a\xFF"), 2U); // never becomes a character: nothing to wait for
  EXPECT_EQ(utf8::complete_prefix("\x80\x80\x80\x80"), 4U);
  EXPECT_EQ(utf8::complete_prefix("\xC3\xA9\xA9"), 3U);
}

TEST(utf8, a_stream_cut_anywhere_gives_the_same_text) {
  const std::string bytes = "aé€\xF0\x9F\x98\x80\xFF\xE2\x82z\xC3\xF0\x9F!\xED\xA0\x80\xE2\x82";
  const auto whole = utf8::repair(bytes);
  for (std::size_t first = 0; first <= bytes.size(); ++first) {
    for (std::size_t second = first; second <= bytes.size(); ++second) {
      utf8::stream_decoder decoder;
      std::string text;
      const std::string_view all = bytes;
      decoder.feed(all.substr(0, first), text);
      decoder.feed(all.substr(first, second - first), text);
      decoder.feed(all.substr(second), text);
      EXPECT_LE(decoder.pending(), 3U);
      decoder.finish(text);
      EXPECT_EQ(text, whole.text) << first << ' ' << second;
      EXPECT_TRUE(decoder.lossy());
    }
  }
}

TEST(utf8, a_cut_character_alone_is_not_a_loss) {
  utf8::stream_decoder decoder;
  std::string text;
  for (const char c : std::string_view("é€\xF0\x9F\x98\x80")) {
    decoder.feed({&c, 1}, text);
  }
  decoder.finish(text);
  EXPECT_EQ(text, "é€\xF0\x9F\x98\x80");
  EXPECT_FALSE(decoder.lossy());
  EXPECT_EQ(utf8::count(text), 3U);
}

TEST(base64, the_vectors_of_rfc_4648) {
  const char* vectors[][2] = {{"", ""},
                              {"f", "Zg=="},
                              {"fo", "Zm8="},
                              {"foo", "Zm9v"},
                              {"foob", "Zm9vYg=="},
                              {"fooba", "Zm9vYmE="},
                              {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : vectors) {
    EXPECT_EQ(base64_encode(bytes), text);
    EXPECT_EQ(base64_decode(text), bytes);
  }
  EXPECT_EQ(base64url_encode("\xFB\xFF"), "-_8");
  EXPECT_EQ(base64url_decode("-_8"), "\xFB\xFF");
}

TEST(base64, one_byte_string_has_one_text) {
  for (const char* text :
       {"Zg", "Zg=", "Zg===", "Zh==", "Zm9=", "Zm9v\n", " Zm9v", "Zm9v=", "====", "Z===", "=", "Zm-v", "Zg==Zg=="}) {
    EXPECT_FALSE(base64_decode(text)) << text;
  }
  for (const char* text : {"Zg==", "Z", "Zh", "+/8"}) {
    EXPECT_FALSE(base64url_decode(text)) << text;
  }
}

TEST(base64, every_byte_survives) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) {
    bytes += static_cast<char>(i);
    EXPECT_EQ(base64_decode(base64_encode(bytes)), bytes);
    EXPECT_EQ(base64url_decode(base64url_encode(bytes)), bytes);
    EXPECT_EQ(hex_decode(hex_encode(bytes)), bytes);
  }
}

TEST(hex, is_lower_case_and_strict) {
  EXPECT_EQ(hex_encode(std::string_view("\x00\xAB\xFF", 3)), "00abff");
  for (const char* text : {"0", "0G", "AB", "0x", " 0"}) {
    EXPECT_FALSE(hex_decode(text)) << text;
  }
}

} // namespace
} // namespace holt::protocols
