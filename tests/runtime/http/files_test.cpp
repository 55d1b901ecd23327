#include <algorithm>
#include <future>
#include <map>

#include "protocols/json_bytes.hpp"
#include "protocols/json_write.hpp"
#include "runtime/http/secrets.hpp"
#include "tests/runtime/http/support/edge_test.hpp"

/// …/files/{path} and …/fs/ (spec 45).
namespace holt::tests::http {
namespace {

namespace agent = protocols::agent;
using script = std::shared_ptr<played_use>;

template <class T>
T arguments_of(const script& use) {
  return protocols::json::read<T>(use->request->arguments, protocols::json::unknown_fields::ignore).value();
}

class files : public edge_test {
protected:
  files() {
    environment_ = new_environment();
    // An agent with a few files in memory.
    front_.play("file.stat", [this](script use) {
      auto asked = arguments_of<agent::file_stat>(use);
      auto found = files_.find(asked.path.bytes);
      if (found == files_.end())
        return use->fail("file.not_found", "there is no " + asked.path.bytes);
      agent::file_stat_result out;
      out.path = asked.path;
      out.entry.name = asked.path;
      out.entry.type = "file";
      out.entry.size = found->second.size();
      if (asked.hash)
        out.sha256 = runtime::http::sha256_hex(found->second);
      use->finish(protocols::json::to_value(out));
    });
    front_.play("file.read", [this](script use) {
      auto asked = arguments_of<agent::file_read>(use);
      auto& content = files_[asked.path.bytes];
      auto part = content.substr(asked.offset, asked.length.value_or(content.size()));
      use->accept();
      use->output_with_credit(part);
      agent::file_read_result out;
      out.size = content.size();
      out.offset = asked.offset;
      out.length = part.size();
      if (part.size() == content.size())
        out.sha256 = runtime::http::sha256_hex(content);
      use->finish(protocols::json::to_value(out));
    });
  }
  std::string path(const std::string& rest) const {
    return "/v1/environments/" + environment_ + rest;
  }
  std::string tag(const std::string& content) {
    return "\"" + runtime::http::sha256_hex(content) + "\"";
  }
  std::string environment_;
  std::map<std::string, std::string> files_;
};

TEST_F(files, ranges_and_tags_as_rfc_9110_has_them) {
  std::string content = "0123456789";
  files_["/workspace/a.txt"] = content;
  auto etag = tag(content);
  struct row {
    std::string method, headers;
    int status;
    std::string body, content_range;
  };
  for (auto& [method, headers, status, body, range] : std::vector<row>{
         {"GET", "", 200, content, ""},
         {"GET", "Range: bytes=2-4\r\n", 206, "234", "bytes 2-4/10"},
         {"GET", "Range: bytes=7-\r\n", 206, "789", "bytes 7-9/10"},
         {"GET", "Range: bytes=-2\r\n", 206, "89", "bytes 8-9/10"},
         {"GET", "Range: bytes=-20\r\n", 206, content, "bytes 0-9/10"},
         {"GET", "Range: bytes=5-100\r\n", 206, "56789", "bytes 5-9/10"},
         {"GET", "Range: bytes=10-\r\n", 416, "-", "bytes */10"},
         {"GET", "Range: bytes=-0\r\n", 416, "-", "bytes */10"},
         {"GET", "Range: bytes=4-2\r\n", 200, content, ""},
         {"GET", "Range: bytes=0-1,3-4\r\n", 200, content, ""},
         {"GET", "Range: lines=1-2\r\n", 200, content, ""},
         {"GET", "Range: bytes=99999999999999999999-\r\n", 200, content, ""},
         {"GET", "If-None-Match: " + etag + "\r\n", 304, "", ""},
         {"GET", "If-None-Match: W/" + etag + "\r\n", 304, "", ""},
         {"GET", "If-None-Match: \"other\", " + etag + "\r\n", 304, "", ""},
         {"GET", "If-None-Match: *\r\n", 304, "", ""},
         {"GET", "If-None-Match: \"other\"\r\n", 200, content, ""},
         {"GET", "If-Match: " + etag + "\r\n", 200, content, ""},
         {"GET", "If-Match: W/" + etag + "\r\n", 412, "-", ""},
         {"GET", "If-Match: \"other\"\r\n", 412, "-", ""},
         {"GET", "If-Range: " + etag + "\r\nRange: bytes=0-0\r\n", 206, "0", "bytes 0-0/10"},
         {"GET", "If-Range: \"other\"\r\nRange: bytes=0-0\r\n", 200, content, ""},
         {"HEAD", "", 200, "", ""},
         {"HEAD", "If-None-Match: " + etag + "\r\n", 304, "", ""}}) {
    auto answer = call(method, path("/files/workspace/a.txt"), "", headers);
    EXPECT_EQ(answer.status, status) << headers;
    if (body != "-") {
      EXPECT_EQ(answer.body, body) << headers;
    }
    EXPECT_EQ(answer.header("content-range"), range) << headers;
    if (status < 400) {
      EXPECT_EQ(answer.header("etag"), etag) << headers;
    }
  }
  EXPECT_EQ(call("HEAD", path("/files/workspace/a.txt")).header("content-length"), "10");
}

TEST_F(files, a_large_file_streams_and_ranges_of_it_too) {
  std::string content(20 << 20, 'x');
  for (std::size_t i = 0; i < content.size(); i += 1000)
    content[i] = static_cast<char>(i >> 8);
  files_["/workspace/big"] = content;
  auto whole = call("GET", path("/files/workspace/big"));
  EXPECT_TRUE(whole.whole);
  EXPECT_TRUE(whole.body == content);
  EXPECT_EQ(whole.header("etag"), "");
  auto part = call("GET", path("/files/workspace/big"), "", "Range: bytes=1000000-9000000\r\n");
  EXPECT_EQ(part.status, 206);
  EXPECT_TRUE(part.body == content.substr(1000000, 8000001));
  auto head = call("HEAD", path("/files/workspace/big"));
  EXPECT_EQ(head.header("etag"), tag(content));
  auto again = call("GET", path("/files/workspace/big"), "", "If-Range: " + tag(content) + "\r\nRange: bytes=5-5\r\n");
  EXPECT_EQ(again.status, 206);
}

TEST_F(files, a_file_that_changes_while_it_is_sent_is_never_taken_for_whole) {
  files_["/workspace/big"] = std::string(1 << 20, 'x');
  front_.play("file.read", [](script use) {
    use->accept();
    use->output_with_credit(std::string(1 << 20, 'y'));
    agent::file_read_result out;
    out.size = out.length = 1 << 20;
    out.sha256 = "other";
    use->finish(protocols::json::to_value(out));
  });
  raw_client client{port()};
  client.send(request_text("GET", path("/files/workspace/big"), key_));
  client.read_response();
  EXPECT_TRUE(client.closed_within(std::chrono::seconds{5}));
}

TEST_F(files, names_are_any_bytes_but_nul) {
  files_[std::string{"/workspace/\xff \xC3\xA4%"}] = "raw";
  EXPECT_EQ(call("GET", path("/files/workspace/%FF%20%C3%A4%25")).body, "raw");
  for (auto bad : {"/files/workspace/a%00b", "/files/workspace/a%0", "/files/workspace/a%zz"}) {
    auto answer = call("GET", path(bad));
    EXPECT_EQ(answer.status, 400) << bad;
    EXPECT_EQ(code(answer), "file.invalid_path") << bad;
  }
  front_.play("file.stat", [](script use) { use->fail("file.outside_roots", "/etc lies outside the roots"); });
  EXPECT_EQ(call("GET", path("/files/workspace/../../etc/passwd")).status, 403);
}

TEST_F(files, upload_is_verified) {
  front_.play("file.write", [this](script use) {
    use->accept();
    ASSERT_TRUE(use->channel->wait_input_ended(use->out_stream()));
    auto asked = arguments_of<agent::file_write>(use);
    auto content = use->channel->input(use->out_stream());
    auto hash = runtime::http::sha256_hex(content);
    if (asked.size && *asked.size != content.size())
      return use->fail("file.changed", "the size is not what was told");
    if (asked.sha256 && *asked.sha256 != hash)
      return use->fail("operation.invalid", "the content's hash is not what was told");
    agent::file_write_result out;
    out.size = content.size();
    out.sha256 = hash;
    out.created = !files_.contains(asked.path.bytes);
    files_[asked.path.bytes] = content;
    use->finish(protocols::json::to_value(out));
  });
  std::string binary = "Content-Type: application/octet-stream\r\n";
  auto made = call("PUT", path("/files/workspace/a"), "hello", binary);
  EXPECT_EQ(made.status, 201) << made.body;
  EXPECT_EQ(made.header("etag"), tag("hello"));
  EXPECT_EQ(call("PUT", path("/files/workspace/a"), "hello", binary).status, 200);
  EXPECT_EQ(call("PUT", path("/files/workspace/a"), "hello", binary + "Content-SHA256: " + runtime::http::sha256_hex("hello") + "\r\n").status, 200);
  EXPECT_EQ(call("PUT", path("/files/workspace/a"), "hello", binary + "Digest: SHA-256=LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=\r\n").status, 200);
  EXPECT_EQ(call("PUT", path("/files/workspace/a"), "other", binary + "Content-SHA256: " + runtime::http::sha256_hex("hello") + "\r\n").status, 400);
  EXPECT_EQ(call("PUT", path("/files/workspace/a"), "x", binary + "Content-SHA256: nonsense\r\n").status, 400);
  EXPECT_EQ(call("PUT", path("/files/workspace/a"), "x", binary + "If-Match: nonsense\r\n").status, 400);
  EXPECT_EQ(call("PUT", path("/files/workspace/empty")).status, 201);
  EXPECT_EQ(files_["/workspace/empty"], "");
  raw_client client{port()};
  client.send("PUT " + path("/files/workspace/chunks") + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key_ +
              "\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  client.send("2\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 201);
  EXPECT_EQ(files_["/workspace/chunks"], "abcde");
}

TEST_F(files, large_write_streams) {
  std::string content(12'345'678, 'q');
  front_.play("file.write", [&](script use) {
    use->accept();
    ASSERT_TRUE(use->channel->wait_input_ended(use->out_stream()));
    agent::file_write_result out;
    out.size = use->channel->input(use->out_stream()).size();
    out.sha256 = runtime::http::sha256_hex(use->channel->input(use->out_stream()));
    use->finish(protocols::json::to_value(out));
  });
  auto answer = call("PUT", path("/files/workspace/big"), content, "Content-Type: application/octet-stream\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("etag"), tag(content));
}

TEST_F(files, conditions_of_a_write_reach_the_agent) {
  std::vector<std::optional<std::string>> seen;
  front_.play("file.write", [&](script use) {
    seen.push_back(arguments_of<agent::file_write>(use).if_match);
    use->fail("file.changed", "the file has other content");
  });
  std::string hash(64, 'a');
  raw_client client{port()};
  std::string binary = "Content-Type: application/octet-stream\r\n";
  auto put = [&](const std::string& headers) {
    return client.exchange(request_text("PUT", path("/files/workspace/a"), key_, "body", binary + headers)).status;
  };
  EXPECT_EQ(put("If-Match: \"" + hash + "\"\r\n"), 412);
  EXPECT_EQ(put("If-None-Match: *\r\n"), 412);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0], hash);
  EXPECT_EQ(seen[1], "");
  EXPECT_EQ(client.exchange(request_text("GET", "/healthz", "")).status, 200);
}

TEST_F(files, a_body_that_breaks_off_writes_nothing) {
  raw_client client{port()};
  client.send("PUT " + path("/files/workspace/a") + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key_ +
              "\r\nIdempotency-Key: half\r\nContent-Length: 100\r\n\r\nonly this");
  auto use = front_.next();
  use->accept();
  client.close();
  EXPECT_TRUE(front_.wait_cancelled("half"));
  EXPECT_FALSE(use->channel->input_ended(use->out_stream()));
  use->fail("operation.canceled", "cancelled");
}

TEST_F(files, lists_and_searches_answer_items_or_lines) {
  auto listing = [](script use) {
    use->accept();
    agent::file_entry entry;
    entry.name.bytes = "a\xff";
    entry.type = "file";
    entry.size = 3;
    entry.mode = 0644;
    entry.modified_at = 1'700'000'000'000'000;
    use->output(protocols::json::write(entry) + "\n");
    use->finish(protocols::json::to_value(agent::list_result{1, true}));
  };
  front_.play("file.list", listing);
  front_.play("search.glob", listing);
  auto answer = call("POST", path("/fs/list"), R"({"path":"/workspace"})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  auto item = json(answer).at("items").at(0);
  EXPECT_EQ(item.at("name").at("b64").as_string(), "Yf8=");
  EXPECT_EQ(item.at("mode").as_string(), "0644");
  EXPECT_EQ(item.at("modified_at").as_string(), "2023-11-14T22:13:20.000Z");
  EXPECT_TRUE(json(answer).at("truncated").as_bool());
  EXPECT_EQ(call("POST", path("/fs/glob"), R"({"pattern":"**/*.c"})").status, 200);
  EXPECT_EQ(call("POST", path("/fs/glob"), R"({"pattern":""})").status, 400);
  auto lines = call("POST", path("/fs/list"), R"({"path":"/workspace"})", "Accept: application/x-ndjson\r\n");
  EXPECT_EQ(lines.header("content-type"), "application/x-ndjson");
  EXPECT_EQ(std::count(lines.body.begin(), lines.body.end(), '\n'), 2);
  front_.play("search.grep", [](script use) {
    use->accept();
    agent::grep_record record;
    record.path.bytes = "a.c";
    record.type = "match";
    record.line = 7;
    record.text = "int main";
    use->output(protocols::json::write(record) + "\n");
    use->finish(protocols::json::to_value(agent::grep_result{1, 10, 1, false}));
  });
  auto grep = json(call("POST", path("/fs/grep"), R"({"pattern":"main"})"));
  EXPECT_EQ(grep.at("items").at(0).at("line").to_number<int>(), 7);
  EXPECT_EQ(grep.at("files_searched").to_number<int>(), 10);
}

TEST_F(files, edits_and_moves_and_directories) {
  auto stat = [](script use) {
    agent::file_stat_result out;
    out.path.bytes = "/workspace/d";
    out.entry.name.bytes = "d";
    out.entry.type = "directory";
    use->finish(protocols::json::to_value(out));
  };
  front_.play("file.mkdir", stat);
  front_.play("file.move", stat);
  front_.play("file.edit", [](script use) {
    auto asked = arguments_of<agent::file_edit>(use);
    EXPECT_EQ(asked.edits.at(0).old_text, "a");
    use->finish(protocols::json::to_value(agent::file_edit_result{2, 10, std::string(64, 'b')}));
  });
  front_.play("file.remove", [](script use) { use->finish(protocols::json::object{}); });
  EXPECT_EQ(call("POST", path("/fs/mkdir"), R"({"path":"/workspace/d"})").status, 200);
  EXPECT_EQ(call("POST", path("/fs/move"), R"({"from":"/workspace/c","to":"/workspace/d"})").status, 200);
  EXPECT_EQ(call("POST", path("/fs/move"), R"({"from":"/workspace/c"})").status, 400);
  auto edit = call("POST", path("/fs/edit"), R"({"path":"/workspace/f","edits":[{"old_text":"a","new_text":"b","all":true}]})");
  EXPECT_EQ(json(edit).at("replacements").to_number<int>(), 2) << edit.body;
  EXPECT_EQ(call("POST", path("/fs/edit"), R"({"path":"/workspace/f","edits":[]})").status, 400);
  EXPECT_EQ(call("DELETE", path("/files/workspace/d?recursive=true")).status, 204);
  EXPECT_EQ(call("DELETE", path("/files/workspace/d?recursive=perhaps")).status, 400);
}

TEST_F(files, a_watch_follows_until_its_client_leaves) {
  raw_client client{port()};
  client.send(request_text("GET", path("/fs/watch?path=/workspace"), key_));
  auto use = front_.next();
  use->accept();
  agent::watch_event event;
  event.event = "created";
  event.path.bytes = "new.txt";
  use->output(protocols::json::write(event) + "\n");
  EXPECT_NE(client.read_until("event: created"), "");
  client.close();
  EXPECT_TRUE(front_.wait_cancelled(use->request->op_id));
  use->fail("operation.canceled", "cancelled");
}

} // namespace
} // namespace holt::tests::http
