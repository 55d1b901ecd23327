#include "tests/runtime/http/support/raw_client.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

namespace holt::tests::http {

raw_client::raw_client(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error("the server does not listen");
}

raw_client::~raw_client() {
  close();
}

bool raw_client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    auto sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0)
      return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool raw_client::fill(std::chrono::milliseconds time) {
  pollfd wait{socket_, POLLIN, 0};
  if (::poll(&wait, 1, static_cast<int>(time.count())) <= 0)
    return false;
  char bytes[65536];
  auto got = ::recv(socket_, bytes, sizeof bytes, 0);
  if (got <= 0)
    return false;
  buffer_.append(bytes, static_cast<std::size_t>(got));
  return true;
}

std::string raw_client::read_line() {
  while (true) {
    auto end = buffer_.find("\r\n");
    if (end != std::string::npos) {
      auto line = buffer_.substr(0, end);
      buffer_.erase(0, end + 2);
      return line;
    }
    if (!fill())
      throw std::runtime_error("closed");
  }
}

namespace {

void add_field(std::map<std::string, std::string>& into, const std::string& line) {
  auto colon = line.find(':');
  auto name = line.substr(0, colon);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  auto value = colon == std::string::npos ? "" : line.substr(std::min(line.size(), colon + 2));
  into[name] = value;
}

} // namespace

response raw_client::read_head() {
  response out;
  try {
    auto line = read_line();
    out.status = line.size() > 12 ? std::atoi(line.c_str() + 9) : 0;
    for (line = read_line(); !line.empty(); line = read_line())
      add_field(out.headers, line);
  } catch (const std::runtime_error&) {
    out.status = 0;
  }
  return out;
}

response raw_client::read_response(bool head) {
  auto out = read_head();
  if (out.status == 0 || head || out.status == 204 || out.status == 304 || out.status == 100) {
    out.whole = out.status != 0;
    return out;
  }
  try {
    if (out.header("transfer-encoding") == "chunked") {
      while (true) {
        auto size = std::stoul(read_line(), nullptr, 16);
        if (size == 0)
          break;
        auto chunk = read_exactly(size + 2);
        if (chunk.size() != size + 2)
          return out;
        out.body.append(chunk, 0, size);
      }
      for (auto line = read_line(); !line.empty(); line = read_line())
        add_field(out.trailers, line);
      out.whole = true;
    } else if (out.headers.contains("content-length")) {
      auto size = std::stoul(out.header("content-length"));
      out.body = read_exactly(size);
      out.whole = out.body.size() == size;
    } else {
      while (fill())
        ;
      out.body = std::move(buffer_);
      buffer_.clear();
      out.whole = true;
    }
  } catch (const std::exception&) {
    out.whole = false;
  }
  return out;
}

std::string raw_client::read_until(std::string_view until) {
  while (true) {
    auto found = buffer_.find(until);
    if (found != std::string::npos) {
      auto out = buffer_.substr(0, found + until.size());
      buffer_.erase(0, found + until.size());
      return out;
    }
    if (!fill())
      return {};
  }
}

std::string raw_client::read_exactly(std::size_t size) {
  while (buffer_.size() < size && fill())
    ;
  auto out = buffer_.substr(0, size);
  buffer_.erase(0, std::min(size, buffer_.size()));
  return out;
}

bool raw_client::closed_within(std::chrono::milliseconds time) {
  auto until = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < until) {
    pollfd wait{socket_, POLLIN, 0};
    if (::poll(&wait, 1, 20) <= 0)
      continue;
    char bytes[4096];
    auto got = ::recv(socket_, bytes, sizeof bytes, 0);
    if (got <= 0)
      return true;
    buffer_.append(bytes, static_cast<std::size_t>(got));
  }
  return false;
}

void raw_client::close_sending() {
  ::shutdown(socket_, SHUT_WR);
}

void raw_client::close() {
  if (socket_ >= 0)
    ::close(socket_);
  socket_ = -1;
}

std::size_t raw_client::drop_available() {
  std::size_t dropped = buffer_.size();
  buffer_.clear();
  char bytes[65536];
  while (true) {
    auto got = ::recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got <= 0)
      return dropped;
    dropped += static_cast<std::size_t>(got);
  }
}

std::string request_text(std::string_view method, std::string_view target, std::string_view key, std::string_view body,
                         std::string_view headers) {
  std::string out;
  out.append(method).append(" ").append(target).append(" HTTP/1.1\r\nHost: localhost\r\n");
  if (!key.empty())
    out.append("Authorization: Bearer ").append(key).append("\r\n");
  if (!body.empty()) {
    out.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n");
    if (headers.find("Content-Type") == std::string_view::npos)
      out.append("Content-Type: application/json\r\n");
  }
  out.append(headers).append("\r\n").append(body);
  return out;
}

} // namespace holt::tests::http
