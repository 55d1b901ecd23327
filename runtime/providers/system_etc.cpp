#include "runtime/providers/system_etc.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <system_error>

#include "runtime/providers/fd.hpp"

namespace holt::providers {

namespace fs = std::filesystem;

namespace {

// Readable by everyone on the machine, needed by programs, and free of secrets. Keys below ssl/private are not among
// them.
constexpr const char* copied[] = {
    "alternatives",   "ca-certificates", "ca-certificates.conf",
    "debian_version", "fonts",           "gai.conf",
    "inputrc",        "ld.so.cache",     "ld.so.conf",
    "ld.so.conf.d",   "localtime",       "magic",
    "magic.mime",     "mime.types",      "networks",
    "perl",           "protocols",       "rpc",
    "services",       "ssl/certs",       "ssl/openssl.cnf",
    "terminfo",       "timezone",
};

struct own_file {
  const char* name;
  const char* content;
};
constexpr own_file own_files[] = {
    {"passwd", "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
               "holt:x:1000:1000:holt:/workspace:/bin/sh\n"
               "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
    {"group", "root:x:0:\nholt:x:1000:\nnogroup:x:65534:\n"},
    {"hosts", "127.0.0.1 localhost holt\n::1 localhost ip6-localhost ip6-loopback\n"},
    {"hostname", "holt\n"},
    {"nsswitch.conf",
     "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\n"
     "services: files\nethers: files\nrpc: files\n"},
    {"host.conf", "multi on\n"},
    {"shells", "/bin/sh\n/bin/bash\n"},
};

/// FNV-1a: only tells versions apart, nothing depends on its strength.
struct fingerprint {
  std::uint64_t value = 14695981039346656037ULL;
  void add(const void* data, std::size_t size) {
    for (std::size_t at = 0; at < size; ++at)
      value = (value ^ static_cast<const unsigned char*>(data)[at]) * 1099511628211ULL;
  }
  void add_status(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0)
      return;
    add(&status.st_mtim, sizeof status.st_mtim);
    add(&status.st_ino, sizeof status.st_ino);
    add(&status.st_size, sizeof status.st_size);
  }
};

bool readable_by_all(const fs::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && (status.st_mode & S_IROTH) != 0;
}

void copy_public(const fs::path& from, const fs::path& to) {
  std::error_code error;
  const auto status = fs::symlink_status(from, error);
  if (error)
    return;
  if (fs::is_symlink(status)) {
    fs::copy_symlink(from, to, error);
  } else if (fs::is_directory(status)) {
    fs::create_directories(to, error);
    for (const auto& entry : fs::directory_iterator(from, fs::directory_options::skip_permission_denied, error))
      copy_public(entry.path(), to / entry.path().filename());
  } else if (fs::is_regular_file(status) && readable_by_all(from)) {
    fs::create_directories(to.parent_path(), error);
    fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
  }
}

bool write(const fs::path& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
  return static_cast<bool>(file.flush());
}

} // namespace

std::string etc_version(bool host_network) {
  fingerprint print;
  for (const char* name : copied)
    print.add_status("/etc/" + std::string(name));
  for (const auto& file : own_files)
    print.add(file.content, std::char_traits<char>::length(file.content));
  if (host_network)
    print.add_status("/etc/resolv.conf");
  char text[32];
  std::snprintf(text, sizeof text, "%016llx-%s", static_cast<unsigned long long>(print.value),
                host_network ? "host" : "none");
  return text;
}

tl::expected<fs::path, std::string> build_etc(const fs::path& parent, bool host_network) {
  static std::atomic<unsigned> counter{0};
  const auto target = parent / etc_version(host_network);
  std::error_code error;
  if (fs::exists(target, error))
    return target;
  const auto work = parent / (".new-" + std::to_string(::getpid()) + "-" + std::to_string(counter++));
  fs::remove_all(work, error);
  if (!fs::create_directories(work, error))
    return tl::unexpected("making " + work.string() + ": " + error.message());
  for (const auto& file : own_files) {
    if (!write(work / file.name, file.content))
      return tl::unexpected("writing " + (work / file.name).string());
  }
  for (const char* name : copied)
    copy_public(fs::path("/etc") / name, work / name);
  if (const auto release = read_file("/etc/os-release"))
    write(work / "os-release", *release);
  fs::create_directories(work / "skel", error);
  if (host_network) {
    if (const auto resolver = read_file("/etc/resolv.conf"))
      write(work / "resolv.conf", *resolver);
  }
  // Sandboxes run as other users than the server: all may read, whatever the server's umask.
  fs::permissions(work, fs::perms(0755), error);
  for (const auto& entry : fs::recursive_directory_iterator(work, error)) {
    if (!entry.is_symlink())
      fs::permissions(entry.path(), fs::perms(entry.is_directory() ? 0755 : 0644), error);
  }
  fs::rename(work, target, error);
  if (error) {
    fs::remove_all(work, error);
    if (!fs::exists(target, error))
      return tl::unexpected("making " + target.string());
  }
  return target;
}

} // namespace holt::providers
