#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/cli/failure.hpp"

/// Which server the client talks to, and with which key (spec 94: keys are never on a command line or in a URL).
namespace holt::runtime::cli {

/// `http://host[:port]` or `https://host[:port]`, taken apart.
struct server_address {
  bool tls = false;
  std::string host; // without the brackets of an IPv6 address
  std::uint16_t port = 0;

  /// As it is written back to a person and to the login file.
  std::string text() const;
  /// The Host header: brackets, and the port unless it is the scheme's own.
  std::string host_header() const;
  bool loopback() const;

  friend bool operator==(const server_address&, const server_address&) = default;
};

/// Refused: another scheme, user info, a path, a query.
result<server_address> parse_server_address(std::string_view url);

/// What the command line said.
struct server_options {
  std::optional<std::string> url;
  std::optional<std::string> key_file;
};

struct server_access {
  server_address address;
  std::string key;
};

/// Flag, then HOLT_URL and HOLT_KEY (the key itself), then the login file. The login file's key goes to the login
/// file's server only.
result<server_access> find_access(const server_options& options);

/// The key in a file: its first line, without white space around it.
result<std::string> read_key_file(const std::string& path);
result<void> check_key(std::string_view key);

/// $XDG_CONFIG_HOME/holt/client.json, else ~/.config/holt/client.json.
result<std::string> login_file_path();
/// Replaces the login file in one step; mode 0600, its folders 0700 where they are made.
result<void> write_login_file(const std::string& path, const server_access& access);
/// nullopt: there is none. Refused when others may read it.
result<std::optional<server_access>> read_login_file(const std::string& path);

} // namespace holt::runtime::cli
