#include "runtime/cli/transfer.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "protocols/base64.hpp"
#include "protocols/json.hpp"
#include "runtime/cli/local_file.hpp"

namespace holt::runtime::cli {

namespace json = protocols::json;
using namespace std::chrono_literals;

namespace {

constexpr auto longest_silence = std::chrono::seconds(60);

class sha256 {
public:
  sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    restart();
  }
  void restart() {
    EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
  }
  void add(std::string_view bytes) {
    EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
  }
  std::string hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &size);
    return protocols::hex_encode({reinterpret_cast<const char*>(digest), size});
  }

private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

/// The hash in an ETag, if it is one.
std::optional<std::string> hash_of_tag(std::string_view tag) {
  if (tag.starts_with("W/"))
    return std::nullopt;
  if (tag.size() >= 2 && tag.front() == '"' && tag.back() == '"')
    tag = tag.substr(1, tag.size() - 2);
  if (auto colon = tag.rfind(':'); colon != std::string_view::npos)
    tag = tag.substr(colon + 1);
  if (tag.size() != 64 || tag.find_first_not_of("0123456789abcdef") != std::string_view::npos)
    return std::nullopt;
  return std::string(tag);
}

result<std::string> hash_there(api& server, const std::string& environment_id, const std::string& path) {
  auto stat = server.post("/v1/environments/" + environment_id + "/fs/stat",
                          json::object{{"path", name_to_json(path)}, {"hash", true}});
  if (!stat)
    return tl::unexpected(stat.error());
  return std::string(text_at(*stat, "sha256"));
}

/// Reads the body of a GET into `take`, and verifies what came.
result<transfer_outcome> fetch(api& server, const std::string& environment_id, const std::string& remote_path,
                               const std::function<result<void>(std::string_view)>& take) {
  auto& client = server.client();
  auto head = client.open({.target = files_target(environment_id, remote_path)});
  if (!head)
    return tl::unexpected(head.error());
  if (head->status != 200) {
    auto body = client.read_rest();
    auto why = failure_of(*head, body ? *body : std::string{});
    return fail(why.code, remote_path + ": " + why.message);
  }
  sha256 hash;
  transfer_outcome outcome;
  std::string buffer(256 * 1024, '\0');
  for (;;) {
    auto n = client.read_body(buffer, longest_silence);
    if (!n)
      return tl::unexpected(n.error());
    if (*n == 0)
      break;
    std::string_view piece(buffer.data(), *n);
    hash.add(piece);
    outcome.size += piece.size();
    if (auto taken = take(piece); !taken)
      return tl::unexpected(taken.error());
  }
  outcome.sha256 = hash.hex();
  auto expected = hash_of_tag(head->header("ETag"));
  if (!expected) {
    auto asked = hash_there(server, environment_id, remote_path);
    if (!asked)
      return tl::unexpected(asked.error());
    expected = *asked;
  }
  if (*expected != outcome.sha256)
    return fail(exit_unavailable,
                remote_path
                    + " arrived with another hash than it has there; it may have been changed meanwhile, try again");
  return outcome;
}

} // namespace

result<transfer_outcome> upload_file(api& server, const std::string& environment_id, const std::string& local_path,
                                     const std::string& remote_path, const transfer_progress& progress) {
  file_descriptor fd(::open(local_path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)); // a FIFO must not hang it
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0)
    return fail(exit_usage, "cannot read " + local_path + " (" + std::strerror(errno) + ")");
  if (!S_ISREG(status.st_mode))
    return fail(exit_usage, local_path + " is no regular file");

  sha256 hash;
  body_source source;
  source.size = static_cast<std::uint64_t>(status.st_size);
  source.read = [&](std::uint64_t offset, std::span<char> buffer) -> result<std::size_t> {
    auto n = ::pread(fd.get(), buffer.data(), std::min<std::uint64_t>(buffer.size(), source.size - offset),
                     static_cast<off_t>(offset));
    if (n < 0)
      return fail(exit_usage, "cannot read " + local_path + " (" + std::strerror(errno) + ")");
    if (offset == 0)
      hash.restart();
    hash.add({buffer.data(), static_cast<std::size_t>(n)});
    if (progress)
      progress(static_cast<std::uint64_t>(n));
    return static_cast<std::size_t>(n);
  };
  bool executable = (status.st_mode & 0111) != 0;
  auto response =
      server.client().call({.method = "PUT",
                            .target = files_target(environment_id, remote_path) + (executable ? "?mode=0755" : ""),
                            .headers = {{"Content-Type", "application/octet-stream"}},
                            .source = &source});
  if (!response)
    return tl::unexpected(response.error());
  if (response->head.status / 100 != 2) {
    auto why = failure_of(response->head, response->body);
    return fail(why.code, remote_path + ": " + why.message);
  }
  transfer_outcome outcome{source.size, hash.hex()};
  auto answer = json::parse_text(response->body);
  auto there = answer ? std::string(text_at(*answer, "sha256")) : std::string{};
  if (there.empty())
    there = hash_of_tag(response->head.header("ETag")).value_or("");
  if (there.empty()) {
    auto asked = hash_there(server, environment_id, remote_path);
    if (!asked)
      return tl::unexpected(asked.error());
    there = *asked;
  }
  if (there != outcome.sha256)
    return fail(exit_unavailable,
                remote_path + " has another hash than was sent; it may have been changed meanwhile, try again");
  return outcome;
}

result<transfer_outcome> download_file(api& server, const std::string& environment_id, const std::string& remote_path,
                                       const std::string& local_path, mode_t mode, const transfer_progress& progress) {
  auto mask = ::umask(0);
  ::umask(mask);
  auto cannot = [&](std::error_code ec) {
    return fail(exit_refused, "cannot write " + local_path + " (" + ec.message() + ")");
  };
  auto file = replacement_file::open(local_path, mode & ~mask & 0777);
  if (!file)
    return cannot(file.error());
  auto outcome = fetch(server, environment_id, remote_path, [&](std::string_view piece) -> result<void> {
    if (auto ec = write_all(file->fd(), piece))
      return cannot(ec);
    if (progress)
      progress(piece.size());
    return {};
  });
  if (!outcome)
    return outcome;
  if (auto ec = file->finish(false))
    return cannot(ec);
  return outcome;
}

result<transfer_outcome> print_file(api& server, const std::string& environment_id, const std::string& remote_path,
                                    int fd) {
  return fetch(server, environment_id, remote_path, [&](std::string_view piece) -> result<void> {
    if (auto ec = write_all(fd, piece))
      return fail(exit_refused, "cannot write the output (" + ec.message() + ")");
    return {};
  });
}

} // namespace holt::runtime::cli
