#include "runtime/process/serve.hpp"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "actors/node.hpp"
#include "protocols/json.hpp"
#include "runtime/http/server.hpp"
#include "runtime/process/data_dir.hpp"
#include "runtime/process/first_key.hpp"
#include "runtime/process/log.hpp"
#include "runtime/process/sandboxes.hpp"
#include "runtime/process/settings.hpp"
#include "runtime/process/watchdog.hpp"
#include "runtime/transport/socket_channel.hpp"
#include "storage/sqlite_store.hpp"

namespace holt::runtime::process {

namespace {

using std::chrono::milliseconds;

int refuse(const std::string& why, int status) {
  std::fprintf(stderr, "holt serve: %s\n", why.c_str());
  return status;
}

struct listen_address {
  std::string host;
  std::uint16_t port = 0;
};

tl::expected<listen_address, std::string> parse_listen(const std::string& text) {
  auto colon = text.rfind(':');
  listen_address result;
  auto digits = colon == std::string::npos ? std::string_view{} : std::string_view{text}.substr(colon + 1);
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), result.port);
  if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size())
    return tl::unexpected("--listen must be ADDRESS:PORT, as 127.0.0.1:7117, and is '" + text + "'");
  result.host = text.substr(0, colon);
  if (result.host.size() > 2 && result.host.front() == '[' && result.host.back() == ']')
    result.host = result.host.substr(1, result.host.size() - 2);
  return result;
}

http::server_settings edge_settings(const settings& from, const listen_address& listen) {
  http::server_settings to;
  to.address = listen.host;
  to.port = listen.port;
  to.max_connections = static_cast<std::uint32_t>(from.max_connections);
  to.max_header_bytes = from.max_header_bytes;
  to.max_body_bytes = from.max_body_bytes;
  to.max_file_bytes = from.max_file_bytes;
  to.max_json_depth = from.max_json_depth;
  to.header_timeout = milliseconds{from.header_timeout_ms};
  to.idle_timeout = milliseconds{from.idle_timeout_ms};
  to.allowed_hosts = from.allowed_hosts;
  to.trusted_origins = from.trusted_origins;
  to.api_per_second = from.api_per_second;
  to.version = HOLT_VERSION;
  to.roles = from.roles;
  return to;
}

actors::node_settings actor_settings(const settings& from, const std::string& issuer, const data_dir& data) {
  actors::node_settings to;
  to.threads = from.threads;
  to.max_concurrent_commands = from.max_concurrent_commands;
  to.max_waiting = from.max_waiting;
  to.lease_wait = milliseconds{from.lease_wait_ms};
  to.suspend_after = milliseconds{from.suspend_after_ms};
  to.destroy_after = milliseconds{from.destroy_after_ms};
  to.passivate_after = milliseconds{from.passivate_after_ms};
  to.create_timeout = milliseconds{from.create_timeout_ms};
  to.cloud_provider = from.sandbox_provider;
  to.issuer = issuer;
  to.host_id = data.host_id;
  to.boot_id = boot_id();
  return to;
}

/// What a newcomer needs to paste. The key itself only on a terminal: output is often kept in a log.
void say_hello(const std::string& url, const std::string& key_file, bool made_now) {
  std::printf("holt serves on %s\n", url.c_str());
  if (made_now) {
    std::printf("The first key is in %s (only you can read it).\n", key_file.c_str());
    if (::isatty(STDOUT_FILENO)) {
      if (auto file = std::fopen(key_file.c_str(), "r")) {
        char key[256] = {};
        if (std::fgets(key, sizeof key, file))
          std::printf("It is %s", key);
        std::fclose(file);
      }
    }
  }
  std::printf("\nIn another terminal:\n"
              "  holt login --url %s --key-file %s\n"
              "  holt env create first\n"
              "  holt exec first -- echo hello\n",
              url.c_str(), key_file.c_str());
  std::fflush(stdout);
}

/// The threads that run connections and wires.
class io_threads {
public:
  explicit io_threads(std::uint32_t count) : work_(context_.get_executor()) {
    for (std::uint32_t i = 0; i < count; ++i)
      threads_.emplace_back([this] { context_.run(); });
  }
  ~io_threads() {
    stop();
  }
  boost::asio::io_context& context() {
    return context_;
  }
  void stop() {
    work_.reset();
    context_.stop();
    for (auto& thread : threads_)
      if (thread.joinable())
        thread.join();
  }

private:
  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::vector<std::thread> threads_;
};

/// Blocks until the first SIGINT or SIGTERM; from then on a second one ends the process at once (spec 100).
class stop_signal {
public:
  stop_signal() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  int wait() {
    int signal = 0;
    sigwait(&set_, &signal);
    std::thread{[set = set_] {
      int again = 0;
      sigwait(&set, &again);
      ::_exit(128 + again);
    }}.detach();
    return signal;
  }

private:
  sigset_t set_;
};

} // namespace

int serve(std::span<const std::string> args) {
  if (args.size() == 1 && args[0] == "--print-config-page") {
    std::fputs(settings_page().c_str(), stdout);
    return 0;
  }
  auto parsed = parse_settings(args);
  if (!parsed) {
    if (parsed.error().status != 0)
      return refuse(parsed.error().text, parsed.error().status);
    std::fputs(parsed.error().text.c_str(), stdout);
    return 0;
  }
  auto& settings = *parsed;
  auto listen = parse_listen(settings.listen);
  if (!listen)
    return refuse(listen.error(), 64);

  ::umask(0077);
  std::signal(SIGPIPE, SIG_IGN);
  stop_signal signals; // before any thread, so that all inherit the mask
  start_log(settings.log_level, settings.log_format);

  auto data = open_data_dir(settings.data_dir);
  if (!data)
    return refuse(data.error(), 69);
  auto store = storage::open_sqlite_store(data->path + "/holt.db");
  if (!store)
    return refuse(store.error().detail, 69);
  auto key_file = data->path + "/first-key";
  auto made_key = ensure_first_key(**store, key_file);
  if (!made_key)
    return refuse(made_key.error(), 69);
  auto sandboxes = open_sandboxes(settings, data->path);
  if (!sandboxes)
    return refuse(sandboxes.error(), 69);
  auto report = (*sandboxes)->report();
  for (auto& lacking : report.missing)
    log_event("warn", "isolation.missing", protocols::json::write_text(protocols::json::object{{"what", lacking}}));

  auto threads = settings.threads ? settings.threads : std::max(1u, std::thread::hardware_concurrency());
  io_threads io{threads};
  auto open_channel = [&io](int socket, actors::channel_events events) {
    return transport::open_socket_channel(io.context().get_executor(), socket, std::move(events));
  };
  auto issuer = "http://" + settings.listen;
  auto node = actors::start_node(
      actor_settings(settings, issuer, *data),
      {.store = *store, .providers = {{settings.sandbox_provider, *sandboxes}}, .open_channel = open_channel, .log = log_event});
  http::http_server edge{io.context(), edge_settings(settings, *listen), {.store = *store, .front = &node->edge(), .log = log_event, .now = {}}};
  auto stop_node = [&](milliseconds grace, watchdog& dog) {
    node->stop(grace, [&dog](const char* stage) { dog.stage(stage); });
  };
  if (auto started = edge.start(); !started) {
    watchdog dog{milliseconds{10'000}};
    stop_node(milliseconds{0}, dog);
    (*store)->close();
    return refuse(started.error(), 69);
  }
  say_hello(edge.url(), key_file, *made_key);
  log_event("info", "serving", protocols::json::write_text(protocols::json::object{{"url", edge.url()}, {"version", HOLT_VERSION}}));

  auto signal = signals.wait();
  log_event("info", "stopping", protocols::json::write_text(protocols::json::object{{"signal", signal}}));
  milliseconds grace{settings.shutdown_grace_ms};
  watchdog dog{grace + milliseconds{10'000}};
  dog.stage("stop accepting");
  edge.stop_accepting();
  dog.stage("finish running calls");
  edge.drain(grace / 2);
  stop_node(grace / 2, dog);
  dog.stage("answer what the actors failed");
  edge.drain(milliseconds{500});
  dog.stage("close connections");
  edge.close();
  dog.stage("io threads");
  io.stop();
  dog.stage("storage");
  node.reset();
  (*store)->close();
  dog.stage("done");
  log_event("info", "stopped");
  return 0;
}

} // namespace holt::runtime::process
