#include "runtime/http/secrets.hpp"

#include <array>
#include <cstring>
#include <stdexcept>

#include <openssl/rand.h>
#include <openssl/sha.h>

#include "protocols/base64.hpp"

namespace holt::runtime::http {

namespace {

std::array<unsigned char, SHA256_DIGEST_LENGTH> sha256(std::string_view bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return digest;
}

void fill_random(void* into, int size) {
  if (RAND_bytes(static_cast<unsigned char*>(into), size) != 1)
    throw std::runtime_error("the system's random source failed");
}

} // namespace

std::string sha256_hex(std::string_view bytes) {
  auto digest = sha256(bytes);
  return protocols::hex_encode({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

std::string random_id(protocols::id_kind kind) {
  protocols::id_bytes bytes;
  fill_random(bytes.data(), bytes.size());
  return protocols::format_id(kind, bytes);
}

std::string random_key() {
  std::array<char, 32> bytes;
  fill_random(bytes.data(), bytes.size());
  return "holt_" + protocols::base64url_encode({bytes.data(), bytes.size()});
}

std::string derived_id(protocols::id_kind kind, std::string_view first, std::string_view second) {
  // The length keeps ("a", "bc") apart from ("ab", "c").
  std::string text = "holt id " + std::to_string(first.size()) + ":";
  text.append(first).append(second);
  auto digest = sha256(text);
  protocols::id_bytes bytes;
  std::memcpy(bytes.data(), digest.data(), bytes.size());
  return protocols::format_id(kind, bytes);
}

} // namespace holt::runtime::http
