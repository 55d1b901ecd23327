#include "protocols/problem.hpp"

#include <gtest/gtest.h>

#include <boost/json/object.hpp>

#include "protocols/json_read.hpp"

namespace holt::protocols {
namespace {

struct field {
  std::uint32_t count = 0;
};
BOOST_DESCRIBE_STRUCT(field, (), (count))

TEST(problem, every_code_has_one_status_that_fits_its_retry_hint) {
  std::string_view before;
  for (const problem_kind& kind : all_problems()) {
    EXPECT_LT(before, kind.code);
    before = kind.code;
    EXPECT_EQ(find_problem(kind.code), &kind);
    EXPECT_GE(kind.status, 400) << kind.code;
    EXPECT_FALSE(kind.title.empty()) << kind.code;
    // Spec 94: 503 means try again, and so does 429; the caller's own faults do not pass by themselves.
    if (kind.status == 503 || kind.status == 429) {
      EXPECT_EQ(kind.retry, retry_hint::later) << kind.code;
    }
    if (kind.status == 400 || kind.status == 401 || kind.status == 405) {
      EXPECT_NE(kind.retry, retry_hint::later) << kind.code;
    }
  }
}

TEST(problem, the_codes_that_the_spec_names_have_its_statuses) {
  const std::pair<const char*, int> cases[] = {
      {"environment.not_found", 404}, {"environment.busy", 429},  {"environment.files_lost", 409},
      {"sandbox.unavailable", 503},   {"device.offline", 503},    {"environment.unavailable", 503},
      {"operation.conflict", 409},    {"operation.expired", 410}, {"operation.outcome_unknown", 409},
      {"storage.full", 507},          {"file.range", 416},        {"file.changed", 412},
      {"instance.gone", 409},         {"lease.lost", 409},        {"request.host_refused", 421},
      {"server.internal", 500},
  };
  for (const auto& [code, status] : cases) {
    ASSERT_NE(find_problem(code), nullptr) << code;
    EXPECT_EQ(find_problem(code)->status, status) << code;
  }
}

TEST(problem, is_written_as_problem_json) {
  const problem busy = make_problem("environment.busy", "8 commands run.", json::value(json::object{{"running", 8}}));
  EXPECT_EQ(write_problem(busy),
            R"({"type":"urn:holt:problem:environment.busy","title":"The environment is busy","status":429,)"
            R"("detail":"8 commands run.","code":"environment.busy","retry":"later","details":{"running":8}})");
  EXPECT_EQ(write_problem(make_problem("request.not_found", "No.")).find("details"), std::string::npos);
}

TEST(problem, a_code_from_outside_chooses_no_status) {
  const problem answer = make_problem("made.up", "x");
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(answer.code, "server.internal");
  EXPECT_EQ(find_problem("made.up"), nullptr);
  EXPECT_EQ(find_problem(""), nullptr);
}

TEST(problem, a_refused_body_names_field_and_fault) {
  const struct {
    const char* body;
    const char* code;
    const char* detail;
  } cases[] = {
      {"{", "request.malformed_json",
       "The body must be one JSON value in UTF-8: at line 1, column 2, it ends too early."},
      {R"({"count":"1"})", "request.invalid", "/count must be a whole number from 0 to 4294967295, and is a string."},
      {R"({"cuont":1})", "request.unknown_field", "/cuont: unknown field 'cuont'; did you mean 'count'?"},
      {"[                                        ]", "request.too_large",
       "The body has 42 bytes; at most 40 are accepted."},
  };
  for (const auto& c : cases) {
    const auto read = json::read_text<field>(c.body, json::unknown_fields::refuse, {.max_bytes = 40});
    ASSERT_FALSE(read) << c.body;
    const problem answer = make_problem(read.error());
    EXPECT_EQ(answer.code, c.code) << c.body;
    EXPECT_EQ(answer.detail, c.detail) << c.body;
    EXPECT_EQ(answer.details->at(0).at("pointer").as_string(), read.error().pointer);
  }
}

} // namespace
} // namespace holt::protocols
