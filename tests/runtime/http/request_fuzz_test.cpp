#include <random>

#include "protocols/ids.hpp"
#include "runtime/http/secrets.hpp"
#include "tests/runtime/http/support/edge_test.hpp"

/// Requests of many seeds, changed at random, over a socket: each gets an answer below 500 or a closed connection, and the
/// server serves on.
namespace holt::tests::http {
namespace {

class fuzz : public edge_test {
protected:
  fuzz()
      : edge_test([] {
          runtime::http::server_settings settings;
          settings.header_timeout = settings.body_timeout = settings.idle_timeout = std::chrono::milliseconds{50};
          return settings;
        }()) {
  }
};

std::string mutated(std::string text, std::mt19937& random) {
  static const std::vector<std::string> pieces{"\r\n", "\r\n\r\n", "%00", "..", "%", "{", "}", "\"", "[[[[", "\0", "\xff", ":", ",",
                                               "Content-Length: 9999999999\r\n", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n",
                                               "Expect: 100-continue\r\n", "Range: bytes=-1\r\n", "-1", "18446744073709551616",
                                               "HTTP/1.0", "Connection: close\r\n", "Upgrade: websocket\r\n"};
  auto changes = 1 + random() % 4;
  for (unsigned i = 0; i < changes && !text.empty(); ++i) {
    auto at = random() % text.size();
    switch (random() % 5) {
    case 0:
      text[at] = static_cast<char>(random());
      break;
    case 1:
      text.erase(at, 1 + random() % 8);
      break;
    case 2:
      text.insert(at, pieces[random() % pieces.size()]);
      break;
    case 3:
      text.insert(at, text.substr(at, random() % 64));
      break;
    default:
      text.resize(at + 1);
    }
  }
  return text;
}

TEST_F(fuzz, no_request_hurts_the_server) {
  front_.play("process.start", [](auto use) {
    use->accept();
    use->exit(0);
  });
  auto id = new_environment();
  auto path = "/v1/environments/" + id;
  std::vector<std::string> seeds{
    request_text("GET", "/healthz", ""),
    request_text("GET", "/v1/environments?limit=3&label=a%3Db", key_),
    request_text("POST", "/v1/environments", key_, R"({"name":"x","labels":{"a":"b"},"limits":{"cpus":1.5}})"),
    request_text("PATCH", path, key_, R"({"name":"y"})"),
    request_text("POST", path + "/exec", key_, R"({"argv":["a","b"],"env":{"A":"B"},"stdin":{"b64":"AAAA"}})"),
    request_text("POST", path + "/exec?cancel_on_disconnect=true", key_, R"({"command":"a"})", "Accept: text/event-stream\r\n"),
    request_text("POST", path + "/exec", key_, R"({"command":"a"})", "Accept: application/octet-stream\r\n"),
    "POST /v1/environments HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key_ +
      "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n2\r\n1}\r\n0\r\n\r\n"};
  for (auto operation : {"file.stat", "file.read", "file.write", "process.list", "process.get", "file.remove", "attach", "file.list"})
    front_.play(operation, [](auto use) { use->fail("file.not_found", "nothing here"); });
  seeds.push_back(request_text("GET", path + "/files/workspace/a%20b", key_, "", "Range: bytes=0-5\r\nIf-Range: \"x\"\r\n"));
  seeds.push_back(request_text("PUT", path + "/files/workspace/a", key_, "content", "If-None-Match: *\r\n"));
  seeds.push_back(request_text("GET", path + "/processes/x/events?after=3", key_, "", "Last-Event-ID: x:9\r\n"));
  seeds.push_back(request_text("POST", path + "/fs/list", key_, R"({"path":{"b64":"YQ=="}})"));
  std::mt19937 random{20261130};
  auto until = std::chrono::steady_clock::now() + std::chrono::seconds{6};
  int sent = 0;
  while (std::chrono::steady_clock::now() < until) {
    raw_client client{port()};
    auto text = mutated(seeds[random() % seeds.size()], random);
    client.send(text);
    client.close_sending();
    auto answer = client.read_response();
    EXPECT_LT(answer.status, 500) << text << "\n--\n" << answer.body;
    ++sent;
  }
  EXPECT_GT(sent, 100);
  EXPECT_EQ(call("GET", "/healthz").status, 200);
  RecordProperty("requests", sent);
}

} // namespace
} // namespace holt::tests::http
