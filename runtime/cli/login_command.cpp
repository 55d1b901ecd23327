#include "runtime/cli/login_command.hpp"

#include <cstdlib>

#include <unistd.h>

#include "protocols/json.hpp"
#include "runtime/cli/api.hpp"
#include "runtime/cli/local_file.hpp"
#include "runtime/cli/terminal.hpp"

namespace holt::runtime::cli {

namespace json = protocols::json;

namespace {
constexpr auto usual_server = "http://127.0.0.1:7117";

result<std::string> server_url(const server_options& options) {
  if (options.url)
    return *options.url;
  if (const char* url = std::getenv("HOLT_URL"); url && *url)
    return std::string(url);
  if (!::isatty(0))
    return fail(exit_usage, "there is no terminal to ask on; give --url (or HOLT_URL)");
  auto line = ask_line(std::string("Server [") + usual_server + "]: ", false);
  if (line && line->empty())
    return std::string(usual_server);
  return line;
}

result<std::string> server_key(const server_options& options) {
  if (options.key_file)
    return read_key_file(*options.key_file);
  if (const char* key = std::getenv("HOLT_KEY"); key && *key)
    return std::string(key);
  if (!::isatty(0))
    return fail(exit_usage, "there is no terminal to ask on; give --key-file (or HOLT_KEY)");
  return ask_line("Key (not shown): ", true);
}
} // namespace

result<int> log_in(const server_options& options, bool as_json) {
  auto path = login_file_path();
  if (!path)
    return tl::unexpected(path.error());
  auto url = server_url(options);
  if (!url)
    return tl::unexpected(url.error());
  auto address = parse_server_address(*url);
  if (!address)
    return tl::unexpected(address.error());
  auto key = server_key(options);
  if (!key)
    return tl::unexpected(key.error());
  if (auto ok = check_key(*key); !ok)
    return tl::unexpected(ok.error());
  if (!address->tls && !address->loopback())
    (void)write_all(2, "holt: the key crosses the network unencrypted on the way to " + address->text()
                           + "; https:// would protect it\n");

  server_access access{*address, *key};
  auto tried = api(access).get("/v1/environments?limit=1");
  if (!tried)
    return tl::unexpected(tried.error());
  if (auto written = write_login_file(*path, access); !written)
    return tl::unexpected(written.error());
  if (as_json)
    (void)write_all(1, json::write_text(json::object{{"url", address->text()}, {"file", *path}}) + '\n');
  else
    (void)write_all(1, "Logged in to " + address->text() + "; kept in " + *path + "\n");
  return exit_ok;
}

} // namespace holt::runtime::cli
