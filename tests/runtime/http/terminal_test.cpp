#include "protocols/json_write.hpp"
#include "tests/runtime/http/support/edge_test.hpp"

/// GET …/terminal (spec 37, 43).
namespace holt::tests::http {
namespace {

/// The client's side of a WebSocket, as RFC 6455 has it, for short messages.
class socket_client {
public:
  socket_client(std::uint16_t port, const std::string& key, const std::string& target) : client_(port) {
    client_.send(request_text("GET", target, key, "",
                              "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                              "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"));
  }
  int status() {
    auto head = client_.read_head();
    EXPECT_TRUE(head.status != 101 || head.header("sec-websocket-accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    return head.status;
  }
  void send(bool text, const std::string& payload) {
    std::string frame;
    frame += static_cast<char>(text ? 0x81 : 0x82);
    frame += static_cast<char>(0x80 | payload.size());
    frame += std::string(4, '\0'); // a mask of zeroes
    client_.send(frame + payload);
  }
  /// Opcode and payload.
  std::pair<int, std::string> read() {
    auto head = client_.read_exactly(2);
    if (head.size() < 2)
      return {-1, ""};
    std::size_t size = static_cast<unsigned char>(head[1]) & 0x7f;
    if (size == 126) {
      auto more = client_.read_exactly(2);
      size = static_cast<unsigned char>(more[0]) << 8 | static_cast<unsigned char>(more[1]);
    }
    return {head[0] & 0x0f, client_.read_exactly(size)};
  }
  void drop() {
    client_.close();
  }

private:
  raw_client client_;
};

class terminal : public edge_test {
protected:
  terminal() {
    environment_ = new_environment();
  }
  std::string path(const std::string& query = {}) const {
    return "/v1/environments/" + environment_ + "/terminal" + query;
  }
  std::string environment_;
};

TEST_F(terminal, bytes_go_both_ways_and_the_end_is_told) {
  socket_client client{port(), key_, path("?cols=100&rows=40")};
  auto use = front_.next();
  EXPECT_EQ(use->request->arguments.at("terminal").at("cols").to_number<int>(), 100);
  EXPECT_TRUE(use->request->releases_when_accepted);
  use->accept();
  ASSERT_EQ(client.status(), 101);
  auto [kind, started] = client.read();
  EXPECT_EQ(kind, 1);
  EXPECT_NE(started.find("\"started\""), std::string::npos);
  use->output("$ ");
  EXPECT_EQ(client.read(), (std::pair<int, std::string>{2, "$ "}));
  client.send(false, "ls\n");
  auto until = std::chrono::steady_clock::now() + std::chrono::seconds{10};
  while (use->channel->input(use->out_stream()) != "ls\n" && std::chrono::steady_clock::now() < until)
    std::this_thread::yield();
  EXPECT_EQ(use->channel->input(use->out_stream()), "ls\n");
  client.send(true, R"({"resize":{"cols":120,"rows":50}})");
  auto resize = front_.next();
  EXPECT_EQ(resize->request->operation, "process.resize");
  EXPECT_EQ(resize->request->arguments.at("size").at("cols").to_number<int>(), 120);
  resize->fail("process.ended", "too late");
  use->exit(0);
  auto [last_kind, last] = client.read();
  EXPECT_EQ(last_kind, 1);
  EXPECT_NE(last.find("\"exit\""), std::string::npos) << last;
  EXPECT_EQ(client.read().first, 8); // close
}

TEST_F(terminal, the_shell_goes_on_when_the_socket_drops_and_is_taken_up_again) {
  {
    socket_client client{port(), key_, path()};
    auto use = front_.next();
    use->accept();
    ASSERT_EQ(client.status(), 101);
    client.read();
    client.drop();
    EXPECT_TRUE(front_.wait_detached(use->request->op_id));
    EXPECT_TRUE(front_.cancelled().empty());
    use->exit(0);
  }
  socket_client again{port(), key_, path("?op_id=shell1&from=10")};
  auto use = front_.next();
  EXPECT_EQ(use->request->kind, actors::use_kind::attach);
  EXPECT_EQ(use->request->attach_from, 10u);
  use->accept(true);
  ASSERT_EQ(again.status(), 101);
  again.read();
  use->output("more");
  EXPECT_EQ(again.read().second, "more");
  again.send(false, "x");
  auto input = front_.next();
  EXPECT_EQ(input->request->operation, "process.stdin");
  input->accept();
  EXPECT_EQ(input->channel->input(1), "x");
  input->finish(protocols::json::object{});
  use->exit(0);
}

TEST_F(terminal, errors_before_the_upgrade_are_problems) {
  socket_client client{port(), key_, path()};
  front_.next()->fail("environment.busy", "8 commands run");
  EXPECT_EQ(client.status(), 429);
  front_.play("process.start", [](auto use) { use->accept(); });
  auto plain = call("GET", path());
  EXPECT_EQ(plain.status, 400);
  EXPECT_EQ(call("GET", path("?cols=0")).status, 400);
}

} // namespace
} // namespace holt::tests::http
