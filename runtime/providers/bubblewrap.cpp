#include "runtime/providers/bubblewrap.hpp"

#include <dirent.h>
#include <poll.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "runtime/providers/cgroups.hpp"
#include "runtime/providers/fd.hpp"
#include "runtime/providers/instance_record.hpp"
#include "runtime/providers/process_identity.hpp"
#include "runtime/providers/sandbox_profile.hpp"
#include "runtime/providers/seccomp_filter.hpp"
#include "runtime/providers/system_etc.hpp"
#include "runtime/providers/uid_ledger.hpp"

namespace holt::providers {

namespace {

namespace fs = std::filesystem;
using actors::created_instance;
using actors::environment_limits;
using actors::instance_spec;
using actors::instance_status;
using actors::provider_backend;
using actors::provider_errc;
using actors::provider_error;
using actors::provider_report;
using actors::provider_result;
using steady = std::chrono::steady_clock;

// Descriptors of the launched process. The first ones are the agent's; bubblewrap closes the next two before the agent
// starts, and the launcher closes the rest before bubblewrap starts.
enum launch_fd : int {
  fd_stderr = 2,
  fd_listen = 3,
  fd_state = 4,
  fd_ready = 5,
  fd_record = 6,
  fd_seccomp = 7,
  fd_join = 8
};

constexpr const char* record_file = "instance.json";
constexpr const char* launch_file = "launch";
constexpr const char* socket_file = "agent.sock";
constexpr int listen_backlog = 64;
constexpr std::size_t max_error_text = 2048;
// Processes of the sandbox that aren't commands: bubblewrap, the agent, and what it starts for a moment.
constexpr std::uint64_t own_processes = 4;

tl::unexpected<provider_error> fail(provider_errc code, std::string detail) {
  return tl::unexpected(provider_error{code, std::move(detail)});
}
tl::unexpected<provider_error> fail_errno(std::string_view what) {
  return fail(provider_errc::failed, errno_text(what));
}

/// An address that names the socket through a descriptor of its directory: no limit of 108 bytes on where the data
/// lies, and no walk along a path that could change.
sockaddr_un socket_address(int run_directory) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto path = "/proc/self/fd/" + std::to_string(run_directory) + "/" + socket_file;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  return address;
}

/// Whether any user may walk to that directory.
bool is_reachable_by_all(const fs::path& directory) {
  fs::path walked;
  for (const auto& part : directory) {
    walked /= part;
    struct stat status {};
    if (::stat(walked.c_str(), &status) != 0 || (status.st_mode & S_IXOTH) == 0)
      return false;
  }
  return true;
}

std::string take_available(int fd, std::size_t max) {
  std::string text;
  char buffer[512];
  while (text.size() < max) {
    const ssize_t size = ::read(fd, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR)
      continue;
    if (size <= 0)
      break;
    text.append(buffer, static_cast<std::size_t>(size));
  }
  return text;
}

std::int64_t now_microseconds() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// What one launch is given: a program, and descriptors under fixed numbers.
struct launch_plan {
  std::vector<std::string> arguments;
  std::vector<std::pair<int, int>> descriptors; // here → there
  int last = fd_stderr;

  void give(int here, int there) {
    descriptors.emplace_back(here, there);
    last = std::max(last, there);
  }
};

/// posix_spawn, never fork: the cost must not grow with the server's memory.
tl::expected<pid_t, std::string> spawn(const launch_plan& plan) {
  // Duplicates above every target number, so that no placement overwrites what is still to be placed.
  std::vector<unique_fd> high;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  const auto done = [&](auto result) {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return result;
  };
  using result_type = tl::expected<pid_t, std::string>;

  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  for (const auto& [here, there] : plan.descriptors) {
    unique_fd copy(::fcntl(here, F_DUPFD_CLOEXEC, 64));
    if (!copy)
      return done(result_type(tl::unexpected(errno_text("descriptor"))));
    posix_spawn_file_actions_adddup2(&actions, copy.get(), there);
    high.push_back(std::move(copy));
  }
  posix_spawn_file_actions_addclosefrom_np(&actions, plan.last + 1);

  sigset_t signals;
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);

  std::vector<char*> argv;
  for (const auto& argument : plan.arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const auto variables = sandbox_environment();
  std::vector<char*> environment;
  for (const auto& variable : variables)
    environment.push_back(const_cast<char*>(variable.c_str()));
  environment.push_back(nullptr);

  pid_t pid = 0;
  const int status = ::posix_spawn(&pid, argv.front(), &actions, &attributes, argv.data(), environment.data());
  if (status != 0) {
    errno = status;
    return done(result_type(tl::unexpected(errno_text("starting " + plan.arguments.front()))));
  }
  return done(result_type(pid));
}

/// Stopped by a signal, or dead.
bool is_stopped(pid_t pid) {
  const auto stat = parse_process_stat(read_file("/proc/" + std::to_string(pid) + "/stat", 4096).value_or(""));
  return !stat || stat->state == 'T' || stat->state == 't' || stat->state == 'Z' || stat->state == 'X';
}

/// `{"child-pid": 123, …}` of bubblewrap's --info-fd.
std::optional<pid_t> parse_child_pid(const std::string& text) {
  constexpr std::string_view key = "\"child-pid\":";
  const auto at = text.find(key);
  if (at == std::string::npos || text.find('}') == std::string::npos)
    return std::nullopt;
  const auto pid = static_cast<pid_t>(std::strtol(text.c_str() + at + key.size(), nullptr, 10));
  return pid > 1 ? std::optional(pid) : std::nullopt;
}

class bubblewrap final : public provider_backend {
public:
  explicit bubblewrap(bubblewrap_options options) : options_(std::move(options)) {
  }
  ~bubblewrap() override;

  /// Everything that may fail of starting up.
  tl::expected<void, std::string> start();

  provider_report report() const override {
    return report_;
  }
  provider_result<created_instance> create(const instance_spec& spec) override;
  provider_result<void> resume(const std::string& handle) override;
  provider_result<void> suspend(const std::string& handle, std::uint64_t generation) override;
  provider_result<void> destroy(const std::string& environment_id, const std::string& handle,
                                std::uint64_t generation) override;
  provider_result<void> destroy_files(const std::string& environment_id, const std::string& file_system_id) override;
  provider_result<void> forget(const std::string& environment_id) override;
  provider_result<instance_status> inspect(const std::string& handle) override;
  provider_result<int> open(const std::string& handle) override;

private:
  /// Descriptors of one environment's directories, and where they are for messages and bubblewrap.
  struct environment {
    std::string id;
    unique_fd directory;
    unique_fd run;
    fs::path path;
    bool fresh = false; // made just now: nothing can be left of an earlier instance
  };
  /// A launched sandbox that isn't known to run yet.
  struct launch {
    process_identity launcher;
    unique_fd ready, errors;
  };

  provider_result<environment> open_environment(const std::string& id, bool make);
  std::optional<instance_record> recorded(const environment& place) const;
  bool is_current(const instance_record& record) const {
    return record.boot == boot_ && is_alive(record.agent);
  }
  /// The environment and record that a handle names; `gone` when it names none that lives.
  provider_result<std::pair<environment, instance_record>> find_live(const std::string& handle);

  provider_result<created_instance> make_instance(const instance_spec& spec);
  void keep_spares();
  /// A spare that now is this environment; nothing when there is none, or the environment exists.
  std::optional<created_instance> claim_spare(const instance_spec& spec);
  void discard(const std::string& environment_id);

  provider_result<void> prepare_files(const environment& place, const instance_spec& spec, std::optional<uid_t> uid,
                                      unique_fd& unsynced);
  provider_result<unique_fd> make_listener(const environment& place);
  provider_result<launch> launch_sandbox(const environment& place, const instance_spec& spec, std::optional<uid_t> uid,
                                         cgroups::placed& groups, int listener);
  provider_result<pid_t> await_agent(const environment& place, launch& started);
  launch_plan plan_for(const sandbox_profile& profile, const fs::path& environment,
                       const fs::path& program_directory) const;
  std::vector<std::string> limit_arguments(const environment_limits& limits) const;
  environment_limits effective(const environment_limits& asked) const;

  provider_result<void> clean_up(const environment& place);
  /// What the launch file tells.
  struct past_launch {
    process_identity launcher; // bubblewrap, outside
    process_identity first;    // of the sandbox; pid 0 when there was none
  };
  std::optional<past_launch> launched(const environment& place) const;
  void kill_launch(const past_launch& launch) const;
  bool set_stopped(const instance_record& record, bool stopped) const;

  void remember_child(pid_t pid);
  void reap();

  tl::expected<void, std::string> self_test();
  void look_through_environments();
  void empty_trash();
  provider_result<void> remove_through_trash(int at, const std::string& name, const std::string& label);
  tl::expected<void, std::string> check_required();
  void describe();
  bool cut(std::string_view step) const {
    return options_.cut && options_.cut(step);
  }

  bubblewrap_options options_;
  bool root_ = false;
  /// Sandboxes' uids can't walk to the data directory: the launcher binds what they need to where they can.
  bool expose_ = false;
  std::string boot_;
  unique_fd data_, environments_, trash_;
  unique_fd seccomp_;
  std::unique_ptr<uid_ledger> uids_;
  cgroups groups_ = cgroups::none();
  std::vector<system_directory> system_;
  provider_report report_{"bubblewrap", true, {}, {}};
  std::atomic<std::uint64_t> trashed_{0};

  std::mutex children_mutex_;
  std::set<pid_t> children_;

  std::mutex spares_mutex_;
  std::condition_variable spares_changed_;
  std::deque<std::string> spares_;
  bool stopping_ = false;
  /// The one thread of this provider, where spares are wanted.
  std::thread keeper_;
};

constexpr const char* spare_prefix = "spare-";
constexpr const char* spare_files = "fs";

bool is_spare(const std::string& id) {
  return id.rfind(spare_prefix, 0) == 0;
}

// Directories that exist on every Debian and mean nothing to a sandbox: seen through by the launcher's own mount
// namespace.
constexpr const char* exposed_environment = "/mnt";
constexpr const char* exposed_etc = "/media";
constexpr const char* exposed_program = "/srv";

// -- start
// -------------------------------------------------------------------------------------------------------------

tl::expected<void, std::string> bubblewrap::start() {
  root_ = ::geteuid() == 0;
  boot_ = boot_id();
  std::error_code error;
  fs::create_directories(options_.data_dir, error);
  options_.data_dir = fs::canonical(options_.data_dir, error);
  if (error)
    return tl::unexpected("data directory: " + error.message());
  data_.reset(::open(options_.data_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!data_)
    return tl::unexpected(errno_text("data directory"));
  environments_ = make_directory(data_.get(), "envs", 0711);
  trash_ = make_directory(data_.get(), "trash", 0700);
  if (!environments_ || !trash_)
    return tl::unexpected(errno_text("data directory"));
  if (options_.etc_dir.empty())
    options_.etc_dir = options_.data_dir / "etc";
  fs::create_directories(options_.etc_dir, error);
  fs::permissions(options_.etc_dir, fs::perms(0755), error);

  auto uids = uid_ledger::open(data_.get(), {options_.uid_first, options_.uid_count});
  if (!uids)
    return tl::unexpected(uids.error());
  uids_ = std::move(*uids);
  empty_trash();
  look_through_environments();

  auto filter = build_seccomp_filter();
  if (!filter)
    return tl::unexpected(filter.error());
  seccomp_ = std::move(*filter);
  system_ = find_system_directories();
  if (auto etc = build_etc(options_.etc_dir, false); !etc)
    return tl::unexpected(etc.error());
  for (auto* program : {&options_.agent, &options_.launcher}) {
    *program = fs::canonical(*program, error);
    if (error)
      return tl::unexpected(program->string() + ": " + error.message());
  }
  const auto hidden = [](const fs::path& directory) { return !is_reachable_by_all(directory); };
  expose_ = root_
            && (hidden(options_.data_dir) || hidden(options_.etc_dir) || hidden(options_.agent.parent_path())
                || hidden(options_.launcher.parent_path()));
  if (options_.use_cgroups) {
    // Two servers with two data directories share a machine, but no group.
    std::size_t hash = std::hash<std::string>{}(options_.data_dir.string());
    char name[32];
    std::snprintf(name, sizeof name, "holt-%08x", static_cast<unsigned>(hash));
    groups_ = cgroups::detect(name);
  }
  if (auto works = self_test(); !works) {
    report_.available = false;
    report_.missing.push_back("no sandbox can be started: " + works.error());
  }
  describe();
  auto checked = check_required();
  if (checked && report_.available && options_.prepared > 0)
    keeper_ = std::thread([this] { keep_spares(); });
  return checked;
}

void bubblewrap::describe() {
  auto& has = report_.features;
  auto& lacks = report_.missing;
  if (!report_.available)
    return;
  has = {"user_namespace",    "pid_namespace",     "mount_namespace",  "ipc_namespace",
         "uts_namespace",     "network_namespace", "cgroup_namespace", "seccomp",
         "no_new_privileges", "open_files_limit",  "file_size_limit"};
  const auto& groups = groups_.features();
  const auto tell = [&](bool there, const char* feature, const char* otherwise) {
    if (there)
      has.emplace_back(feature);
    else
      lacks.emplace_back(otherwise);
  };
  tell(root_, "own_uid",
       "a uid for each environment: the server doesn't run as root, and all sandboxes run as its user");
  tell(groups.memory, "memory_limit",
       "a limit on an environment's memory: no writable cgroup; only each process is limited (RLIMIT_DATA)");
  tell(groups.processes, "process_limit",
       root_ ? "a limit on an environment's processes by cgroup: RLIMIT_NPROC of its uid takes its place"
             : "a limit on an environment's processes: no writable cgroup; RLIMIT_NPROC counts all processes of the "
               "server's user");
  tell(groups.cpu, "cpu_limit", "a limit on an environment's cpu: no writable cgroup");
  tell(groups.freezer, "freezer", "a freezer: suspend stops processes by signals, which they can notice");
  lacks.emplace_back("a quota on an environment's disk");
  lacks.insert(lacks.end(), groups_.notes().begin(), groups_.notes().end());
}

tl::expected<void, std::string> bubblewrap::check_required() {
  for (const auto& feature : options_.require) {
    if (std::find(report_.features.begin(), report_.features.end(), feature) != report_.features.end())
      continue;
    std::string why;
    for (const auto& text : report_.missing)
      why += "; " + text;
    return tl::unexpected("the configuration requires " + feature + ", which this machine can't give" + why);
  }
  return {};
}

void bubblewrap::empty_trash() {
  const unique_fd copy(::openat(trash_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd/" + std::to_string(copy.get()), error))
    remove_tree(trash_.get(), entry.path().filename().string());
}

/// Uids that files have without a record (the machine lost power in between), and ledgers that nobody needs any more.
void bubblewrap::look_through_environments() {
  std::error_code error;
  const auto now = ::time(nullptr);
  for (const auto& entry : fs::directory_iterator(options_.data_dir / "envs", error)) {
    const auto id = entry.path().filename().string();
    struct stat state {};
    if (is_spare(id)) {
      discard(id); // of a server before this one, perhaps with another agent
      continue;
    }
    if (!is_valid_name(id) || ::fstatat(environments_.get(), (id + "/state").c_str(), &state, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    if (root_ && state.st_uid >= options_.uid_first && state.st_uid - options_.uid_first < options_.uid_count)
      uids_->adopt(id, state.st_uid);
    struct stat files {};
    const bool empty = ::fstatat(environments_.get(), (id + "/files").c_str(), &files, AT_SYMLINK_NOFOLLOW) != 0
                       || files.st_nlink == 2;
    const auto age = now - std::max(state.st_mtim.tv_sec, files.st_mtim.tv_sec);
    if (empty && age > std::chrono::seconds(options_.state_retention).count())
      (void)forget(id);
  }
  uids_->sync();
}

/// One sandbox that runs a program which does nothing: tells at start, in bubblewrap's own words, what is wrong here.
tl::expected<void, std::string> bubblewrap::self_test() {
  const auto etc = options_.etc_dir / etc_version(false);
  sandbox_profile profile;
  profile.bwrap = options_.bwrap;
  profile.system = system_;
  profile.etc = profile.workspace = profile.skills = etc;
  profile.agent = options_.launcher;
  profile.tmp_bytes = profile.shm_bytes = 1U << 20U;
  profile.seccomp_fd = fd_seccomp;
  profile.info_fd = fd_record;
  profile.arguments = {"--self-test"};
  auto plan = plan_for(profile, etc, options_.launcher.parent_path());
  if (root_) {
    const auto uid = std::to_string(options_.uid_first + options_.uid_count);
    const auto separator = std::find(plan.arguments.begin(), plan.arguments.end(), "--");
    const std::vector<std::string> drop{"--uid", uid, "--gid", uid};
    plan.arguments.insert(separator, drop.begin(), drop.end());
  }
  auto errors = make_pipe();
  auto filter = reopen(seccomp_.get());
  const unique_fd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!errors || !filter || !nowhere)
    return tl::unexpected(errno_text("descriptors"));
  plan.give(errors->write.get(), fd_stderr);
  plan.give(nowhere.get(), fd_record);
  plan.give(filter.get(), fd_seccomp);
  plan.arguments.insert(plan.arguments.begin() + 1, {"--last-fd", std::to_string(plan.last)});
  const auto pid = spawn(plan);
  if (!pid)
    return tl::unexpected(pid.error());
  errors->write.reset();
  const auto identity = identify(*pid);
  const bool ended = identity && wait_gone(*identity, steady::now() + options_.start_deadline);
  if (!ended)
    ::kill(*pid, SIGKILL);
  int status = 0;
  while (::waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (ended && WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return {};
  auto text = take_available(errors->read.get(), max_error_text);
  return tl::unexpected(text.empty() ? std::string("the trial sandbox ended without a word") : text);
}

// -- directories and records
// -------------------------------------------------------------------------------------------

provider_result<bubblewrap::environment> bubblewrap::open_environment(const std::string& id, bool make) {
  if (!is_valid_name(id))
    return fail(provider_errc::refused, "not an environment id");
  environment place;
  place.id = id;
  place.path = options_.data_dir / "envs" / id;
  if (make) {
    place.fresh = ::mkdirat(environments_.get(), id.c_str(), 0711) == 0;
    place.directory = open_directory(environments_.get(), id);
    if (place.directory)
      ::fchmod(place.directory.get(), 0711);
    if (place.directory)
      place.run = make_directory(place.directory.get(), "run", 0700);
    if (!place.run)
      return fail_errno("environment's directory");
    return place;
  }
  place.directory = open_directory(environments_.get(), id);
  if (place.directory)
    place.run = open_directory(place.directory.get(), "run");
  if (!place.run && errno != ENOENT)
    return fail(provider_errc::unavailable, errno_text("environment's directory"));
  return place;
}

std::optional<instance_record> bubblewrap::recorded(const environment& place) const {
  const auto text = read_file(place.run.get(), record_file);
  return text ? read_record(*text) : std::nullopt;
}

provider_result<std::pair<bubblewrap::environment, instance_record>> bubblewrap::find_live(const std::string& handle) {
  reap();
  const auto named = read_handle(handle);
  if (!named)
    return fail(provider_errc::failed, "not a handle of this provider");
  auto place = open_environment(named->environment, false);
  if (!place)
    return tl::unexpected(place.error());
  if (!place->run)
    return fail(provider_errc::gone, "no such instance");
  auto record = recorded(*place);
  if (!record || !record->started || record->generation != named->generation)
    return fail(provider_errc::gone, "no such instance");
  if (record->boot != boot_)
    return fail(provider_errc::gone, "the machine was restarted");
  if (!is_alive(record->agent))
    return fail(provider_errc::gone, "the sandbox's first process has ended");
  return std::pair(std::move(*place), std::move(*record));
}

// -- create
// ------------------------------------------------------------------------------------------------------------

environment_limits bubblewrap::effective(const environment_limits& asked) const {
  auto limits = options_.default_limits;
  const auto take = [](auto& into, const auto& from) {
    if (from)
      into = from;
  };
  take(limits.memory_bytes, asked.memory_bytes);
  take(limits.processes, asked.processes);
  take(limits.cpus, asked.cpus);
  take(limits.open_files, asked.open_files);
  take(limits.file_size_bytes, asked.file_size_bytes);
  take(limits.disk_bytes, asked.disk_bytes);
  return limits;
}

provider_result<created_instance> bubblewrap::create(const instance_spec& spec) {
  if (is_spare(spec.environment_id))
    return fail(provider_errc::refused, "not an environment id");
  if (options_.prepared > 0) {
    if (auto claimed = claim_spare(spec))
      return std::move(*claimed);
  }
  return make_instance(spec);
}

provider_result<created_instance> bubblewrap::make_instance(const instance_spec& spec) {
  reap();
  if (!report_.available)
    return fail(provider_errc::unavailable, report_.missing.empty() ? "no sandboxes here" : report_.missing.front());
  if (!is_valid_name(spec.file_system_id))
    return fail(provider_errc::refused, "not a file-system id");
  if (spec.network != "none" && spec.network != "host")
    return fail(provider_errc::refused, "bubblewrap has the networks none and host, not " + spec.network);
  if (spec.image)
    return fail(provider_errc::refused, "bubblewrap has no images: its sandboxes show the system of this machine");

  auto place = open_environment(spec.environment_id, true);
  if (!place)
    return tl::unexpected(place.error());
  const auto answer = [&](const instance_record& record) {
    return created_instance{
        write_handle({spec.environment_id, record.generation}), record.created_at, {"/workspace", "/skills", "/tmp"}};
  };
  if (const auto old = place->fresh ? std::nullopt : recorded(*place); old && is_current(*old)) {
    if (old->generation > spec.generation)
      return fail(provider_errc::younger_generation,
                  "an instance of generation " + std::to_string(old->generation) + " runs");
    if (old->generation == spec.generation && old->started && old->file_system == spec.file_system_id) {
      if (auto woken = resume(write_handle({spec.environment_id, old->generation})); !woken)
        return tl::unexpected(woken.error());
      return answer(*old);
    }
  }
  if (!place->fresh) {
    if (auto cleaned = clean_up(*place); !cleaned)
      return tl::unexpected(cleaned.error());
  }
  if (cut("directories"))
    return fail(provider_errc::failed, "cut");

  std::optional<uid_t> uid;
  if (root_) {
    const auto claimed = uids_->claim(spec.environment_id);
    if (!claimed)
      return fail(provider_errc::refused, claimed.error());
    uid = *claimed;
  }
  if (cut("uid"))
    return fail(provider_errc::failed, "cut");
  unique_fd unsynced;
  if (auto prepared = prepare_files(*place, spec, uid, unsynced); !prepared)
    return tl::unexpected(prepared.error());
  if (cut("files"))
    return fail(provider_errc::failed, "cut");

  // Before anything runs: what a later server has to look for.
  instance_record record;
  record.generation = spec.generation;
  record.created_at = now_microseconds();
  record.boot = boot_;
  record.file_system = spec.file_system_id;
  record.network = spec.network;
  record.cgroups = groups_.places(spec.environment_id);
  if (!replace_file(place->run.get(), record_file, write_record(record), 0600))
    return fail_errno("recording the instance");
  if (cut("intent"))
    return fail(provider_errc::failed, "cut");

  const auto limits = effective(spec.limits);
  auto groups =
      groups_.create(spec.environment_id,
                     {limits.memory_bytes,
                      limits.processes ? std::optional(*limits.processes + own_processes) : std::nullopt, limits.cpus});
  if (!groups)
    return fail(provider_errc::failed, groups.error());
  if (cut("cgroups"))
    return fail(provider_errc::failed, "cut");
  auto listener = make_listener(*place);
  if (!listener)
    return tl::unexpected(listener.error());
  if (cut("socket"))
    return fail(provider_errc::failed, "cut");

  auto started = launch_sandbox(*place, spec, uid, *groups, listener->get());
  if (!started) {
    (void)clean_up(*place);
    return tl::unexpected(started.error());
  }
  listener->reset();
  if (cut("launched"))
    return fail(provider_errc::failed, "cut");
  // While the sandbox starts: the new uid and directories reach the disk before they are acknowledged.
  const bool durable = uids_->sync() && (!unsynced || ::fsync(unsynced.get()) == 0);
  const auto agent = durable ? await_agent(*place, *started) : fail_errno("flushing the new files");
  if (!agent) {
    (void)clean_up(*place);
    auto text = take_available(started->errors.get(), max_error_text);
    return fail(agent.error().code, agent.error().detail + (text.empty() ? "" : ": " + text));
  }
  if (cut("listening"))
    return fail(provider_errc::failed, "cut");
  const auto identity = identify(*agent);
  if (!identity)
    return fail(provider_errc::failed, "the agent ended as soon as it had started");
  record.agent = *identity;
  record.launcher = started->launcher;
  record.started = true;
  if (!replace_file(place->run.get(), record_file, write_record(record), 0600))
    return fail_errno("recording the instance");
  if (cut("recorded"))
    return fail(provider_errc::failed, "cut");
  return answer(record);
}

provider_result<void> bubblewrap::prepare_files(const environment& place, const instance_spec& spec,
                                                std::optional<uid_t> uid, unique_fd& unsynced) {
  const auto files = make_directory(place.directory.get(), "files", 0711);
  const auto state = make_directory(place.directory.get(), "state", 0700);
  if (!files || !state)
    return fail_errno("environment's directories");
  auto kept = open_directory(files.get(), spec.file_system_id);
  auto workspace = kept ? open_directory(kept.get(), "workspace") : unique_fd();
  const bool made_now = !workspace;
  if (!workspace && !spec.new_files)
    return fail(provider_errc::files_gone, "the files of " + spec.file_system_id + " are not there");
  if (!workspace) {
    kept = make_directory(files.get(), spec.file_system_id, 0711);
    if (!kept || !make_directory(kept.get(), "skills", 0755))
      return fail_errno("file system");
    workspace = make_directory(kept.get(), "workspace", 0700);
    if (!workspace)
      return fail_errno("workspace");
    unsynced.reset(kept.release());
  } else if (!make_directory(kept.get(), "skills", 0755)) {
    return fail_errno("skills");
  }
  // The workspace is made last: a file system without it was never acknowledged.
  if (uid) {
    for (const int directory : {workspace.get(), state.get()}) {
      struct stat status {};
      if (::fstat(directory, &status) != 0)
        return fail_errno("file system");
      // Of the whole tree when the data came from a server that ran as another user.
      const bool alone = made_now && (directory == workspace.get() || place.fresh);
      if (status.st_uid != *uid
          && !(alone ? ::fchown(directory, *uid, *uid) == 0 : change_owner(directory, *uid, *uid)))
        return fail_errno("giving the files to the environment's uid");
    }
  }
  return {};
}

provider_result<unique_fd> bubblewrap::make_listener(const environment& place) {
  ::unlinkat(place.run.get(), socket_file, 0);
  unique_fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = socket_address(place.run.get());
  if (!listener || ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0
      || ::listen(listener.get(), listen_backlog) != 0)
    return fail_errno("agent's socket");
  return listener;
}

std::vector<std::string> bubblewrap::limit_arguments(const environment_limits& limits) const {
  std::vector<std::string> result;
  const auto limit = [&](const char* name, std::uint64_t value) {
    result.insert(result.end(), {"--rlimit", std::string(name) + "=" + std::to_string(value)});
  };
  limit("core", 0);
  if (limits.open_files)
    limit("nofile", *limits.open_files);
  if (limits.file_size_bytes)
    limit("fsize", *limits.file_size_bytes);
  // Each process for itself, which is less than was asked for; report() says so. Not the address space: run-times
  // reserve far more of it than they use.
  if (limits.memory_bytes && !groups_.features().memory)
    limit("data", *limits.memory_bytes);
  // As root the uid is the environment's alone. Else the user's other processes would count, and the limit would hit
  // them.
  if (limits.processes && !groups_.features().processes && root_)
    limit("nproc", *limits.processes + own_processes);
  return result;
}

launch_plan bubblewrap::plan_for(const sandbox_profile& profile, const fs::path& environment,
                                 const fs::path& program_directory) const {
  launch_plan plan;
  plan.arguments = {options_.launcher.string()};
  auto shown = profile;
  if (expose_) {
    const auto expose = [&](const fs::path& from, const char* to) {
      plan.arguments.insert(plan.arguments.end(), {"--expose", from.string() + "=" + to});
    };
    const auto move = [](fs::path& path, const fs::path& from, const char* to) {
      const auto relative = path.lexically_relative(from);
      path = relative == "." ? fs::path(to) : fs::path(to) / relative;
    };
    expose(environment, exposed_environment);
    move(shown.workspace, environment, exposed_environment);
    move(shown.skills, environment, exposed_environment);
    expose(profile.etc, exposed_etc);
    shown.etc = exposed_etc;
    expose(program_directory, exposed_program);
    move(shown.agent, program_directory, exposed_program);
  }
  plan.arguments.emplace_back("--");
  const auto command = bwrap_arguments(shown);
  plan.arguments.insert(plan.arguments.end(), command.begin(), command.end());
  return plan;
}

provider_result<bubblewrap::launch> bubblewrap::launch_sandbox(const environment& place, const instance_spec& spec,
                                                               std::optional<uid_t> uid, cgroups::placed& groups,
                                                               int listener) {
  const bool host_network = spec.network == "host";
  const auto etc = build_etc(options_.etc_dir, host_network);
  if (!etc)
    return fail(provider_errc::failed, etc.error());
  const auto limits = effective(spec.limits);

  sandbox_profile profile;
  profile.bwrap = options_.bwrap;
  profile.system = system_;
  profile.etc = *etc;
  profile.workspace = place.path / "files" / spec.file_system_id / "workspace";
  profile.skills = place.path / "files" / spec.file_system_id / "skills";
  profile.agent = options_.agent;
  profile.tmp_bytes = std::min(options_.tmp_bytes, limits.memory_bytes.value_or(options_.tmp_bytes));
  profile.shm_bytes = std::min(options_.shm_bytes, profile.tmp_bytes);
  profile.host_network = host_network;
  profile.seccomp_fd = fd_seccomp;
  profile.info_fd = fd_record;
  profile.arguments = {"serve",
                       "--listen-fd",
                       std::to_string(fd_listen),
                       "--state-fd",
                       std::to_string(fd_state),
                       "--ready-fd",
                       std::to_string(fd_ready),
                       "--workspace",
                       "/workspace",
                       "--skills",
                       "/skills",
                       "--tmp",
                       "/tmp"};
  auto plan = plan_for(profile, place.path, options_.agent.parent_path());

  auto ready = make_pipe();
  auto errors = make_pipe();
  auto filter = reopen(seccomp_.get());
  // A file, not a pipe: bubblewrap must be able to write there when this server is gone, or it would die of it and
  // leave a sandbox that waits for ever. The lock goes with the descriptor and ends once both have written who they
  // are: whoever gets it afterwards knows of every launch there was.
  unique_fd launch_record(
      ::openat(place.run.get(), launch_file, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!ready || !errors || !filter || !launch_record || ::flock(launch_record.get(), LOCK_EX | LOCK_NB) != 0)
    return fail_errno("descriptors of the sandbox");
  plan.give(errors->write.get(), fd_stderr);
  plan.give(listener, fd_listen);
  plan.give(ready->write.get(), fd_ready);
  plan.give(filter.get(), fd_seccomp);
  plan.give(launch_record.get(), fd_record);
  std::vector<std::string> options{"--record-fd", std::to_string(fd_record)};
  int next = fd_join;
  for (const auto& join : groups.joins) {
    plan.give(join.get(), next);
    options.insert(options.end(), {"--join-fd", std::to_string(next++)});
  }
  options.insert(options.end(), {"--last-fd", std::to_string(plan.last), "--oom", "0"});
  const auto rlimits = limit_arguments(limits);
  options.insert(options.end(), rlimits.begin(), rlimits.end());
  options.insert(options.end(),
                 {"--state-path", (place.path / "state").string(), "--state-fd", std::to_string(fd_state)});
  if (uid)
    options.insert(options.end(), {"--uid", std::to_string(*uid), "--gid", std::to_string(*uid)});
  plan.arguments.insert(plan.arguments.begin() + 1, options.begin(), options.end());

  const auto pid = spawn(plan);
  if (!pid)
    return fail(provider_errc::failed, pid.error());
  remember_child(*pid);
  return launch{identify(*pid).value_or(process_identity{*pid, 0}), std::move(ready->read), std::move(errors->read)};
}

/// The agent's pid on this machine, once it listens. The pipe ends when the launch dies, so a failure is seen at once.
provider_result<pid_t> bubblewrap::await_agent(const environment& place, launch& started) {
  const auto deadline = steady::now() + options_.start_deadline;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady::now()).count();
    if (left <= 0)
      return fail(provider_errc::failed, "the agent didn't start in time");
    pollfd polled{started.ready.get(), POLLIN, 0};
    if (::poll(&polled, 1, static_cast<int>(left)) < 0 && errno != EINTR)
      return fail_errno("waiting for the agent");
    if (polled.revents == 0)
      continue;
    char byte = 0;
    if (::read(started.ready.get(), &byte, 1) != 1)
      return fail(provider_errc::failed, "the sandbox ended before its agent listened");
    const auto pid = parse_child_pid(read_file(place.run.get(), launch_file).value_or(""));
    return pid ? provider_result<pid_t>(*pid) : fail(provider_errc::failed, "bubblewrap didn't tell the agent's pid");
  }
}

// -- spares
// ------------------------------------------------------------------------------------------------------------

bubblewrap::~bubblewrap() {
  {
    const std::lock_guard guard(spares_mutex_);
    stopping_ = true;
  }
  spares_changed_.notify_all();
  if (keeper_.joinable())
    keeper_.join();
  for (const auto& id : spares_)
    discard(id);
  groups_.remove_if_empty();
}

void bubblewrap::keep_spares() {
  auto pause = std::chrono::seconds(0);
  for (;;) {
    {
      std::unique_lock lock(spares_mutex_);
      // After a failure, a while later: a machine without room for spares must not be kept busy by trying.
      spares_changed_.wait_for(lock, pause, [this] { return stopping_; });
      spares_changed_.wait(lock, [this] { return stopping_ || spares_.size() < options_.prepared; });
      if (stopping_)
        return;
    }
    std::uint64_t random = 0;
    if (::getrandom(&random, sizeof random, 0) != sizeof random)
      return;
    char id[32];
    std::snprintf(id, sizeof id, "%s%016llx", spare_prefix, static_cast<unsigned long long>(random));
    instance_spec spec;
    spec.environment_id = id;
    spec.file_system_id = spare_files;
    spec.new_files = true;
    if (!make_instance(spec)) {
      discard(id);
      pause = std::chrono::seconds(30);
      continue;
    }
    pause = std::chrono::seconds(0);
    const std::lock_guard guard(spares_mutex_);
    spares_.emplace_back(id);
  }
}

void bubblewrap::discard(const std::string& environment_id) {
  if (auto place = open_environment(environment_id, false); place && place->run)
    (void)clean_up(*place);
  if (auto removed = remove_through_trash(environments_.get(), environment_id, environment_id); removed)
    uids_->release(environment_id);
}

std::optional<created_instance> bubblewrap::claim_spare(const instance_spec& spec) {
  if (!spec.new_files || spec.network != "none" || spec.image || !(spec.limits == environment_limits{})
      || !is_valid_name(spec.environment_id) || !is_valid_name(spec.file_system_id) || uids_->find(spec.environment_id)
      || ::faccessat(environments_.get(), spec.environment_id.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0)
    return std::nullopt;
  std::string id;
  {
    const std::lock_guard guard(spares_mutex_);
    if (spares_.empty())
      return std::nullopt;
    id = std::move(spares_.front());
    spares_.pop_front();
  }
  const auto claim = [&]() -> std::optional<created_instance> {
    auto place = open_environment(id, false);
    auto record = place && place->run ? recorded(*place) : std::nullopt;
    if (!record || !record->started || !is_current(*record))
      return std::nullopt;
    const auto files = open_directory(place->directory.get(), "files");
    record->generation = spec.generation;
    record->created_at = now_microseconds();
    record->file_system = spec.file_system_id;
    // The sandbox doesn't notice: what is mounted stays mounted whatever its directory is called. Until the last rename
    // a crash leaves a spare, which the next start discards.
    if (!files || ::renameat(files.get(), spare_files, files.get(), spec.file_system_id.c_str()) != 0
        || !replace_file(place->run.get(), record_file, write_record(*record), 0600)
        || (root_ && !uids_->rename(id, spec.environment_id))
        || ::renameat2(environments_.get(), id.c_str(), environments_.get(), spec.environment_id.c_str(),
                       RENAME_NOREPLACE)
               != 0)
      return std::nullopt;
    // One flush of the directory takes the renames along; the ledger is flushed by its own.
    if (!uids_->sync() || ::fsync(environments_.get()) != 0 || ::fsync(files.get()) != 0)
      return std::nullopt;
    return created_instance{
        write_handle({spec.environment_id, spec.generation}), record->created_at, {"/workspace", "/skills", "/tmp"}};
  };
  auto claimed = claim();
  if (!claimed)
    discard(id);
  // Only now: to make the next one at the same moment would slow this one down.
  spares_changed_.notify_all();
  return claimed;
}

// -- ending
// ------------------------------------------------------------------------------------------------------------

std::optional<bubblewrap::past_launch> bubblewrap::launched(const environment& place) const {
  const unique_fd file(::openat(place.run.get(), launch_file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file)
    return std::nullopt;
  // A launch that just began still holds the lock; it needs a moment to say who it is.
  const auto deadline = steady::now() + std::chrono::seconds(2);
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && steady::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto text = read_file(place.run.get(), launch_file).value_or("");
  long long pid = 0;
  unsigned long long start = 0;
  if (std::sscanf(text.c_str(), "%lld %llu", &pid, &start) != 2)
    return std::nullopt;
  past_launch found;
  found.launcher = {static_cast<pid_t>(pid), start};
  // bubblewrap tells a pid alone. It is that process only if it began right after the launcher.
  constexpr std::uint64_t longest_start_ticks = 30 * 100;
  if (const auto child = parse_child_pid(text)) {
    if (const auto identity = identify(*child);
        identity && identity->start_time >= start && identity->start_time - start <= longest_start_ticks)
      found.first = *identity;
  }
  return found;
}

/// Ends a launch that may be anywhere between its first instruction and a running sandbox.
void bubblewrap::kill_launch(const past_launch& launch) const {
  send_signal(launch.first, SIGKILL);
  if (!is_alive(launch.launcher))
    return;
  // Stopped first, and seen to be stopped, so that it makes no child between the look and the kill.
  send_signal(launch.launcher, SIGSTOP);
  const auto deadline = steady::now() + std::chrono::seconds(2);
  while (is_alive(launch.launcher) && !is_stopped(launch.launcher.pid) && steady::now() < deadline)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  for (const auto pid : descendants(launch.launcher.pid))
    ::kill(pid, SIGKILL);
  send_signal(launch.launcher, SIGKILL);
}

provider_result<void> bubblewrap::clean_up(const environment& place) {
  const auto deadline = steady::now() + options_.stop_deadline;
  auto groups = groups_.places(place.id);
  bool ended = true;
  const auto record = recorded(place);
  if (record && record->boot == boot_) {
    groups = record->cgroups;
    const auto launch = launched(place);
    // The first process of the pid namespace takes all others with it.
    send_signal(record->agent, SIGKILL);
    if (launch)
      kill_launch(*launch);
    if (is_frozen(groups))
      set_frozen(groups, false, deadline);
    ended = wait_gone(record->agent, deadline);
    // bubblewrap ends after the sandbox, by itself or by the kill above.
    if (launch)
      ended = wait_gone(launch->first, deadline) && wait_gone(launch->launcher, deadline) && ended;
  }
  ended = kill_all(groups, deadline) && ended;
  reap();
  if (!ended)
    return fail(provider_errc::unavailable, "processes of the sandbox are still there");
  if (!remove(groups, deadline))
    return fail(provider_errc::unavailable, errno_text("removing the sandbox's cgroup"));
  for (const char* name : {socket_file, launch_file, record_file})
    ::unlinkat(place.run.get(), name, 0);
  return {};
}

provider_result<void> bubblewrap::destroy(const std::string& environment_id, const std::string&,
                                          std::uint64_t generation) {
  reap();
  auto place = open_environment(environment_id, false);
  if (!place)
    return tl::unexpected(place.error());
  if (!place->run)
    return {};
  if (const auto record = recorded(*place); record && record->generation > generation && record->boot == boot_)
    return fail(provider_errc::younger_generation,
                "the instance is of generation " + std::to_string(record->generation));
  return clean_up(*place);
}

provider_result<void> bubblewrap::remove_through_trash(int at, const std::string& name, const std::string& label) {
  // Out of the way in one step: what is being removed is never seen half, and a crash leaves it to the next start.
  const auto target = label + "." + std::to_string(::getpid()) + "." + std::to_string(trashed_++);
  if (::renameat(at, name.c_str(), trash_.get(), target.c_str()) != 0)
    return errno == ENOENT ? provider_result<void>() : fail_errno("removing " + label);
  if (!remove_tree(trash_.get(), target))
    return fail_errno("removing " + label);
  return {};
}

provider_result<void> bubblewrap::destroy_files(const std::string& environment_id, const std::string& file_system_id) {
  auto place = open_environment(environment_id, false);
  if (!place)
    return tl::unexpected(place.error());
  if (!is_valid_name(file_system_id))
    return fail(provider_errc::refused, "not a file-system id");
  if (!place->directory)
    return {};
  if (const auto record = recorded(*place); record && is_current(*record) && record->file_system == file_system_id)
    return fail(provider_errc::refused, "a running instance uses these files");
  const auto files = open_directory(place->directory.get(), "files");
  if (!files)
    return {};
  return remove_through_trash(files.get(), file_system_id, environment_id + "." + file_system_id);
}

provider_result<void> bubblewrap::forget(const std::string& environment_id) {
  auto place = open_environment(environment_id, false);
  if (!place)
    return tl::unexpected(place.error());
  if (place->run) {
    if (const auto record = recorded(*place); record && is_current(*record))
      return fail(provider_errc::refused, "an instance of this environment runs");
    if (auto cleaned = clean_up(*place); !cleaned)
      return cleaned;
  }
  if (place->directory) {
    const auto files = open_directory(place->directory.get(), "files");
    if (files && ::unlinkat(place->directory.get(), "files", AT_REMOVEDIR) != 0 && errno != ENOENT)
      return fail(provider_errc::refused, "files of this environment exist");
    if (auto removed = remove_through_trash(environments_.get(), environment_id, environment_id); !removed)
      return removed;
  }
  // Last: from here on another environment may get the uid.
  return uids_->release(environment_id) ? provider_result<void>() : fail_errno("uids");
}

// -- suspend, resume, look
// ---------------------------------------------------------------------------------------------

/// Without a freezer: stops (or continues) everything in the sandbox by signals.
bool bubblewrap::set_stopped(const instance_record& record, bool stopped) const {
  const auto deadline = steady::now() + options_.stop_deadline;
  const int signal = stopped ? SIGSTOP : SIGCONT;
  for (;;) {
    bool all = true;
    auto pids = descendants(record.agent.pid);
    pids.insert(stopped ? pids.begin() : pids.end(), record.agent.pid);
    for (const auto pid : pids) {
      if (is_stopped(pid) == stopped)
        continue;
      all = false;
      ::kill(pid, signal);
    }
    // A process that was being made during a pass is seen by the next one.
    if (all || !stopped)
      return true;
    if (steady::now() >= deadline)
      return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

provider_result<void> bubblewrap::suspend(const std::string& handle, std::uint64_t generation) {
  auto live = find_live(handle);
  if (!live)
    return live.error().code == provider_errc::gone ? provider_result<void>() : tl::unexpected(live.error());
  auto& [place, record] = *live;
  if (record.generation > generation)
    return fail(provider_errc::younger_generation,
                "the instance is of generation " + std::to_string(record.generation));
  if (has_freezer(record.cgroups)) {
    if (!set_frozen(record.cgroups, true, steady::now() + options_.stop_deadline))
      return fail(provider_errc::unavailable, "the sandbox didn't freeze in time");
    return {};
  }
  record.stopped = true;
  if (!replace_file(place.run.get(), record_file, write_record(record), 0600))
    return fail_errno("recording the instance");
  if (!set_stopped(record, true))
    return fail(provider_errc::unavailable, "the sandbox didn't stop in time");
  return {};
}

provider_result<void> bubblewrap::resume(const std::string& handle) {
  auto live = find_live(handle);
  if (!live)
    return tl::unexpected(live.error());
  auto& [place, record] = *live;
  if (is_frozen(record.cgroups) && !set_frozen(record.cgroups, false, steady::now() + options_.stop_deadline))
    return fail(provider_errc::unavailable, "the sandbox didn't thaw in time");
  if (record.stopped) {
    set_stopped(record, false);
    record.stopped = false;
    if (!replace_file(place.run.get(), record_file, write_record(record), 0600))
      return fail_errno("recording the instance");
  }
  return {};
}

provider_result<instance_status> bubblewrap::inspect(const std::string& handle) {
  const auto live = find_live(handle);
  if (!live)
    return live.error().code == provider_errc::gone ? provider_result<instance_status>(instance_status::gone)
                                                    : tl::unexpected(live.error());
  const auto& record = live->second;
  return record.stopped || is_frozen(record.cgroups) ? instance_status::suspended : instance_status::running;
}

provider_result<int> bubblewrap::open(const std::string& handle) {
  const auto live = find_live(handle);
  if (!live)
    return tl::unexpected(live.error());
  const auto& [place, record] = *live;
  if (record.stopped || is_frozen(record.cgroups))
    return fail(provider_errc::unavailable, "the instance is suspended");
  // Non-blocking: a full queue of a hung agent answers at once instead of holding this thread.
  unique_fd connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto address = socket_address(place.run.get());
  if (!connection)
    return fail_errno("socket");
  if (::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    // The agent may have died since the look above.
    return fail(is_alive(record.agent) ? provider_errc::unavailable : provider_errc::gone,
                errno_text("agent's socket"));
  }
  ::fcntl(connection.get(), F_SETFL, 0);
  return connection.release();
}

// -- children
// ----------------------------------------------------------------------------------------------------------

void bubblewrap::remember_child(pid_t pid) {
  const std::lock_guard guard(children_mutex_);
  children_.insert(pid);
}

/// Only processes that were started here, each by its pid: children of others are theirs.
void bubblewrap::reap() {
  const std::lock_guard guard(children_mutex_);
  std::erase_if(children_, [](pid_t pid) {
    siginfo_t info{};
    const int status = ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG);
    return (status == 0 && info.si_pid == pid) || (status < 0 && errno == ECHILD);
  });
}

} // namespace

tl::expected<std::unique_ptr<actors::provider_backend>, std::string> make_bubblewrap(bubblewrap_options options) {
  auto provider = std::make_unique<bubblewrap>(std::move(options));
  if (auto started = provider->start(); !started)
    return tl::unexpected(started.error());
  return std::unique_ptr<actors::provider_backend>(std::move(provider));
}

} // namespace holt::providers
