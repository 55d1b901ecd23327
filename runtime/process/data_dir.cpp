#include "runtime/process/data_dir.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "protocols/base64.hpp"

namespace holt::runtime::process {

namespace {

std::string because(const std::string& what) {
  return what + ": " + std::strerror(errno);
}

std::string read_line(const std::string& path) {
  std::ifstream in{path};
  std::string line;
  std::getline(in, line);
  return line;
}

} // namespace

tl::expected<void, std::string> write_private_file(const std::string& path, const std::string& content) {
  auto beside = path + ".new";
  ::unlink(beside.c_str());
  int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0)
    return tl::unexpected(because("cannot write " + path));
  std::size_t done = 0;
  while (done < content.size()) {
    auto written = ::write(fd, content.data() + done, content.size() - done);
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      break;
    done += static_cast<std::size_t>(written);
  }
  bool good = done == content.size() && ::fsync(fd) == 0;
  auto failure = because("cannot write " + path);
  ::close(fd);
  if (!good || ::rename(beside.c_str(), path.c_str()) != 0) {
    ::unlink(beside.c_str());
    return tl::unexpected(failure);
  }
  return {};
}

tl::expected<data_dir, std::string> open_data_dir(const std::string& path) {
  std::error_code error;
  data_dir opened;
  opened.path = std::filesystem::absolute(path, error).lexically_normal().string();
  bool existed = std::filesystem::exists(opened.path, error);
  std::filesystem::create_directories(opened.path, error);
  if (error)
    return tl::unexpected("cannot make the data directory " + opened.path + ": " + error.message() +
                          "; name another with --data-dir");
  if (!existed && ::chmod(opened.path.c_str(), 0711) != 0)
    return tl::unexpected(because("cannot set the mode of " + opened.path));

  auto lock_path = opened.path + "/lock";
  opened.lock = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (opened.lock < 0)
    return tl::unexpected(because("cannot open " + lock_path) + "; name another directory with --data-dir");
  if (::flock(opened.lock, LOCK_EX | LOCK_NB) != 0) {
    ::close(opened.lock);
    return tl::unexpected("another holt serves from " + opened.path + "; stop it, or name another directory with --data-dir");
  }

  auto id_path = opened.path + "/host-id";
  opened.host_id = read_line(id_path);
  if (opened.host_id.empty()) {
    unsigned char random[16];
    if (::getrandom(random, sizeof random, 0) != sizeof random)
      return tl::unexpected(because("cannot get random bytes"));
    opened.host_id = "host_" + protocols::hex_encode({reinterpret_cast<const char*>(random), sizeof random});
    if (auto written = write_private_file(id_path, opened.host_id + "\n"); !written)
      return tl::unexpected(written.error());
  }
  return opened;
}

std::string boot_id() {
  return read_line("/proc/sys/kernel/random/boot_id");
}

} // namespace holt::runtime::process
