#include "runtime/cli/cli.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <functional>
#include <vector>

#include <CLI/CLI.hpp>

#include "runtime/cli/copy_command.hpp"
#include "runtime/cli/env_commands.hpp"
#include "runtime/cli/exec_command.hpp"
#include "runtime/cli/local_file.hpp"
#include "runtime/cli/login_command.hpp"
#include "runtime/cli/shell_command.hpp"
#include "runtime/cli/units.hpp"

namespace holt::runtime::cli {

namespace {

constexpr std::array commands{"env", "exec", "shell", "cp", "login"};

/// What the command line asks for: filled in by CLI11, then run.
struct invocation {
  server_options server;
  bool json = false;
  std::function<result<int>(invocation&)> act;

  create_options create;
  exec_options exec;
  shell_options shell;
  copy_options copy;
  std::string environment;
  std::vector<std::string> places;
  std::vector<std::string> pairs; // NAME=VALUE
  std::string memory, disk, suspend_after, destroy_after, timeout;
  bool no_wait = false;
  bool recursive = false;
  bool details = false;

  /// What stood behind "--".
  bool has_tail = false;
  std::vector<std::string> tail;

  result<api> connect() const {
    auto access = find_access(server);
    if (!access)
      return tl::unexpected(access.error());
    return result<api>(tl::in_place, std::move(*access));
  }
};

result<std::map<std::string, std::string>> read_pairs(const std::vector<std::string>& pairs, const char* option) {
  std::map<std::string, std::string> map;
  for (const auto& pair : pairs) {
    auto equals = pair.find('=');
    if (equals == 0 || equals == std::string::npos)
      return fail(exit_usage, std::string(option) + " takes NAME=VALUE, and got " + pair);
    map[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return map;
}

template <class Parse>
result<void> read_unit(const std::string& text, const char* option, const char* like, Parse parse,
                       std::optional<std::uint64_t>& into) {
  if (text.empty())
    return {};
  into = parse(text);
  if (!into)
    return fail(exit_usage, std::string(option) + " takes " + like + ", and got " + text);
  return {};
}

/// Runs `act` with the server, once the command line has been read.
template <class Act>
void on_call(CLI::App* command, invocation& call, Act act) {
  command->callback([&call, act] {
    call.act = [act](invocation& c) -> result<int> {
      auto server = c.connect();
      if (!server)
        return tl::unexpected(server.error());
      return act(c, *server);
    };
  });
}

void declare_environments(CLI::App& app, invocation& call) {
  auto* env = app.add_subcommand("env", "Environments, and the files in them");
  env->require_subcommand(1);

  auto* create = env->add_subcommand("create", "Make an environment, and print its id");
  create->add_option("NAME,--name", call.create.name, "For people, and for naming it in other commands");
  create->add_option("--kind", call.create.kind, "cloud (the default) or device");
  create->add_option("--image", call.create.image, "Container image, where the provider has images");
  create->add_option("--network", call.create.network, "none (the default), egress or host");
  create->add_option("--memory", call.memory, "Memory of all its processes: 512M, 2G");
  create->add_option("--disk", call.disk, "Size of its files: 10G");
  create->add_option("--processes", call.create.processes, "Processes at a time");
  create->add_option("--cpus", call.create.cpus, "Processors' worth of time: 0.5, 2");
  create->add_option("--suspend-after", call.suspend_after, "Idle time until it is frozen: 30m; 0 for never");
  create->add_option("--destroy-after", call.destroy_after,
                     "Unused time until its processes go (files stay): 7d; 0 for never");
  create->add_option("--label", call.pairs, "NAME=VALUE; may be given again")->allow_extra_args(false);
  on_call(create, call, [](invocation& c, api& server) -> result<int> {
    auto labels = read_pairs(c.pairs, "--label");
    if (!labels)
      return tl::unexpected(labels.error());
    c.create.labels = *labels;
    constexpr auto size_like = "a size like 512M or 2G";
    constexpr auto time_like = "a time like 90s, 30m or 7d";
    for (auto&& read :
         {read_unit(c.memory, "--memory", size_like, parse_size_bytes, c.create.memory_bytes),
          read_unit(c.disk, "--disk", size_like, parse_size_bytes, c.create.disk_bytes),
          read_unit(c.suspend_after, "--suspend-after", time_like, parse_duration_ms, c.create.suspend_after_ms),
          read_unit(c.destroy_after, "--destroy-after", time_like, parse_duration_ms, c.create.destroy_after_ms)})
      if (!read)
        return tl::unexpected(read.error());
    return create_environment(server, c.create, c.json);
  });

  auto* list = env->add_subcommand("list", "The environments there are");
  list->add_option("--label", call.pairs, "Only those with NAME=VALUE; may be given again")->allow_extra_args(false);
  on_call(list, call, [](invocation& c, api& server) -> result<int> {
    auto labels = read_pairs(c.pairs, "--label");
    if (!labels)
      return tl::unexpected(labels.error());
    return list_environments(server, *labels, c.json);
  });

  auto named = [&](const char* name, const char* help) {
    auto* command = env->add_subcommand(name, help);
    command->add_option("ENV", call.environment, "Name or id")->required();
    return command;
  };
  on_call(named("show", "All about one"), call,
          [](invocation& c, api& server) { return show_environment(server, c.environment, c.json); });
  auto* remove = named("delete", "Delete it with its files");
  remove->add_flag("--no-wait", call.no_wait, "Don't wait until its files are gone");
  on_call(remove, call,
          [](invocation& c, api& server) { return delete_environment(server, c.environment, !c.no_wait, c.json); });
  for (auto [action, help] :
       {std::pair{"reset", "End its processes and delete its files; it starts anew with its next use"},
        std::pair{"suspend", "Freeze its processes"}, std::pair{"resume", "Let it run, and make it if need be"}})
    on_call(named(action, help), call, [action = action](invocation& c, api& server) {
      return change_environment(server, c.environment, action, c.json);
    });

  auto* ls = env->add_subcommand("ls", "List a directory");
  ls->add_option("PLACE", call.environment, "ENV, ENV:/path, or ENV:path below its workspace")->required();
  ls->add_flag("-l", call.details, "Type, mode, size, time");
  on_call(ls, call, [](invocation& c, api& server) { return list_files(server, c.environment, c.details, c.json); });
  auto* cat = env->add_subcommand("cat", "Write files to stdout");
  cat->add_option("PLACE", call.places, "ENV:/path, or ENV:path below its workspace")->required();
  on_call(cat, call, [](invocation& c, api& server) { return print_files(server, c.places); });
  auto* rm = env->add_subcommand("rm", "Remove files");
  rm->add_option("PLACE", call.places, "ENV:/path, or ENV:path below its workspace")->required();
  rm->add_flag("-r,--recursive", call.recursive, "Directories with all that is in them");
  on_call(rm, call, [](invocation& c, api& server) { return remove_files(server, c.places, c.recursive, c.json); });
}

void declare_exec(CLI::App& app, invocation& call) {
  auto* exec = app.add_subcommand("exec", "Run a command in an environment: holt exec ENV [OPTIONS] -- CMD ARGS…");
  exec->add_option("ENV", call.exec.environment, "Name or id")->required();
  exec->add_option("-c,--command", call.exec.command, "A line for the environment's shell, instead of -- CMD");
  exec->add_option("--cwd", call.exec.cwd, "Directory to run it in; the workspace, if not given");
  exec->add_option("--env,-e", call.pairs, "NAME=VALUE; may be given again")->allow_extra_args(false);
  exec->add_option("--timeout", call.timeout, "End it, with all it started, after 90s, 30m, 2h …");
  exec->add_option("--op-id", call.exec.op_id,
                   "An id of your own: asked again, it goes on with the same run of the command");
  exec->add_flag("-i,--interactive", call.exec.interactive, "Pass on stdin although it is a terminal");
  exec->add_flag("-n,--no-stdin", call.exec.no_stdin, "Don't read stdin")->excludes("--interactive");
  exec->footer(
      "Output comes as it is written. stdin is passed on when it is no terminal. Ctrl-C goes to the command, a second "
      "one\n"
      "stops it and all it started. A lost connection is made again, and the command never run twice.\n"
      "Exit code: the command's own, 128+n if signal n ended it; else 64 usage, 69 unavailable, 70 a bug, 77 refused.");
  on_call(exec, call, [](invocation& c, api& server) -> result<int> {
    if (c.exec.command.has_value() == c.has_tail || (c.has_tail && c.tail.empty()))
      return fail(exit_usage, "put the command behind --, like: holt exec ENV -- ls -l (or give --command 'ls -l')");
    auto env = read_pairs(c.pairs, "--env");
    if (!env)
      return tl::unexpected(env.error());
    if (auto read = read_unit(c.timeout, "--timeout", "a time like 90s or 30m", parse_duration_ms, c.exec.timeout_ms);
        !read)
      return tl::unexpected(read.error());
    c.exec.argv = c.tail;
    c.exec.env = *env;
    c.exec.json = c.json;
    return exec_in_environment(server, c.exec);
  });

  auto* shell = app.add_subcommand("shell", "A terminal in an environment: holt shell ENV [-- CMD ARGS…]");
  shell->add_option("ENV", call.shell.environment, "Name or id")->required();
  on_call(shell, call, [](invocation& c, api& server) {
    c.shell.argv = c.tail;
    return shell_in_environment(server, c.shell);
  });
}

void declare(CLI::App& app, invocation& call) {
  app.require_subcommand(1);
  app.add_option("--url", call.server.url, "The server, like http://127.0.0.1:7117 (or HOLT_URL, or holt login)");
  app.add_option("--key-file", call.server.key_file, "File with the key (or HOLT_KEY, or holt login)");
  app.add_flag("--json", call.json, "Answers as JSON, one line each");
  declare_environments(app, call);
  declare_exec(app, call);

  auto* cp = app.add_subcommand("cp", "Copy files and directories in or out: holt cp SRC DST");
  cp->add_option("SRC", call.copy.from, "A path here, or ENV:/path, or ENV:path below the workspace")->required();
  cp->add_option("DST", call.copy.to, "The same; a directory that is there takes SRC in under its own name")
      ->required();
  cp->footer(
      "Size and SHA-256 of each file are verified, executable bits kept. Symbolic links and special files are not\n"
      "copied: each is named, and the exit code is 77 then. SRC/. copies what is in a directory.");
  on_call(cp, call, [](invocation& c, api& server) {
    c.copy.json = c.json;
    return copy_files(server, c.copy);
  });

  auto* login = app.add_subcommand("login", "Ask for a server and a key, try them, and keep them for later commands");
  login->footer("They are kept in ~/.config/holt/client.json, readable by you alone.");
  login->callback([&call] { call.act = [](invocation& c) { return log_in(c.server, c.json); }; });

  std::function<void(CLI::App*)> everywhere = [&](CLI::App* command) {
    for (auto* inner : command->get_subcommands({})) {
      inner->fallthrough(); // --url, --key-file and --json also behind the subcommand
      everywhere(inner);
    }
  };
  everywhere(&app);
}

int report(const failure& what) {
  std::string line = "holt: " + what.message;
  std::replace(line.begin(), line.end(), '\n', ' ');
  (void)write_all(2, line + '\n');
  return what.code;
}

} // namespace

bool knows(std::string_view command) {
  return std::find(commands.begin(), commands.end(), command) != commands.end();
}

int run(std::span<const std::string> args) {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, nullptr); // a reader that goes away is an error of write

  invocation call;
  auto split = std::find(args.begin(), args.end(), "--");
  std::vector<std::string> own(args.begin(), split);
  auto command = std::find_if(own.begin(), own.end(), [](const std::string& word) { return knows(word); });
  if (command != own.end() && (*command == "exec" || *command == "shell")) {
    call.has_tail = split != args.end();
    if (call.has_tail)
      call.tail.assign(split + 1, args.end());
  } else {
    own.insert(own.end(), split, args.end());
  }
  CLI::App app("Work in holt's environments", "holt");
  declare(app, call);
  std::reverse(own.begin(), own.end());
  try {
    app.parse(own);
  } catch (const CLI::Success&) {
    auto shown = app.get_subcommands().empty() ? &app : app.get_subcommands().front();
    while (!shown->get_subcommands().empty())
      shown = shown->get_subcommands().front();
    (void)write_all(1, shown->help());
    return exit_ok;
  } catch (const CLI::ParseError& error) {
    return report({exit_usage, std::string(error.what()) + "; --help says what there is"});
  }
  auto outcome = call.act(call);
  return outcome ? *outcome : report(outcome.error());
}

} // namespace holt::runtime::cli
