// The agent as the real program has it, with two handles for tests: its limits, and its clock ("skip MILLISECONDS" on
// standard input).

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/agent.hpp"

namespace {

class orders final : public holt::agent::loop::watcher {
public:
  explicit orders(holt::agent::loop& loop) : loop_(loop) {
    ::fcntl(0, F_SETFL, O_NONBLOCK);
    loop_.add(0, EPOLLIN, *this);
  }

private:
  void on_ready(std::uint32_t) override {
    char bytes[256];
    auto got = ::read(0, bytes, sizeof bytes);
    if (got <= 0) {
      loop_.remove(0);
      return;
    }
    text_.append(bytes, static_cast<std::size_t>(got));
    for (auto end = text_.find('\n'); end != text_.npos; end = text_.find('\n')) {
      if (text_.starts_with("skip "))
        loop_.skip_ahead(std::chrono::milliseconds{std::atoll(text_.c_str() + 5)});
      text_.erase(0, end + 1);
    }
  }

  holt::agent::loop& loop_;
  std::string text_;
};

} // namespace

int main(int argc, char** argv) {
  holt::agent::agent_options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string_view name{argv[i]};
    const char* value = argv[i + 1];
    if (name == "--listen-path") {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::strncpy(address.sun_path, value, sizeof address.sun_path - 1);
      options.listener.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (::bind(options.listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0
          || ::listen(options.listener.get(), 64) != 0)
        return 1;
    } else if (name == "--state-dir")
      options.state.reset(::open(value, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    else if (name == "--workspace")
      options.roots.workspace = value;
    else if (name == "--skills")
      options.roots.skills = value;
    else if (name == "--tmp")
      options.roots.tmp = value;
    else if (name == "--processes")
      options.processes = static_cast<std::size_t>(std::atol(value));
    else if (name == "--results")
      options.ledger.results = static_cast<std::size_t>(std::atol(value));
    else
      return 64;
  }
  holt::agent::agent agent{std::move(options)};
  if (!agent.problem().empty())
    return 69;
  orders clock{agent.events()};
  agent.run();
}
