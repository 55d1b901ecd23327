#include "runtime/http/output.hpp"

#include <gtest/gtest.h>

#include "protocols/sse.hpp"
#include "runtime/http/exchange.hpp"
#include "runtime/http/keys.hpp"
#include "runtime/http/router.hpp"
#include "runtime/http/secrets.hpp"

/// The pure parts of the edge.
namespace holt::tests::http {
namespace {

using namespace runtime::http;

/// The texts of both streams, joined, out of events for the bytes cut at each of these places.
TEST(events, any_cut_of_the_bytes_gives_the_same_text) {
  std::string text = "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80z";
  for (std::size_t first = 0; first <= text.size(); ++first)
    for (std::size_t second = first; second <= text.size(); ++second) {
      event_encoder encoder{"op", false, 0};
      std::string wire, joined;
      encoder.data(wire, 0, std::string_view{text}.substr(0, first), false);
      encoder.data(wire, first, std::string_view{text}.substr(first, second - first), false);
      encoder.data(wire, second, std::string_view{text}.substr(second), false);
      encoder.finish(wire);
      protocols::sse_parser parser;
      std::vector<protocols::sse_event> events;
      ASSERT_TRUE(parser.feed(wire, events));
      for (auto& event : events) {
        auto value = protocols::json::parse_text(event.data);
        ASSERT_TRUE(value);
        joined += value->at("text").as_string();
        EXPECT_FALSE(value->as_object().contains("lossy"));
      }
      EXPECT_EQ(joined, text);
      EXPECT_EQ(encoder.id(), "op:" + std::to_string(text.size()));
    }
}

TEST(events, bytes_that_are_no_text_are_repaired_at_the_end_and_marked) {
  event_encoder encoder{"op", false, 0};
  std::string wire;
  encoder.data(wire, 0, "a\xE2\x82", false);
  EXPECT_EQ(encoder.id(), "op:1");
  encoder.finish(wire);
  EXPECT_NE(wire.find("\"lossy\":true"), std::string::npos);
}

TEST(events, times_are_rfc_3339_in_utc) {
  EXPECT_EQ(protocols::api::time_text(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(protocols::api::time_text(951'782'400'123'456), "2000-02-29T00:00:00.123Z");
  EXPECT_EQ(protocols::api::time_text(-1), "1969-12-31T23:59:59.999Z");
}

TEST(escapes, are_decoded_or_refused) {
  EXPECT_EQ(percent_decode("a%2Fb%00"), std::string("a/b\0", 4));
  EXPECT_EQ(percent_decode("a+b"), "a+b");
  EXPECT_EQ(percent_decode("a+b", true), "a b");
  EXPECT_FALSE(percent_decode("%"));
  EXPECT_FALSE(percent_decode("%4"));
  EXPECT_FALSE(percent_decode("%g0"));
}

TEST(rates, a_bucket_holds_two_seconds_and_says_how_long_to_wait) {
  rate_limit limit;
  auto now = runtime::http::clock::now();
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(limit.take(2, now).count(), 0);
  EXPECT_EQ(limit.take(2, now).count(), 500);
  EXPECT_EQ(limit.take(2, now + std::chrono::milliseconds{500}).count(), 0);
  EXPECT_EQ(rate_limit{}.take(0, now).count(), 0);
}

TEST(keys, are_believed_for_a_while_and_dropped_when_revoked) {
  key_cache cache{std::chrono::seconds{5}};
  auto now = runtime::http::clock::now();
  cache.put("hash", {"org", "user", "key_1", scope_use}, {}, now);
  EXPECT_TRUE(cache.find("hash", now + std::chrono::seconds{4}));
  EXPECT_FALSE(cache.find("hash", now + std::chrono::seconds{6}));
  cache.drop_key("key_1");
  EXPECT_FALSE(cache.find("hash", now));
}

TEST(ids, derive_from_both_parts) {
  using protocols::id_kind;
  EXPECT_EQ(derived_id(id_kind::environment, "org", "key"), derived_id(id_kind::environment, "org", "key"));
  EXPECT_NE(derived_id(id_kind::environment, "org", "key"), derived_id(id_kind::environment, "orgk", "ey"));
  EXPECT_TRUE(protocols::is_id(id_kind::environment, derived_id(id_kind::environment, "a", "b")));
}

TEST(routes, are_found_with_their_parameters) {
  route_table table;
  add_all_routes(table);
  auto file = table.find(verb::get, "/v1/environments/env_1/files/workspace/a/b");
  ASSERT_TRUE(file.found);
  EXPECT_EQ(file.found->doc.id, "read_file");
  EXPECT_EQ(file.params[0], "env_1");
  EXPECT_EQ(file.params[1], "workspace/a/b");
  EXPECT_FALSE(table.find(verb::get, "/v1/environments/env_1/files/").found);
  EXPECT_FALSE(table.find(verb::get, "//healthz").found);
  EXPECT_EQ(table.find(verb::head, "/v1/environments").found->doc.id, "list_environments");
  EXPECT_FALSE(table.find(verb::head, "/v1/environments/e/processes/p/events").found);
}

} // namespace
} // namespace holt::tests::http
