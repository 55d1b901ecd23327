#include <random>

#include "tests/agent/agent_test.hpp"

namespace holt::tests {
namespace {

class hostile_frames : public agent_test {
protected:
  void expect_refused(std::string_view bytes, bool greeted = true) {
    auto client = greeted ? connect() : agent_client::raw(agent().socket());
    client.send_bytes(bytes);
    EXPECT_TRUE(client.wait_closed());
    ASSERT_FALSE(client.errors().empty());
    EXPECT_EQ(client.errors().back().code, "protocol.malformed");
  }

  static std::string frame(protocols::frame_header header, std::string_view payload) {
    std::string out;
    protocols::append_frame(out, header, payload);
    return out;
  }
};

TEST_F(hostile_frames, close_the_connection_with_a_reason_and_leave_the_agent_alive) {
  expect_refused(std::string(20, '\xff'));
  expect_refused(std::string("\0\0\0\0\x09\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20));
  expect_refused(protocols::control_frame("{"));
  expect_refused(protocols::control_frame("[]"));
  expect_refused(protocols::control_frame(R"({"nothing":1})"));
  expect_refused(protocols::control_frame(R"({"kind":"op.start","op_id":5})"));
  expect_refused(protocols::control_frame(std::string(60'000, '[')));
  expect_refused(protocols::control_frame(R"({"kind":"welcome"})"));
  expect_refused(protocols::control_frame(R"({"kind":"op.start","op_id":"x"})"), false);
  expect_refused(frame({.type = protocols::frame_type::data, .stream = 1}, "x"), false);
  EXPECT_EQ(connect().shell("op", "echo alive").output.all, "alive\n");
}

TEST_F(hostile_frames, data_beyond_its_credit_is_refused) {
  auto client = connect();
  auto start = command("sleep 60");
  start.stdin_mode = "pipe";
  auto op = client.start("op", "process.start", start, {"stdin"});
  client.accepted(op);
  client.send_data(op.streams["stdin"], 0, std::string(60'000, 'x'), false);
  client.send_data(op.streams["stdin"], 60'000, std::string(60'000, 'x'), false);
  client.send_data(op.streams["stdin"], 120'000, std::string(60'000, 'x'), false);
  client.send_data(op.streams["stdin"], 180'000, std::string(60'000, 'x'), false);
  EXPECT_TRUE(client.wait_closed());
  // A side that still sends when the other closes may lose the reason with what it had not read.
  for (auto& error : client.errors())
    EXPECT_EQ(error.code, "protocol.malformed");
  auto again = connect();
  again.control("process.stop", "op");
}

TEST_F(hostile_frames, a_hole_in_a_stream_is_refused_and_a_repeat_is_not) {
  auto client = connect();
  auto start = command("cat");
  start.stdin_mode = "pipe";
  auto op = client.start("op", "process.start", start, {"output", "stdin"});
  client.send_data(op.streams["stdin"], 0, "abc", false);
  client.send_data(op.streams["stdin"], 1, "bcd", false);
  client.send_data(op.streams["stdin"], 2, "c", false);
  client.send_data(op.streams["stdin"], 4, "e", true);
  EXPECT_EQ(client.finish(op).output.all, "abcde");
  op = client.start("op2", "process.start", start, {"output", "stdin"});
  client.accepted(op);
  client.send_data(op.streams["stdin"], 5, "x", false);
  EXPECT_TRUE(client.wait_closed());
  connect().control("process.stop", "op2");
}

TEST_F(hostile_frames, random_ones_never_end_the_agent) {
  // Frames that are right in part: valid headers and kinds with wrong contents, by a fixed seed.
  std::mt19937 random{42};
  auto pick = [&](auto... all) {
    std::vector<std::string> choice{std::string{all}...};
    return choice[random() % choice.size()];
  };
  for (int round = 0; round < 150; ++round) {
    auto client = random() % 4 == 0 ? agent_client::raw(agent().socket()) : connect();
    for (int i = 0; i < 40; ++i) {
      auto id = "op" + std::to_string(random() % 6);
      auto stream = std::to_string(random() % 5);
      switch (random() % 10) {
        case 0: {
          std::string junk(random() % 200, '\0');
          for (auto& c : junk)
            c = static_cast<char>(random());
          client.send_bytes(random() % 8 == 0 ? junk : protocols::control_frame(junk));
          break;
        }
        case 1:
        case 2:
        case 3: {
          auto operation = pick("process.start", "process.read", "process.stop", "process.stdin", "process.list",
                                "process.signal", "file.read", "file.write", "file.list", "search.grep", "x");
          auto arguments = pick(R"({"command":"echo hi"})", R"({"argv":["true"],"stdin_mode":"pipe"})", R"({"command":"cat","terminal":{"cols":5,"rows":5}})",
                                R"({"process":"op1"})", R"({"process":"op1","signal":"SIGTERM"})", R"({"path":"a"})",
                                R"({"path":"../../etc/passwd"})", R"({"pattern":"("})", "null", "[]", "{}", R"({"path":{"b64":"////"}})",
                                R"({"process":"op2","from":18446744073709551615,"max":18446744073709551615})");
          auto name = pick("output", "stdin", "body", "");
          client.send_bytes(protocols::control_frame(R"({"kind":"op.start","op_id":")" + id + R"(","operation":")" + operation
                                                     + R"(","arguments":)" + arguments + R"(,"digest":"d","streams":[{"name":")"
                                                     + name + R"(","stream":)" + stream + "}]}"));
          break;
        }
        case 4:
          client.send_bytes(protocols::control_frame(R"({"kind":")" + pick("op.cancel", "op.forget", "op.attach", "op.detach")
                                                     + R"(","op_id":")" + id + R"(","streams":[]})"));
          break;
        case 5:
          client.send_bytes(protocols::control_frame(R"({"kind":"op.attach","op_id":")" + id
                                                     + R"(","from":99999999999,"streams":[{"name":"output","stream":)" + stream
                                                     + "}]}"));
          break;
        case 6:
          client.send_bytes(frame({.type = protocols::frame_type::data,
                                   .flags = static_cast<std::uint8_t>(random() % 4),
                                   .stream = static_cast<std::uint32_t>(1 + random() % 5),
                                   .offset = random() % 3},
                                  "abc"));
          break;
        case 7:
          client.grant(static_cast<std::uint32_t>(1 + random() % 5), random(), 0);
          break;
        case 8:
          client.send_bytes(protocols::ping_frame(std::string(random() % 100, 'p')));
          break;
        case 9:
          client.send_bytes(protocols::control_frame(R"({"kind":"op.query","query_id":"q","op_ids":[")" + id + R"(","",""]})"));
          break;
      }
    }
    try {
      client.take_for(milliseconds{2});
    } catch (const std::runtime_error& fault) {
      // Positions of streams whose ids are used again may look wrong to this client; the agent's frames must not.
      EXPECT_EQ(std::string{fault.what()}.find("malformed"), std::string::npos) << fault.what();
    }
    ASSERT_TRUE(alive(agent().pid())) << "round " << round;
  }
  EXPECT_EQ(connect().shell("last", "echo alive").output.all, "alive\n");
}

} // namespace
} // namespace holt::tests
