/// GET /healthz beside nginx that serves a static file, under wrk -t1 -c64 in turn:   http_bench [SECONDS] [ROUNDS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <csignal>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/harness.hpp"

extern char** environ;
using namespace holt::bench;

namespace {

std::uint16_t free_port() {
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0
      || ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    give_up("no free port");
  ::close(fd);
  return ntohs(address.sin_port);
}

/// nginx with the least configuration that is fair: as many workers as processors, no access log.
class nginx_server {
public:
  explicit nginx_server(const scratch_directory& scratch) : port(free_port()) {
    auto root = scratch.path();
    std::ofstream(root / "healthz") << "{\"status\":\"ok\"}";
    std::ofstream(root / "nginx.conf")
        << "daemon off; worker_processes auto; pid " << (root / "nginx.pid").string()
        << "; error_log stderr crit; events { worker_connections 1024; }\n"
           "http { access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000;\n"
           "open_file_cache max=10; client_body_temp_path "
        << root.string() << "/a; proxy_temp_path " << root.string() << "/b; fastcgi_temp_path " << root.string()
        << "/c; uwsgi_temp_path " << root.string() << "/d; scgi_temp_path " << root.string()
        << "/e;\nserver { listen 127.0.0.1:" << port << "; root " << root.string() << "; } }\n";
    std::string conf = (root / "nginx.conf").string();
    std::vector<std::string> words{"nginx", "-p", root.string(), "-c", conf};
    std::vector<char*> argv;
    for (auto& word : words)
      argv.push_back(word.data());
    argv.push_back(nullptr);
    if (::posix_spawnp(&pid_, "nginx", nullptr, nullptr, argv.data(), environ) != 0)
      give_up("cannot run nginx");
    // It listens a moment later.
    for (int tries = 0; !accepts(); ++tries) {
      if (tries > 100) {
        end();
        give_up("nginx does not listen");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  ~nginx_server() {
    end();
  }
  std::uint16_t port;

private:
  bool accepts() const {
    int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bool there = ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    ::close(fd);
    return there;
  }
  void end() {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid_ = -1;
};

double wrk(std::uint16_t port, int seconds) {
  auto command =
      "wrk -t1 -c64 -d" + std::to_string(seconds) + "s http://127.0.0.1:" + std::to_string(port) + "/healthz";
  FILE* out = ::popen(command.c_str(), "r");
  if (!out)
    give_up("cannot run wrk");
  char line[512];
  double rate = 0;
  bool bad = false;
  while (std::fgets(line, sizeof line, out)) {
    std::sscanf(line, "Requests/sec: %lf", &rate);
    bad = bad || std::string_view(line).find("Non-2xx") != std::string_view::npos
          || std::string_view(line).find("Socket errors") != std::string_view::npos;
  }
  if (::pclose(out) != 0 || rate == 0 || bad)
    give_up("wrk failed, or was refused: " + command);
  return rate;
}

} // namespace

int main(int argc, char** argv) {
  return run([&] {
    int seconds = argument(argc, argv, 1, 5);
    int rounds = argument(argc, argv, 2, 5);
    bench_server server;
    scratch_directory scratch;
    nginx_server nginx(scratch);
    wrk(nginx.port, 1);
    wrk(server.port(), 1);
    std::vector<double> theirs, ours;
    for (int round = 0; round < rounds; ++round) {
      theirs.push_back(wrk(nginx.port, seconds));
      ours.push_back(wrk(server.port(), seconds));
    }
    auto n = summarise(theirs).p50, h = summarise(ours).p50;
    std::printf("wrk -t1 -c64: nginx, static file %.0f/s;  holt, GET /healthz %.0f/s = %.2fx (at least 0.5)\n", n, h,
                h / n);
  });
}
