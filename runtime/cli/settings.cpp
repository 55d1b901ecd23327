#include "runtime/cli/settings.hpp"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json/object.hpp>

#include "protocols/json.hpp"
#include "runtime/cli/local_file.hpp"

namespace holt::runtime::cli {

namespace {

namespace json = protocols::json;
constexpr std::size_t longest_file = 64 * 1024;

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value)
    return std::nullopt;
  return value;
}

} // namespace

std::string server_address::host_header() const {
  auto name = host.find(':') == std::string::npos ? host : '[' + host + ']';
  return port == (tls ? 443 : 80) ? name : name + ':' + std::to_string(port);
}

std::string server_address::text() const {
  return (tls ? "https://" : "http://") + host_header();
}

bool server_address::loopback() const {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

result<server_address> parse_server_address(std::string_view url) {
  auto wrong = [&](std::string_view why) {
    return fail(exit_usage, "the server's URL " + std::string(why)
                                + "; it must be like http://127.0.0.1:7117 or https://holt.example");
  };
  server_address address;
  if (url.starts_with("https://")) {
    address.tls = true;
    url.remove_prefix(8);
  } else if (url.starts_with("http://")) {
    url.remove_prefix(7);
  } else {
    return wrong("begins with neither http:// nor https://");
  }
  while (url.ends_with('/'))
    url.remove_suffix(1);
  if (url.find('@') != std::string_view::npos)
    return wrong("holds a user or a password, which belong in --key-file or HOLT_KEY");
  if (url.find_first_of("/?# \t\r\n") != std::string_view::npos)
    return wrong("holds more than a host and a port");

  std::string_view port;
  if (url.starts_with('[')) {
    auto end = url.find(']');
    if (end == std::string_view::npos)
      return wrong("has a bracket that isn't closed");
    address.host = url.substr(1, end - 1);
    auto rest = url.substr(end + 1);
    if (!rest.empty() && rest.front() != ':')
      return wrong("has something between host and port");
    port = rest.empty() ? rest : rest.substr(1);
  } else {
    auto colon = url.find(':');
    address.host = url.substr(0, colon);
    if (colon != std::string_view::npos)
      port = url.substr(colon + 1);
  }
  if (address.host.empty())
    return wrong("has no host");
  address.port = address.tls ? 443 : 80;
  if (!port.empty()) {
    auto [end, ec] = std::from_chars(port.data(), port.data() + port.size(), address.port);
    if (ec != std::errc{} || end != port.data() + port.size() || address.port == 0)
      return wrong("has a port that is no number from 1 to 65535");
  }
  return address;
}

result<void> check_key(std::string_view key) {
  if (key.empty())
    return fail(exit_usage, "the key is empty; a key is the one line that the server wrote when it was made");
  for (unsigned char c : key)
    if (c <= ' ' || c >= 127) // it becomes a header's value
      return fail(exit_usage, "the key holds a character that no key has; it is one word of letters and digits");
  return {};
}

result<std::string> read_key_file(const std::string& path) {
  auto text = read_small_file(path, longest_file);
  if (!text)
    return fail(exit_usage, "cannot read the key file " + path + " (" + text.error().message() + ")");
  std::string_view key = *text;
  constexpr auto blank = " \t\r\n";
  auto start = key.find_first_not_of(blank);
  key = start == std::string_view::npos ? std::string_view{} : key.substr(start);
  key = key.substr(0, key.find_first_of("\r\n"));
  if (auto last = key.find_last_not_of(blank); last != std::string_view::npos)
    key = key.substr(0, last + 1);
  if (auto ok = check_key(key); !ok)
    return fail(ok.error().code, "in " + path + ": " + ok.error().message);
  return std::string(key);
}

result<std::string> login_file_path() {
  if (auto config = environment("XDG_CONFIG_HOME"); config && config->starts_with('/'))
    return *config + "/holt/client.json";
  if (auto home = environment("HOME"))
    return *home + "/.config/holt/client.json";
  if (const passwd* entry = ::getpwuid(::getuid()); entry && entry->pw_dir)
    return std::string(entry->pw_dir) + "/.config/holt/client.json";
  return fail(exit_usage, "there is no home directory to keep the login in; set HOME, or use HOLT_URL and HOLT_KEY");
}

result<void> write_login_file(const std::string& path, const server_access& access) {
  std::error_code ec;
  auto folder = std::filesystem::path(path).parent_path();
  auto mask = ::umask(0077);
  std::filesystem::create_directories(folder, ec);
  ::umask(mask);
  if (!ec)
    ec = replace_small_file(
        path, json::write_text(json::object{{"url", access.address.text()}, {"key", access.key}}) + '\n', 0600);
  if (ec)
    return fail(exit_refused, "cannot write " + path + " (" + ec.message() + ")");
  return {};
}

result<std::optional<server_access>> read_login_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR)
      return std::nullopt;
    return fail(exit_refused, "cannot read " + path + " (" + std::strerror(errno) + ")");
  }
  if ((status.st_mode & 077) != 0)
    return fail(exit_refused, path + " can be read by others; run: chmod 600 " + path);
  auto text = read_small_file(path, longest_file);
  if (!text)
    return fail(exit_refused, "cannot read " + path + " (" + text.error().message() + ")");
  auto broken = [&] { return fail(exit_usage, path + " is damaged; run holt login again"); };
  auto value = json::parse_text(*text);
  if (!value || !value->is_object())
    return broken();
  auto* url = value->as_object().if_contains("url");
  auto* key = value->as_object().if_contains("key");
  if (!url || !url->is_string() || !key || !key->is_string())
    return broken();
  auto address = parse_server_address(url->as_string());
  if (!address || !check_key(key->as_string()))
    return broken();
  return server_access{*address, std::string(key->as_string())};
}

result<server_access> find_access(const server_options& options) {
  auto url = options.url ? options.url : environment("HOLT_URL");
  std::optional<server_access> login;
  std::optional<server_address> address;
  std::optional<std::string> key;
  if (url) {
    auto parsed = parse_server_address(*url);
    if (!parsed)
      return tl::unexpected(parsed.error());
    address = *parsed;
  }
  if (options.key_file) {
    auto read = read_key_file(*options.key_file);
    if (!read)
      return tl::unexpected(read.error());
    key = *read;
  } else if (auto given = environment("HOLT_KEY")) {
    if (auto ok = check_key(*given); !ok)
      return fail(ok.error().code, "in HOLT_KEY: " + ok.error().message);
    key = *given;
  }
  if (!address || !key) {
    auto path = login_file_path();
    if (!path)
      return tl::unexpected(path.error());
    auto read = read_login_file(*path);
    if (!read)
      return tl::unexpected(read.error());
    login = *read;
  }
  if (!address) {
    if (!login)
      return fail(exit_usage,
                  "no server is named; run holt login, or set --url and --key-file (or HOLT_URL and HOLT_KEY)");
    address = login->address;
  }
  if (!key) {
    if (!login || login->address != *address)
      return fail(exit_usage,
                  "there is no key for " + address->text() + "; run holt login, or set --key-file or HOLT_KEY");
    key = login->key;
  }
  return server_access{*address, *key};
}

} // namespace holt::runtime::cli
