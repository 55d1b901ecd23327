#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace holt::agent::files {

/// SHA-256, fed piece by piece. One thread at a time.
class sha256 {
public:
  sha256();
  ~sha256();
  sha256(sha256&&) noexcept;
  sha256& operator=(sha256&&) noexcept;

  void update(std::string_view bytes);

  /// Lower-case hex of all that was fed. Call once.
  std::string finish();

  static std::string of(std::string_view bytes);

private:
  struct state;
  std::unique_ptr<state> state_;
};

/// Hashes an open file from its beginning to its end, by its own position-free reads. Empty and errno set on failure.
std::string sha256_of_file(int fd);

/// Whether two hex hashes are the same, whatever their case.
bool same_hash(std::string_view a, std::string_view b);

} // namespace holt::agent::files
