#include "tests/runtime/cli/scripted_server.hpp"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstring>
#include <optional>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/sha.h>

#include "protocols/base64.hpp"

namespace holt::test {

void reply_channel::send(std::string_view bytes) {
  while (!bytes.empty() && fd_ >= 0) {
    auto n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0)
      return cut();
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

void reply_channel::answer(int status, std::string_view body, std::string_view type, std::string_view more_headers) {
  send("HTTP/1.1 " + std::to_string(status) + " Scripted\r\nContent-Type: " + std::string(type) + "\r\nContent-Length: "
       + std::to_string(body.size()) + "\r\n" + std::string(more_headers) + "\r\n" + std::string(body));
}

void reply_channel::problem(int status, const std::string& code, const std::string& detail) {
  answer(status,
         R"({"type":"about:blank","title":"t","status":)" + std::to_string(status) + R"(,"code":")" + code
             + R"(","detail":")" + detail + "\"}",
         "application/problem+json");
}

void reply_channel::begin_events() {
  send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
}

void reply_channel::event(const std::string& id, const std::string& type, const std::string& data) {
  auto text = "id: " + id + "\nevent: " + type + "\ndata: " + data + "\n\n";
  char size[32];
  std::snprintf(size, sizeof size, "%zx\r\n", text.size());
  send(size + text + "\r\n");
}

void reply_channel::end_events() {
  send("0\r\n\r\n");
}

void reply_channel::upgrade(const seen_request& request) {
  auto text = request.headers.at("sec-websocket-key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  unsigned char digest[SHA_DIGEST_LENGTH];
  SHA1(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
       + protocols::base64_encode({reinterpret_cast<char*>(digest), sizeof digest}) + "\r\n\r\n");
}

void reply_channel::message(bool text, std::string_view bytes) {
  std::string frame{static_cast<char>(0x80 | (text ? 1 : 2))};
  if (bytes.size() < 126) {
    frame += static_cast<char>(bytes.size());
  } else {
    frame += static_cast<char>(126);
    frame += static_cast<char>(bytes.size() >> 8);
    frame += static_cast<char>(bytes.size() & 0xff);
  }
  send(frame + std::string(bytes));
}

bool reply_channel::next_message(bool& text, std::string& bytes) {
  auto read = [&](std::size_t size) {
    std::string part(size, '\0');
    return size == 0 || ::recv(fd_, part.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size) ? std::optional(part)
                                                                                                  : std::nullopt;
  };
  for (;;) {
    auto head = read(2);
    if (!head)
      return false;
    auto kind = (*head)[0] & 0x0f;
    std::size_t size = (*head)[1] & 0x7f;
    if (size == 126) {
      auto more = read(2);
      if (!more)
        return false;
      size = static_cast<unsigned char>((*more)[0]) * 256u + static_cast<unsigned char>((*more)[1]);
    }
    auto mask = read(4);
    auto body = mask ? read(size) : std::nullopt;
    if (!body || kind == 8)
      return false;
    for (std::size_t i = 0; i < size; ++i)
      (*body)[i] ^= (*mask)[i % 4];
    if (kind != 1 && kind != 2)
      continue; // ping, pong
    text = kind == 1;
    bytes = *body;
    return true;
  }
}

void reply_channel::cut() {
  if (fd_ >= 0)
    ::shutdown(fd_, SHUT_RDWR);
  fd_ = -1;
}

scripted_server::scripted_server(handler answer) : answer_(std::move(answer)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 64) != 0
      || ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    std::abort();
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_all(); });
}

scripted_server::~scripted_server() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    for (int fd : connections_)
      ::shutdown(fd, SHUT_RDWR);
  }
  changed_.notify_all();
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  for (auto& thread : threads_)
    thread.join();
  ::close(listener_);
}

std::string scripted_server::url() const {
  return "http://127.0.0.1:" + std::to_string(port_);
}

std::vector<seen_request> scripted_server::requests() {
  std::lock_guard lock(mutex_);
  return requests_;
}

std::size_t scripted_server::count(std::string_view method, std::string_view target) {
  std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::count_if(requests_.begin(), requests_.end(), [&](const seen_request& one) {
    return one.method == method && one.target.starts_with(target);
  }));
}

bool scripted_server::wait_for(std::string_view method, std::string_view target, std::size_t times) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::seconds(30), [&] {
    auto n = std::count_if(requests_.begin(), requests_.end(), [&](const seen_request& one) {
      return one.method == method && one.target.starts_with(target);
    });
    return stopping_ || static_cast<std::size_t>(n) >= times;
  });
  return !stopping_;
}

void scripted_server::accept_all() {
  for (;;) {
    int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    std::lock_guard lock(mutex_);
    if (stopping_ || fd < 0) {
      if (fd >= 0)
        ::close(fd);
      return;
    }
    connections_.push_back(fd);
    threads_.emplace_back([this, fd] { serve(fd); });
  }
}

void scripted_server::serve(int fd) {
  std::string bytes;
  char buffer[65536];
  reply_channel channel(*this, fd);
  auto more = [&] {
    auto n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n > 0)
      bytes.append(buffer, static_cast<std::size_t>(n));
    return n > 0;
  };
  while (channel.open()) {
    std::size_t end = 0;
    while ((end = bytes.find("\r\n\r\n")) == std::string::npos)
      if (!more())
        goto closed;
    {
      seen_request request;
      auto head = bytes.substr(0, end);
      bytes.erase(0, end + 4);
      auto line_end = head.find("\r\n");
      auto line = head.substr(0, line_end);
      request.method = line.substr(0, line.find(' '));
      request.target = line.substr(request.method.size() + 1, line.rfind(' ') - request.method.size() - 1);
      for (auto at = line_end; at != std::string::npos;) {
        auto next = head.find("\r\n", at + 2);
        auto field = head.substr(at + 2, next == std::string::npos ? next : next - at - 2);
        auto colon = field.find(": ");
        if (colon != std::string::npos) {
          auto name = field.substr(0, colon);
          std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
          request.headers[name] = field.substr(colon + 2);
        }
        at = next;
      }
      auto length = request.headers.contains("content-length") ? std::stoull(request.headers["content-length"]) : 0;
      while (bytes.size() < length)
        if (!more())
          goto closed;
      request.body = bytes.substr(0, length);
      bytes.erase(0, length);
      {
        std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      changed_.notify_all();
      answer_(request, channel);
    }
  }
closed:
  std::lock_guard lock(mutex_);
  std::erase(connections_, fd);
  ::close(fd);
}

} // namespace holt::test
