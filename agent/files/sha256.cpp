// OpenSSL 3 wants EVP here. EVP would pull the providers, configuration and error strings of libcrypto into the static
// agent (megabytes); the block function alone is a few KiB and the same code.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include "agent/files/sha256.hpp"

#include <cerrno>
#include <unistd.h>
#include <vector>

namespace holt::agent::files {

struct sha256::state {
  SHA256_CTX context;
};

sha256::sha256() : state_(std::make_unique<state>()) {
  SHA256_Init(&state_->context);
}
sha256::~sha256() = default;
sha256::sha256(sha256&&) noexcept = default;
sha256& sha256::operator=(sha256&&) noexcept = default;

void sha256::update(std::string_view bytes) {
  SHA256_Update(&state_->context, bytes.data(), bytes.size());
}

std::string sha256::finish() {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256_Final(digest, &state_->context);
  constexpr char digits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * sizeof(digest));
  for (auto byte : digest) {
    hex += digits[byte >> 4];
    hex += digits[byte & 15];
  }
  return hex;
}

std::string sha256::of(std::string_view bytes) {
  sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

std::string sha256_of_file(int fd) {
  sha256 hash;
  std::vector<char> buffer(64 * 1024);
  for (off_t at = 0;;) {
    auto count = ::pread(fd, buffer.data(), buffer.size(), at);
    if (count < 0) {
      if (errno == EINTR)
        continue;
      return {};
    }
    if (count == 0)
      return hash.finish();
    hash.update({buffer.data(), static_cast<std::size_t>(count)});
    at += count;
  }
}

bool same_hash(std::string_view a, std::string_view b) {
  if (a.size() != b.size())
    return false;
  auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  for (std::size_t i = 0; i < a.size(); ++i)
    if (lower(a[i]) != lower(b[i]))
      return false;
  return true;
}

} // namespace holt::agent::files
