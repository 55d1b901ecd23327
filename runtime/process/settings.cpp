#include "runtime/process/settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <sstream>

#include <CLI/CLI.hpp>

namespace holt::runtime::process {

namespace {

/// One row of the documentation.
struct key_doc {
  std::string key;
  std::string type;
  std::string standard;
  std::string bounds;
  std::string text;
};

std::string environment_name(std::string key) {
  for (auto& c : key)
    c = c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return "HOLT_" + key;
}

std::string flag_name(const std::string& key) {
  auto dashed = key;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  return dashed == key ? "--" + key : "--" + dashed + ",--" + key;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      auto above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

std::string nearest(std::string_view name, const std::vector<key_doc>& keys) {
  auto best = std::min_element(keys.begin(), keys.end(), [&](const key_doc& a, const key_doc& b) {
    return edit_distance(name, a.key) < edit_distance(name, b.key);
  });
  return best == keys.end() ? std::string{} : best->key;
}

/// TOML whose sections are the dots of our keys: `[sandbox] prepared = 2` is `sandbox.prepared = 2`.
class dotted_toml : public CLI::ConfigTOML {
public:
  explicit dotted_toml(const std::vector<key_doc>& keys) : keys_(keys) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> items;
    for (auto& item : CLI::ConfigTOML::from_config(input)) {
      if (item.name == "++" || item.name == "--")
        continue; // where a section begins and ends
      std::string name;
      for (auto& parent : item.parents)
        name += parent + ".";
      name += item.name;
      if (std::none_of(keys_.begin(), keys_.end(), [&](const key_doc& known) { return known.key == name; }))
        throw CLI::ConfigError("unknown key '" + name + "' in the configuration file; did you mean '" +
                               nearest(name, keys_) + "'?");
      if (std::getenv(environment_name(name).c_str()))
        continue; // CLI11 would let the file win
      item.parents.clear();
      item.name = name;
      items.push_back(item);
    }
    return items;
  }

private:
  const std::vector<key_doc>& keys_;
};

template <class T>
std::string as_text(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

std::string as_text(const std::vector<std::string>& values) {
  return CLI::detail::join(values, ",");
}

template <class T>
constexpr const char* type_name() {
  if constexpr (std::is_same_v<T, std::string>)
    return "text";
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    return "list of texts";
  else if constexpr (std::is_floating_point_v<T>)
    return "number";
  else
    return "whole number";
}

/// Declares every key once.
class declaration {
public:
  explicit declaration(settings& into) {
    declare(into);
    app_.name("holt serve");
    app_.description("Serves the API. Keys may stand in a TOML file, in HOLT_… variables, or as flags.");
    app_.set_config("--config", "", "a TOML file with the keys below")->envname("HOLT_CONFIG");
    app_.config_formatter(std::make_shared<dotted_toml>(keys_));
    app_.allow_config_extras(CLI::config_extras_mode::error);
  }

  CLI::App& app() {
    return app_;
  }
  const std::vector<key_doc>& keys() const {
    return keys_;
  }

private:
  template <class T>
  CLI::Option* key(const std::string& name, T& value, const std::string& text) {
    auto option = app_.add_option(flag_name(name), value, text)->envname(environment_name(name))->capture_default_str();
    if constexpr (std::is_same_v<T, std::vector<std::string>>)
      option->delimiter(',');
    keys_.push_back({name, type_name<T>(), as_text(value), "", text});
    return option;
  }

  template <class T>
  void key(const std::string& name, T& value, T low, T high, const std::string& text) {
    key(name, value, text)->check(CLI::Range(low, high));
    keys_.back().bounds = as_text(low) + " to " + as_text(high);
  }

  void key(const std::string& name, std::string& value, const std::vector<std::string>& choices, const std::string& text) {
    key(name, value, text)->check(CLI::IsMember(choices));
    keys_.back().bounds = CLI::detail::join(choices, ", ");
  }

  void declare(settings& s) {
    using u64 = std::uint64_t;
    using u32 = std::uint32_t;
    constexpr u64 day_ms = 24ull * 60 * 60 * 1000;
    constexpr u64 tib = 1ull << 40;
    key("listen", s.listen, "address and port to serve on; port 0 takes a free one");
    key("data_dir", s.data_dir, "where holt keeps everything; default /var/lib/holt as root, else ~/.local/share/holt");
    key("roles", s.roles, "what this process does: api, gateway, worker or all")
        ->check(CLI::IsMember({"api", "gateway", "worker", "all"}));
    keys_.back().bounds = "api, gateway, worker, all";
    key("threads", s.threads, u32{0}, u32{256}, "threads for connections, and as many for actors; 0 takes the number of cores");

    key("server.allowed_hosts", s.allowed_hosts, "names that clients may call this server by, besides its address and localhost");
    key("server.trusted_origins", s.trusted_origins, "origins whose pages may call the API from a browser");

    key("log.level", s.log_level, {"debug", "info", "warn", "error"}, "how much is logged");
    key("log.format", s.log_format, {"json", "text"}, "one JSON object a line, or text for a person");

    key("limits.connections", s.max_connections, u64{16}, u64{1'000'000}, "connections at a time; further ones are refused");
    key("limits.header_bytes", s.max_header_bytes, u64{1024}, u64{1 << 20}, "longest request header, in bytes");
    key("limits.body_bytes", s.max_body_bytes, u64{1024}, u64{64 << 20}, "longest JSON body, in bytes");
    key("limits.file_bytes", s.max_file_bytes, u64{1024}, tib, "largest file written in one request, in bytes");
    key("limits.json_depth", s.max_json_depth, u32{4}, u32{256}, "deepest JSON accepted");
    key("limits.header_timeout_ms", s.header_timeout_ms, u64{100}, u64{600'000}, "time for a request's header to arrive");
    key("limits.idle_timeout_ms", s.idle_timeout_ms, u64{1000}, day_ms, "a connection without a request is closed after this");
    key("limits.api_per_second", s.api_per_second, u64{0}, u64{1'000'000}, "requests a second for each key; 0 is no limit");

    key("sandbox.provider", s.sandbox_provider, {"bubblewrap"}, "what makes cloud environments");
    key("sandbox.max_concurrent_commands", s.max_concurrent_commands, u32{1}, u32{1024}, "commands at a time in one environment");
    key("sandbox.max_waiting", s.max_waiting, u32{0}, u32{100'000}, "uses of one environment that may wait their turn");
    key("sandbox.memory_bytes", s.memory_bytes, u64{16 << 20}, tib, "memory of an environment that names no limit, in bytes");
    key("sandbox.processes", s.processes, u64{8}, u64{1'000'000}, "processes and threads of an environment that names no limit");
    key("sandbox.cpus", s.cpus, 0.0, 4096.0, "processors of an environment that names no limit; 0 is all");
    key("sandbox.open_files", s.open_files, u64{64}, u64{1'000'000}, "open files of one process");
    key("sandbox.file_size_bytes", s.file_size_bytes, u64{0}, tib, "largest file that a command may write, in bytes; 0 is no limit");
    key("sandbox.tmp_bytes", s.tmp_bytes, u64{1 << 20}, tib, "size of an environment's /tmp, in bytes of memory");
    key("sandbox.suspend_after_ms", s.suspend_after_ms, u64{0}, 365 * day_ms, "an idle environment is suspended after this; 0 is never");
    key("sandbox.destroy_after_ms", s.destroy_after_ms, u64{0}, 3650 * day_ms, "an unused instance ends after this (its files stay); 0 is never");
    key("sandbox.passivate_after_ms", s.passivate_after_ms, u64{1000}, day_ms, "an environment not in use leaves the server's memory after this");
    key("sandbox.create_timeout_ms", s.create_timeout_ms, u64{1000}, u64{600'000}, "longest time for a sandbox to start");
    key("sandbox.require", s.require, "what the machine must be able to isolate, else holt doesn't start; see docs/security.md");
    key("sandbox.prepared", s.prepared, u32{0}, u32{64}, "sandboxes kept ready for the next environment");
    key("sandbox.uid_first", s.uid_first, u32{1000}, u32{4'000'000'000}, "first host user id given to environments (as root)");
    key("sandbox.uid_count", s.uid_count, u32{1}, u32{1'000'000'000}, "how many host user ids may be given");

    key("lease.wait_ms", s.lease_wait_ms, u64{0}, u64{3'600'000}, "longest wait for an environment that is busy");
    key("shutdown.grace_ms", s.shutdown_grace_ms, u64{0}, u64{600'000}, "time for running calls to finish at a stop");
  }

  CLI::App app_;
  std::vector<key_doc> keys_;
};

std::string standard_data_dir() {
  if (::geteuid() == 0)
    return "/var/lib/holt";
  if (auto xdg = std::getenv("XDG_DATA_HOME"); xdg && *xdg)
    return std::string{xdg} + "/holt";
  auto home = std::getenv("HOME");
  return std::string{home && *home ? home : "/tmp"} + "/.local/share/holt";
}

} // namespace

tl::expected<settings, parse_end> parse_settings(std::span<const std::string> args) {
  settings result;
  declaration declared{result};
  std::vector<std::string> reversed{args.rbegin(), args.rend()};
  try {
    declared.app().parse(reversed);
  } catch (const CLI::CallForHelp&) {
    return tl::unexpected(parse_end{0, declared.app().help()});
  } catch (const CLI::ExtrasError&) {
    auto extra = declared.app().remaining();
    auto word = extra.empty() ? std::string{} : extra.front();
    auto bare = word.substr(std::min(word.find_first_not_of('-'), word.size()));
    return tl::unexpected(parse_end{64, "unknown flag '" + word + "'; did you mean '--" +
                                            nearest(bare.substr(0, bare.find('=')), declared.keys()) + "'?"});
  } catch (const CLI::ParseError& error) {
    return tl::unexpected(parse_end{64, error.what()});
  }
  if (result.data_dir.empty())
    result.data_dir = standard_data_dir();
  return result;
}

std::string settings_page() {
  settings standard;
  declaration declared{standard};
  std::ostringstream page;
  page << "# Configuration\n\n"
          "Generated by `holt serve --print-config-page`; a test compares it. With no configuration at all holt serves on\n"
          "loopback with SQLite in its data directory and bubblewrap for sandboxes.\n\n"
          "A key may stand in a TOML file (`--config FILE`, `[sandbox]` sections or dotted keys), in an environment variable,\n"
          "or be a flag. A flag wins over a variable, a variable over the file. An unknown key is refused, with the nearest name.\n"
          "Sizes are bytes, times milliseconds.\n\n"
          "| key | type | default | bounds | what it is | variable |\n|---|---|---|---|---|---|\n";
  for (auto& key : declared.keys())
    page << "| `" << key.key << "` | " << key.type << " | " << (key.standard.empty() ? "" : "`" + key.standard + "`") << " | "
         << key.bounds << " | " << key.text << " | `" << environment_name(key.key) << "` |\n";
  return page.str();
}

} // namespace holt::runtime::process
