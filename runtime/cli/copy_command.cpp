#include "runtime/cli/copy_command.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>

#include <sys/stat.h>
#include <unistd.h>

#include "protocols/json.hpp"
#include "runtime/cli/local_file.hpp"
#include "runtime/cli/transfer.hpp"
#include "runtime/cli/units.hpp"

namespace holt::runtime::cli {

namespace fs = std::filesystem;
namespace json = protocols::json;

namespace {

constexpr unsigned deepest = 256;

/// One line on the terminal that is drawn over, at most ten times a second. Nothing where stderr is no terminal.
class progress_line {
public:
  explicit progress_line(bool wanted) : shown_(wanted && ::isatty(2)) {
  }
  ~progress_line() {
    if (drawn_)
      (void)write_all(2, "\r\033[K");
  }
  void begin(const std::string& name, std::optional<std::uint64_t> size) {
    name_ = name;
    size_ = size;
    done_ = 0;
  }
  void add(std::uint64_t bytes) {
    done_ += bytes;
    all_ += bytes;
    auto now = std::chrono::steady_clock::now();
    if (!shown_ || now - last_ < std::chrono::milliseconds(100))
      return;
    last_ = now;
    drawn_ = true;
    auto seconds = std::chrono::duration<double>(now - start_).count();
    std::string line = "\r\033[K";
    for (unsigned char c : name_.size() > 40 ? "…" + name_.substr(name_.size() - 40) : name_)
      line += c < ' ' || c == 127 ? '?' : static_cast<char>(c);
    line += "  " + size_text(done_);
    if (size_ && *size_ > 0)
      line +=
          " of " + size_text(*size_) + " (" + std::to_string(std::min<std::uint64_t>(100, done_ * 100 / *size_)) + "%)";
    line += "  " + size_text(static_cast<std::uint64_t>(static_cast<double>(all_) / std::max(seconds, 0.001))) + "/s";
    (void)write_all(2, line);
  }
  /// A line of its own, which stays.
  void say(const std::string& words) {
    (void)write_all(2, (drawn_ ? "\r\033[K" : "") + words + "\n");
    drawn_ = false;
  }

private:
  bool shown_;
  bool drawn_ = false;
  std::string name_;
  std::optional<std::uint64_t> size_;
  std::uint64_t done_ = 0;
  std::uint64_t all_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_{};
};

std::string last_name(std::string path) {
  while (path.size() > 1 && path.ends_with('/'))
    path.pop_back();
  auto slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string joined(const std::string& folder, const std::string& name) {
  return folder.ends_with('/') ? folder + name : folder + '/' + name;
}

/// One run of cp: what is counted, what was left out.
class copier {
public:
  copier(api& server, const copy_options& options, std::string environment_id)
      : server_(server), options_(options), environment_id_(std::move(environment_id)), line_(!options.json) {
  }

  result<int> into_environment(const std::string& from, std::string to);
  result<int> out_of_environment(std::string from, std::string to);

private:
  struct remote_entry {
    std::string name;
    std::string type;
    std::uint64_t size = 0;
    mode_t mode = 0644;
  };

  result<std::optional<remote_entry>> stat_there(const std::string& path);
  static remote_entry read_entry(const boost::json::value& item);
  result<void> make_directory_there(const std::string& path);
  result<void> send_tree(const fs::path& from, const std::string& to, unsigned depth);
  result<void> send_file(const std::string& from, const std::string& to);
  result<void> fetch_tree(const std::string& from, const std::string& to, unsigned depth);
  result<void> fetch_file(const std::string& from, const std::string& to, const remote_entry& entry);
  void leave_out(const std::string& path, std::string_view why) {
    ++left_out_;
    line_.say("holt: not copied: " + path + " (" + std::string(why) + ")");
  }
  int finish();
  std::string fs_target(const char* call) const {
    return "/v1/environments/" + environment_id_ + "/fs/" + call;
  }

  api& server_;
  const copy_options& options_;
  std::string environment_id_;
  progress_line line_;
  std::uint64_t files_ = 0;
  std::uint64_t directories_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t left_out_ = 0;
};

int copier::finish() {
  if (options_.json)
    (void)write_all(1,
                    json::write_text(json::object{
                        {"files", files_}, {"directories", directories_}, {"bytes", bytes_}, {"left_out", left_out_}})
                        + '\n');
  return left_out_ ? exit_refused : exit_ok;
}

copier::remote_entry copier::read_entry(const boost::json::value& item) {
  remote_entry entry;
  entry.type = text_at(item, "type");
  if (!item.is_object())
    return entry;
  const auto& object = item.get_object();
  if (const auto* name = object.if_contains("name"))
    entry.name = name_from_json(*name).value_or("");
  if (const auto* size = object.if_contains("size"); size && size->is_number())
    entry.size = size->to_number<std::uint64_t>();
  auto mode = text_at(item, "mode");
  unsigned bits = 0644;
  std::from_chars(mode.data(), mode.data() + mode.size(), bits, 8);
  entry.mode = static_cast<mode_t>(bits & 0777);
  return entry;
}

result<std::optional<copier::remote_entry>> copier::stat_there(const std::string& path) {
  auto answer = server_.post(fs_target("stat"), json::object{{"path", name_to_json(path)}});
  if (answer)
    return read_entry(*answer);
  if (answer.error().problem == "file.not_found")
    return std::nullopt;
  return tl::unexpected(answer.error());
}

result<void> copier::make_directory_there(const std::string& path) {
  auto made = server_.post(fs_target("mkdir"), json::object{{"path", name_to_json(path)}, {"parents", true}});
  if (!made)
    return fail(made.error().code, path + ": " + made.error().message);
  ++directories_;
  return {};
}

result<void> copier::send_file(const std::string& from, const std::string& to) {
  std::error_code ec;
  auto size = fs::file_size(from, ec);
  line_.begin(last_name(from), ec ? std::nullopt : std::optional<std::uint64_t>(size));
  auto sent = upload_file(server_, environment_id_, from, to, [this](std::uint64_t n) { line_.add(n); });
  if (!sent)
    return tl::unexpected(sent.error());
  ++files_;
  bytes_ += sent->size;
  return {};
}

result<void> copier::send_tree(const fs::path& from, const std::string& to, unsigned depth) {
  if (depth > deepest)
    return fail(exit_usage, from.string() + " is deeper than " + std::to_string(deepest) + " directories");
  if (auto made = make_directory_there(to); !made)
    return made;
  std::error_code ec;
  std::vector<fs::directory_entry> entries;
  for (auto it = fs::directory_iterator(from, ec); !ec && it != fs::directory_iterator(); it.increment(ec))
    entries.push_back(*it);
  if (ec) {
    leave_out(from.string(), ec.message());
    return {};
  }
  std::sort(entries.begin(), entries.end());
  for (const auto& entry : entries) {
    auto path = entry.path().string();
    auto target = joined(to, entry.path().filename().string());
    auto type = entry.symlink_status(ec).type();
    if (type == fs::file_type::symlink) {
      leave_out(path, "a symbolic link");
    } else if (type == fs::file_type::directory) {
      if (auto sent = send_tree(entry.path(), target, depth + 1); !sent)
        return sent;
    } else if (type != fs::file_type::regular) {
      leave_out(path, "neither a file nor a directory");
    } else if (::access(path.c_str(), R_OK) != 0) {
      leave_out(path, "not readable");
    } else if (auto sent = send_file(path, target); !sent) {
      return sent;
    }
  }
  return {};
}

result<int> copier::into_environment(const std::string& from, std::string to) {
  std::error_code ec;
  auto type = fs::status(from, ec).type(); // the source itself may be a link, as with cp
  if (type == fs::file_type::not_found || ec)
    return fail(exit_usage,
                "cannot read " + from + " (" + (ec ? ec.message() : std::string("no such file or directory")) + ")");
  bool contents = from == "." || from.ends_with("/.");
  bool names_directory = to.empty() || to.ends_with('/');
  auto absolute = server_.absolute_path(environment_id_, to);
  if (!absolute)
    return tl::unexpected(absolute.error());
  to = *absolute;
  auto there = stat_there(to);
  if (!there)
    return tl::unexpected(there.error());
  bool is_directory = *there && (*there)->type == "directory";
  if (!contents && (is_directory || names_directory))
    to = joined(to, last_name(fs::absolute(from).lexically_normal().string()));
  while (to.size() > 1 && to.ends_with('/'))
    to.pop_back();
  auto sent = type == fs::file_type::directory ? send_tree(from, to, 0) : send_file(from, to);
  if (!sent)
    return tl::unexpected(sent.error());
  return finish();
}

result<void> copier::fetch_file(const std::string& from, const std::string& to, const remote_entry& entry) {
  std::string local = to;
  struct stat status {};
  if (::lstat(to.c_str(), &status) == 0 && S_ISLNK(status.st_mode)) { // the person's own link: its target is meant
    std::error_code ec;
    local = fs::canonical(to, ec).string();
    if (ec)
      return fail(exit_refused, "cannot write " + to + ", a link to nothing that is there");
  }
  if (::stat(local.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    return fail(exit_refused, to + " is there and no regular file; holt env cat writes to such places");
  line_.begin(last_name(from), entry.size);
  auto mode = static_cast<mode_t>((entry.mode & 0111) ? 0777 : 0666);
  auto got = download_file(server_, environment_id_, from, local, mode, [this](std::uint64_t n) { line_.add(n); });
  if (!got)
    return tl::unexpected(got.error());
  ++files_;
  bytes_ += got->size;
  return {};
}

result<void> copier::fetch_tree(const std::string& from, const std::string& to, unsigned depth) {
  if (depth > deepest)
    return fail(exit_usage, from + " is deeper than " + std::to_string(deepest) + " directories");
  if (::mkdir(to.c_str(), 0777) != 0 && errno != EEXIST)
    return fail(exit_refused, "cannot make " + to + " (" + std::generic_category().message(errno) + ")");
  struct stat status {};
  // Below the destination nothing is followed: a link there may be older than this copy, and lead anywhere.
  if ((depth > 0 ? ::lstat(to.c_str(), &status) : ::stat(to.c_str(), &status)) != 0 || !S_ISDIR(status.st_mode))
    return fail(exit_refused, to + " is in the way: it is no directory");
  ++directories_;
  auto list = server_.post(fs_target("list"), json::object{{"path", name_to_json(from)}, {"limit", 100000}});
  if (!list)
    return fail(list.error().code, from + ": " + list.error().message);
  const auto* items = list->is_object() ? list->get_object().if_contains("items") : nullptr;
  if (!items || !items->is_array())
    return fail(exit_bug, "a directory's list is not as this client knows it; is it of the server's version?");
  if (const auto* truncated = list->get_object().if_contains("truncated");
      truncated && truncated->is_bool() && truncated->get_bool())
    leave_out(from, "more than 100,000 entries: the rest of them");
  for (const auto& item : items->get_array()) {
    auto entry = read_entry(item);
    auto path = joined(from, entry.name);
    auto target = joined(to, entry.name);
    if (!safe_name(entry.name)) {
      leave_out(from + "/?", "a name that can't be a file's");
    } else if (entry.type == "symlink") {
      leave_out(path, "a symbolic link");
    } else if (entry.type == "directory") {
      if (auto got = fetch_tree(path, target, depth + 1); !got)
        return got;
    } else if (entry.type != "file") {
      leave_out(path, "neither a file nor a directory");
    } else if (struct stat here{}; ::lstat(target.c_str(), &here) == 0 && S_ISLNK(here.st_mode)) {
      leave_out(path, "a symbolic link is in its place here");
    } else if (auto got = fetch_file(path, target, entry); !got) {
      return got;
    }
  }
  return {};
}

result<int> copier::out_of_environment(std::string from, std::string to) {
  bool contents = from == "." || from.ends_with("/.");
  if (contents)
    from.pop_back();
  auto absolute = server_.absolute_path(environment_id_, from);
  if (!absolute)
    return tl::unexpected(absolute.error());
  from = *absolute;
  while (from.size() > 1 && from.ends_with('/'))
    from.pop_back();
  auto there = stat_there(from);
  if (!there)
    return tl::unexpected(there.error());
  if (!*there)
    return fail(exit_usage, "there is no " + from + " in the environment");
  std::error_code ec;
  if (!contents && (to.ends_with('/') || fs::is_directory(to, ec))) {
    auto name = last_name(from);
    if (!safe_name(name))
      return fail(exit_usage, "name the destination: " + from + " has no name of its own");
    to = joined(to, name);
  }
  auto got = (*there)->type == "directory" ? fetch_tree(from, to, 0) : fetch_file(from, to, **there);
  if (!got)
    return tl::unexpected(got.error());
  return finish();
}

} // namespace

bool safe_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos
         && name.find('\0') == std::string_view::npos;
}

copy_place parse_copy_place(const std::string& text) {
  auto colon = text.find(':');
  auto slash = text.find('/');
  if (colon == std::string::npos || colon == 0 || (slash != std::string::npos && slash < colon))
    return {std::nullopt, text};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

result<int> copy_files(api& server, const copy_options& options) {
  auto from = parse_copy_place(options.from);
  auto to = parse_copy_place(options.to);
  if (from.environment.has_value() == to.environment.has_value())
    return fail(exit_usage, from.environment ? "one side must be here; copy out of one environment, then into the other"
                                             : "one side must be in an environment, like ENV:/path or ENV:path");
  auto environment_id = server.find_environment(from.environment ? *from.environment : *to.environment);
  if (!environment_id)
    return tl::unexpected(environment_id.error());
  copier run(server, options, *environment_id);
  return from.environment ? run.out_of_environment(from.path, to.path) : run.into_environment(from.path, to.path);
}

} // namespace holt::runtime::cli
