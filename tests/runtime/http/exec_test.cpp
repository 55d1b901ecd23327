#include <future>

#include "tests/runtime/http/support/edge_test.hpp"

#include "protocols/json_write.hpp"

/// POST …/exec and …/processes (spec 37 to 44).
namespace holt::tests::http {
namespace {

class exec_test : public edge_test {
protected:
  exec_test() {
    environment_ = new_environment();
  }
  std::string path(const std::string& rest) const {
    return "/v1/environments/" + environment_ + rest;
  }
  std::string environment_;
};

using script = std::shared_ptr<played_use>;

TEST_F(exec_test, a_command_is_answered_with_how_it_ended) {
  front_.play("process.start", [](script use) {
    use->accept();
    use->output("out\n");
    use->output("err\n", true);
    use->exit(3, true);
  });
  auto answer = call("POST", path("/exec"), R"({"command":"false","cwd":"/workspace","env":{"A":"b"},"timeout_ms":500,"holder":"conv_1"})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  auto body = json(answer);
  EXPECT_EQ(body.at("exit_code").as_int64(), 3);
  EXPECT_EQ(body.at("stdout").as_string(), "out\n");
  EXPECT_EQ(body.at("stderr").as_string(), "err\n");
  EXPECT_TRUE(body.at("restarted").as_bool());
  EXPECT_FALSE(body.at("lossy").as_bool());
  EXPECT_FALSE(body.at("truncated").as_bool());
  EXPECT_EQ(body.at("duration_ms").to_number<int>(), 7);
  EXPECT_TRUE(body.at("op_id").as_string().starts_with("op_"));
}

TEST_F(exec_test, what_is_asked_reaches_the_agent) {
  auto answered = std::async(std::launch::async, [&] {
    return call("POST", path("/exec"), R"({"argv":["cat","-"],"stdin":{"b64":"AAH/"},"op_id":"mine","holder":"h"})");
  });
  auto use = front_.next();
  auto& asked = *use->request;
  EXPECT_EQ(asked.org_id, org_);
  EXPECT_EQ(asked.environment_id, environment_);
  EXPECT_EQ(asked.holder, "h");
  EXPECT_EQ(asked.op_id, "mine");
  EXPECT_TRUE(asked.counted);
  EXPECT_TRUE(asked.caller_chose_id);
  EXPECT_FALSE(asked.safe_to_repeat);
  EXPECT_EQ(asked.arguments.at("argv").at(0).as_string(), "cat");
  EXPECT_EQ(asked.arguments.at("stdin_mode").as_string(), "pipe");
  use->accept();
  ASSERT_TRUE(use->channel->wait_input_ended(use->out_stream()));
  EXPECT_EQ(use->channel->input(use->out_stream()), std::string("\0\1\xff", 3));
  use->exit(0);
  EXPECT_EQ(answered.get().status, 200);
}

TEST_F(exec_test, the_digest_covers_what_the_caller_gave_and_not_how_it_wants_the_answer) {
  std::vector<std::string> digests;
  front_.play("process.start", [&](script use) {
    digests.push_back(use->request->digest);
    use->accept();
    use->exit(0);
  });
  call("POST", path("/exec"), R"({"command":"a","env":{"A":"1","B":"2"}})");
  call("POST", path("/exec"), R"({"env":{"B":"2","A":"1"},"op_id":"x","output_encoding":"base64","command":"a","cwd":null})");
  call("POST", path("/exec"), R"({"command":"a","env":{"A":"1","B":"3"}})");
  ASSERT_EQ(digests.size(), 3u);
  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_NE(digests[0], digests[2]);
}

TEST_F(exec_test, output_that_is_not_utf8_is_marked_lossy_or_given_as_bytes) {
  front_.play("process.start", [](script use) {
    use->accept();
    use->output("a\xff" "b");
    use->exit(0);
  });
  auto text = json(call("POST", path("/exec"), R"({"command":"x"})"));
  EXPECT_EQ(text.at("stdout").as_string(), "a\xEF\xBF\xBD" "b");
  EXPECT_TRUE(text.at("lossy").as_bool());
  auto bytes = json(call("POST", path("/exec"), R"({"command":"x","output_encoding":"base64"})"));
  EXPECT_EQ(bytes.at("stdout").as_string(), "Yf9i");
  EXPECT_FALSE(bytes.at("lossy").as_bool());
}

TEST_F(exec_test, long_output_is_cut_between_characters_and_counted) {
  front_.play("process.start", [](script use) {
    use->accept();
    use->output("aaa\xC3\xA4zzz");
    use->exit(0);
  });
  auto body = json(call("POST", path("/exec"), R"({"command":"x","max_output_bytes":4})"));
  EXPECT_EQ(body.at("stdout").as_string(), "aaa");
  EXPECT_TRUE(body.at("truncated").as_bool());
  EXPECT_FALSE(body.at("lossy").as_bool());
  EXPECT_EQ(body.at("stdout_bytes").to_number<int>(), 8);
}

TEST_F(exec_test, bytes_that_never_came_are_named) {
  front_.play("process.start", [](script use) {
    use->accept();
    use->output("ab");
    use->gap(10);
    use->output("cd");
    use->exit(0);
  });
  auto body = json(call("POST", path("/exec"), R"({"command":"x"})"));
  EXPECT_EQ(body.at("missing").at(0).at("from").to_number<int>(), 2);
  EXPECT_EQ(body.at("missing").at(0).at("to").to_number<int>(), 10);
}

TEST_F(exec_test, errors_keep_their_code_and_say_when_to_come_back) {
  front_.play("process.start", [](script use) { use->fail("environment.busy", "8 commands run", std::chrono::milliseconds{1500}); });
  auto busy = call("POST", path("/exec"), R"({"command":"x"})");
  EXPECT_EQ(busy.status, 429);
  EXPECT_EQ(code(busy), "environment.busy");
  EXPECT_EQ(busy.header("retry-after"), "2");
  front_.play("process.start", [](script use) { use->fail("operation.conflict", "other arguments"); });
  EXPECT_EQ(call("POST", path("/exec"), R"({"command":"x","op_id":"a"})").status, 409);
  front_.play("process.start", [](script use) { use->fail("/srv/secret exploded", "at /srv/secret"); });
  auto bug = call("POST", path("/exec"), R"({"command":"x"})");
  EXPECT_EQ(bug.status, 500);
  EXPECT_EQ(bug.body.find("secret"), std::string::npos);
}

TEST_F(exec_test, events_are_cut_between_characters) {
  front_.play("process.start", [](script use) {
    use->accept();
    use->output("h\xC3");
    use->output("\xA4t\xE2\x82");
    use->output("warn", true);
    use->output("\xAC!");
    use->exit(0);
  });
  raw_client client{port()};
  client.send(request_text("POST", path("/exec"), key_, R"({"command":"x","op_id":"run1"})", "Accept: text/event-stream\r\n"));
  auto answer = client.read_response();
  ASSERT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.whole);
  EXPECT_EQ(answer.header("content-type"), "text/event-stream");
  EXPECT_NE(answer.body.find("event: started"), std::string::npos) << answer.body;
  EXPECT_NE(answer.body.find("\"text\":\"h\""), std::string::npos) << answer.body;
  EXPECT_NE(answer.body.find("\"offset\":1,\"text\":\"\xC3\xA4t\""), std::string::npos) << answer.body;
  EXPECT_NE(answer.body.find("\xE2\x82\xAC!"), std::string::npos) << answer.body;
  EXPECT_EQ(answer.body.find("\xEF\xBF\xBD"), std::string::npos) << answer.body;
  // A client that comes back after the warning goes on where the open character began.
  EXPECT_NE(answer.body.find("id: run1:4\n"), std::string::npos) << answer.body;
  EXPECT_NE(answer.body.find("event: exit"), std::string::npos) << answer.body;
  EXPECT_EQ(client.exchange(request_text("GET", "/healthz", "")).status, 200);
}

TEST_F(exec_test, terminal_event_is_flushed) {
  std::string output(300'000, 'x');
  front_.play("process.start", [&](script use) {
    use->accept();
    use->output_with_credit(output);
    use->exit(0);
  });
  for (int i = 0; i < 30; ++i) {
    raw_client client{port()};
    client.send(request_text("POST", path("/exec"), key_, R"({"command":"x"})", "Accept: text/event-stream\r\nConnection: close\r\n"));
    auto answer = client.read_response();
    ASSERT_TRUE(answer.whole);
    auto exit = answer.body.rfind("event: exit");
    ASSERT_NE(exit, std::string::npos);
    ASSERT_NE(answer.body.find("\"exit_code\":0", exit), std::string::npos);
  }
}

TEST_F(exec_test, stream_end_is_never_invented) {
  front_.play("process.start", [](script use) {
    use->accept();
    use->output("part");
    use->fail("operation.outcome_unknown", "the agent's run ended");
  });
  raw_client client{port()};
  client.send(request_text("POST", path("/exec"), key_, R"({"command":"x"})", "Accept: text/event-stream\r\n"));
  auto events = client.read_response();
  EXPECT_EQ(events.body.find("event: exit"), std::string::npos);
  EXPECT_NE(events.body.find("operation.outcome_unknown"), std::string::npos);
  raw_client plain{port()};
  plain.send(request_text("POST", path("/exec"), key_, R"({"command":"x"})", "Accept: application/octet-stream\r\n"));
  auto bytes = plain.read_response();
  EXPECT_FALSE(bytes.whole);
}

TEST_F(exec_test, a_client_that_leaves_does_not_end_the_command) {
  raw_client client{port()};
  client.send(request_text("POST", path("/exec"), key_, R"({"command":"x","op_id":"stays"})", "Accept: text/event-stream\r\n"));
  auto use = front_.next();
  use->accept();
  use->output("begun");
  ASSERT_NE(client.read_until("begun"), "");
  client.close();
  EXPECT_TRUE(front_.wait_detached("stays"));
  EXPECT_TRUE(front_.cancelled().empty());
  use->exit(0);
}

TEST_F(exec_test, a_client_that_leaves_ends_it_when_it_said_so) {
  raw_client client{port()};
  client.send(request_text("POST", path("/exec?cancel_on_disconnect=true"), key_, R"({"command":"x","op_id":"goes"})"));
  auto use = front_.next();
  use->accept();
  client.close();
  EXPECT_TRUE(front_.wait_cancelled("goes"));
  use->exit(0);
}

TEST_F(exec_test, plain_bytes_end_with_trailers) {
  std::string output;
  for (int i = 0; i < 3'000'000; ++i)
    output += static_cast<char>(i * 31 >> 3);
  front_.play("process.start", [&](script use) {
    use->accept();
    use->output_with_credit(output);
    use->exit(9);
  });
  raw_client client{port()};
  client.send(request_text("POST", path("/exec"), key_, R"({"command":"x","op_id":"bulk"})", "Accept: application/octet-stream\r\n"));
  auto answer = client.read_response();
  EXPECT_TRUE(answer.whole);
  EXPECT_EQ(answer.header("holt-op-id"), "bulk");
  EXPECT_TRUE(answer.body == output);
  EXPECT_EQ(answer.trailers["holt-exit-code"], "9");
  EXPECT_EQ(answer.trailers["holt-state"], "exited");
  EXPECT_EQ(client.exchange(request_text("GET", "/healthz", "")).status, 200);
}

TEST_F(exec_test, a_slow_reader_pauses_its_process_only) {
  raw_client slow{port()};
  slow.send(request_text("POST", path("/exec"), key_, R"({"command":"x"})", "Accept: application/octet-stream\r\n"));
  auto use = front_.next();
  use->accept();
  ASSERT_TRUE(use->channel->wait_granted(use->in_stream(), 1));
  std::string frame(64 * 1024, 'z');
  // More than the sockets' buffers and the window hold: at some point no more credit comes.
  std::uint64_t sent = 0;
  auto quiet_since = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - quiet_since < std::chrono::milliseconds{300} && sent < (1u << 30)) {
    if (use->channel->granted(use->in_stream()) >= use->position() + frame.size()) {
      use->output(frame);
      sent += frame.size();
      quiet_since = std::chrono::steady_clock::now();
    } else {
      std::this_thread::yield();
    }
  }
  EXPECT_LT(sent, 64u << 20);
  EXPECT_EQ(call("GET", "/healthz").status, 200);
  auto limit = use->channel->granted(use->in_stream());
  while (use->channel->granted(use->in_stream()) == limit)
    if (slow.drop_available() == 0)
      std::this_thread::yield();
  use->exit(0);
  slow.close();
}

TEST_F(exec_test, a_background_process_is_answered_when_it_runs) {
  front_.play("process.start", [](script use) { use->accept(); });
  auto answer = call("POST", path("/processes"), R"({"command":"sleep 900"})", "Idempotency-Key: bg\r\n");
  EXPECT_EQ(answer.status, 202) << answer.body;
  EXPECT_EQ(json(answer).at("op_id").as_string(), "bg");
  EXPECT_EQ(json(answer).at("state").as_string(), "running");
  EXPECT_EQ(json(answer).at("pid").to_number<int>(), 42);
}

TEST_F(exec_test, processes_are_looked_at_without_waking_anything) {
  front_.play("process.list", [](script use) {
    EXPECT_TRUE(use->request->if_running);
    protocols::agent::process_list list;
    list.processes.push_back({});
    list.processes.back().op_id = "a";
    list.processes.back().state = "running";
    use->finish(protocols::json::to_value(list));
  });
  auto answer = call("GET", path("/processes"));
  EXPECT_EQ(json(answer).at("items").at(0).at("op_id").as_string(), "a");
  front_.play("process.get", [](script use) { use->fail("environment.not_running", "no instance runs"); });
  EXPECT_EQ(call("GET", path("/processes/a")).status, 409);
  EXPECT_EQ(call("GET", path("/processes/not%20an%20id")).status, 404);
}

TEST_F(exec_test, the_log_is_read_by_position) {
  front_.play("process.read", [](script use) {
    EXPECT_EQ(use->request->arguments.at("from").to_number<int>(), 100);
    use->accept();
    use->output("out");
    use->output("err", true);
    protocols::agent::process_read_result result;
    result.from = 100;
    result.next = 106;
    result.end = 200;
    result.running = true;
    result.omitted = protocols::agent::byte_range{10, 90};
    use->finish(protocols::json::to_value(result));
  });
  auto bytes = call("GET", path("/processes/a/log?from=100&max=6"));
  EXPECT_EQ(bytes.body, "outerr");
  EXPECT_EQ(bytes.header("holt-log-next"), "106");
  EXPECT_EQ(bytes.header("holt-log-end"), "200");
  EXPECT_EQ(bytes.header("holt-log-omitted"), "10-90");
  auto text = json(call("GET", path("/processes/a/log?from=100"), "", "Accept: application/json\r\n"));
  EXPECT_EQ(text.at("pieces").at(1).at("stream").as_string(), "stderr");
  EXPECT_EQ(text.at("pieces").at(1).at("offset").to_number<int>(), 103);
  EXPECT_EQ(call("GET", path("/processes/a/log?from=minus")).status, 400);
}

TEST_F(exec_test, events_go_on_where_the_client_was) {
  front_.play("attach", [](script use) {
    use->accept(true);
    use->output("rest of " + std::to_string(use->request->attach_from));
    use->exit(0);
  });
  auto after = call("GET", path("/processes/a/events?after=7"), "", "Accept: text/event-stream\r\n");
  EXPECT_NE(after.body.find("rest of 7"), std::string::npos) << after.body;
  auto last = call("GET", path("/processes/a/events?after=7"), "", "Last-Event-ID: a:12\r\n");
  EXPECT_NE(last.body.find("rest of 12"), std::string::npos) << last.body;
  EXPECT_NE(last.body.find("event: exit"), std::string::npos);
  EXPECT_EQ(call("GET", path("/processes/a/events"), "", "Last-Event-ID: b:12\r\n").status, 400);
}

TEST_F(exec_test, steering_reaches_the_process) {
  auto state = [](script use) {
    protocols::agent::process_state state;
    state.op_id = "a";
    state.state = "running";
    use->accept();
    use->finish(protocols::json::to_value(state));
  };
  for (auto name : {"process.stop", "process.signal", "process.background", "process.resize"})
    front_.play(name, state);
  EXPECT_EQ(call("POST", path("/processes/a/stop")).status, 200);
  EXPECT_EQ(call("POST", path("/processes/a/signal"), R"({"signal":"SIGINT"})").status, 200);
  EXPECT_EQ(call("POST", path("/processes/a/signal"), R"({})").status, 400);
  EXPECT_EQ(call("POST", path("/processes/a/background")).status, 200);
  EXPECT_EQ(call("POST", path("/processes/a/resize"), R"({"cols":100,"rows":40})").status, 200);
  EXPECT_EQ(call("POST", path("/processes/a/resize"), R"({"cols":0,"rows":40})").status, 400);
  front_.play("process.stdin", [&](script use) {
    use->accept();
    EXPECT_EQ(use->channel->input(use->out_stream()), "typed");
    EXPECT_TRUE(use->request->arguments.at("close").as_bool());
    state(use);
  });
  auto typed = call("POST", path("/processes/a/stdin?close=true"), "typed", "Content-Type: application/octet-stream\r\n");
  EXPECT_EQ(typed.status, 200) << typed.body;
  EXPECT_EQ(json(typed).at("written_bytes").to_number<int>(), 5);
}

} // namespace
} // namespace holt::tests::http
