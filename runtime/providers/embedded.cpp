#include "runtime/providers/embedded.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <openssl/evp.h>

extern "C" {
extern const char holt_embedded_agent_begin[];
extern const char holt_embedded_agent_end[];
extern const char holt_embedded_launch_begin[];
extern const char holt_embedded_launch_end[];
}

namespace holt::providers {

namespace {

namespace fs = std::filesystem;

/// Of both programs, so that an agent is never paired with another version's launcher.
std::string hash_of_both() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  EVP_DigestInit_ex(context, EVP_sha256(), nullptr);
  for (const auto program : {embedded_agent(), embedded_launcher()})
    EVP_DigestUpdate(context, program.data(), program.size());
  EVP_DigestFinal_ex(context, digest.data(), &size);
  EVP_MD_CTX_free(context);
  std::string text;
  for (unsigned at = 0; at < 8 && at < size; ++at) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", digest[at]);
    text += hex;
  }
  return text;
}

bool install(const fs::path& path, std::string_view content) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && static_cast<std::size_t>(status.st_size) == content.size()
      && (status.st_mode & 0111) != 0)
    return true;
  const auto temporary = path.string() + ".new-" + std::to_string(::getpid());
  ::unlink(temporary.c_str());
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
  if (file < 0)
    return false;
  bool whole = ::fchmod(file, 0755) == 0;
  while (whole && !content.empty()) {
    const ssize_t size = ::write(file, content.data(), content.size());
    if (size < 0 && errno == EINTR)
      continue;
    whole = size > 0;
    if (whole)
      content.remove_prefix(static_cast<std::size_t>(size));
  }
  // A program cut by a power failure would be found again at the next start.
  whole = whole && ::fsync(file) == 0;
  whole = ::close(file) == 0 && whole;
  return whole && ::rename(temporary.c_str(), path.c_str()) == 0;
}

} // namespace

std::string_view embedded_agent() {
  return {holt_embedded_agent_begin, static_cast<std::size_t>(holt_embedded_agent_end - holt_embedded_agent_begin)};
}

std::string_view embedded_launcher() {
  return {holt_embedded_launch_begin, static_cast<std::size_t>(holt_embedded_launch_end - holt_embedded_launch_begin)};
}

tl::expected<installed_programs, std::string> install_embedded_programs(const fs::path& data_dir) {
  const auto directory = data_dir / "bin" / hash_of_both();
  std::error_code error;
  fs::create_directories(directory, error);
  for (const auto& made : {data_dir / "bin", directory})
    fs::permissions(made, fs::perms(0755), error);
  installed_programs result{directory / "holt-agent", directory / "holt-launch"};
  if (!install(result.agent, embedded_agent()) || !install(result.launcher, embedded_launcher()))
    return tl::unexpected("writing " + directory.string() + ": " + std::strerror(errno));
  return result;
}

} // namespace holt::providers
