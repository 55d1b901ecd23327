#include <fstream>

#include "protocols/json_bytes.hpp"
#include "tests/agent/agent_test.hpp"

namespace holt::tests {
namespace {

/// How file operations meet the session; what they do is tested in tests/agent/files.
class file_operations : public agent_test {
protected:
  static std::string contents(const std::filesystem::path& file) {
    std::ifstream in{file, std::ios::binary};
    return {std::istreambuf_iterator<char>{in}, {}};
  }

  static operation_end write(agent_client& client, const std::string& op_id, const std::string& path, const std::string& text,
                             bool durable = false) {
    wire::file_write ask;
    ask.path = {path};
    ask.size = text.size();
    auto op = client.start(op_id, "file.write", ask, {"body"}, durable);
    std::uint64_t at = 0;
    while (true) {
      auto part = std::min<std::uint64_t>(60'000, text.size() - at);
      while (client.window(op.streams["body"]) < at + part)
        client.take_for(milliseconds{1});
      bool last = at + part == text.size();
      client.send_data(op.streams["body"], at, std::string_view{text}.substr(at, part), last);
      at += part;
      if (last)
        break;
    }
    return client.finish(op);
  }
};

TEST_F(file_operations, a_large_file_goes_in_and_comes_out) {
  auto client = connect();
  std::string text;
  for (int i = 0; i < 800'000; ++i)
    text += std::to_string(i) + "\n";
  EXPECT_EQ(write(client, "in", "dir/file", text).result.outcome, "done");
  EXPECT_TRUE(contents(home() / "workspace/dir/file") == text);
  auto end = client.finish(client.start("out", "file.read", wire::file_read{{"dir/file"}, 0, {}, {}}, {"body"}));
  EXPECT_EQ(end.result.outcome, "done");
  EXPECT_TRUE(end.output.all == text);
  EXPECT_TRUE(end.output.last);
  EXPECT_EQ(end.result.finals.at(0).position, text.size());
}

TEST_F(file_operations, a_write_happens_once) {
  auto client = connect();
  write(client, "op", "file", "first", true);
  std::ofstream{home() / "workspace/file"} << "changed since";
  auto again = client.finish(client.start("op", "file.write", wire::file_write{{"file"}, 5, {}, {}, {}, true}, {"body"}));
  EXPECT_EQ(again.result.outcome, "done");
  EXPECT_EQ(contents(home() / "workspace/file"), "changed since");
}

TEST_F(file_operations, a_body_that_breaks_off_changes_nothing_and_frees_its_id) {
  std::ofstream{home() / "workspace-marker"};
  {
    auto client = connect();
    auto op = client.start("op", "file.write", wire::file_write{{"file"}, 100, {}, {}, {}, true}, {"body"});
    client.accepted(op);
    client.send_data(op.streams["body"], 0, "half", false);
  }
  auto client = connect(2);
  EXPECT_TRUE(eventually([&] { return client.state_of("op") == "never"; }));
  EXPECT_FALSE(std::filesystem::exists(home() / "workspace/file"));
  EXPECT_EQ(write(client, "op", "file", "whole").result.outcome, "done");
  EXPECT_EQ(contents(home() / "workspace/file"), "whole");
}

TEST_F(file_operations, errors_are_results) {
  auto client = connect();
  auto end = client.finish(client.start("op", "file.read", wire::file_read{{"none"}, 0, {}, {}}, {"body"}));
  EXPECT_EQ(end.error_code, "file.not_found");
  end = client.finish(client.start("op2", "file.remove", wire::file_remove{{"none"}, false, {}}, {}));
  EXPECT_EQ(end.result.outcome, "done");
  EXPECT_EQ(end.error_code, "file.not_found");
  end = client.finish(client.start("op3", "file.remove", wire::process_ref{}, {}));
  EXPECT_FALSE(end.error_code.empty());
}

TEST_F(file_operations, a_slow_receiver_of_a_file_delays_nobody) {
  auto client = connect();
  std::ofstream{home() / "workspace/file"} << std::string(5'000'000, 'x');
  client.credit = 0;
  auto slow = client.start("slow", "file.read", wire::file_read{{"file"}, 0, {}, {}}, {"body"});
  client.wait_output(slow, 64 * 1024);
  EXPECT_EQ(client.shell("op", "echo hi").output.all, "hi\n");
  EXPECT_EQ(client.finish(client.start("stat", "file.stat", wire::file_stat{{"file"}, true, false}, {})).result.outcome, "done");
  client.send(wire::op_cancel{"slow"});
  EXPECT_FALSE(client.finish(slow).error_code.empty());
}

TEST_F(file_operations, searches_answer_with_one_record_a_line) {
  auto client = connect();
  std::ofstream{home() / "workspace/one.txt"} << "alpha\nneedle here\n";
  std::ofstream{home() / "workspace/two.txt"} << "nothing\n";
  wire::search_glob glob;
  glob.pattern = "*.txt";
  auto end = client.finish(client.start("glob", "search.glob", glob, {"body"}));
  EXPECT_EQ(std::count(end.output.all.begin(), end.output.all.end(), '\n'), 2);
  EXPECT_EQ(end.result.result->at("count").to_number<int>(), 2);
  wire::search_grep grep;
  grep.pattern = "ne+dle";
  end = client.finish(client.start("grep", "search.grep", grep, {"body"}));
  auto record = protocols::json::read_text<wire::grep_record>(end.output.all);
  ASSERT_TRUE(record) << end.output.all;
  EXPECT_EQ(record->text, "needle here");
  EXPECT_EQ(record->line, 2u);
  grep.pattern = "(";
  EXPECT_EQ(client.finish(client.start("bad", "search.grep", grep, {"body"})).error_code, "search.invalid_pattern");
}

TEST_F(file_operations, a_watch_tells_until_it_is_cancelled) {
  auto client = connect();
  auto op = client.start("op", "file.watch", wire::file_watch{{"."}, true}, {"body"});
  client.accepted(op);
  EXPECT_TRUE(eventually([&] {
    std::ofstream{home() / "workspace/seen"} << "x";
    client.take_for(milliseconds{20});
    return client.stream(op.streams["body"]).all.find("seen") != std::string::npos;
  }));
  client.send(wire::op_cancel{"op"});
  EXPECT_EQ(client.finish(op).result.outcome, "done");
}

} // namespace
} // namespace holt::tests
