#include "storage/migrations/plan.hpp"

#include <algorithm>
#include <array>

#include <openssl/evp.h>

namespace holt::storage {

std::string migration_hash(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr);
  static constexpr char digits[] = "0123456789abcdef";
  std::string hex;
  for (unsigned i = 0; i < size; ++i) {
    hex += digits[digest[i] >> 4];
    hex += digits[digest[i] & 15];
  }
  return hex;
}

tl::expected<std::vector<migration>, std::string> plan_migrations(const std::vector<applied_migration>& applied,
                                                                  const std::vector<migration>& known) {
  const std::int64_t latest_known = known.empty() ? 0 : known.back().version;
  std::int64_t latest_applied = 0;
  for (const auto& done : applied) {
    latest_applied = std::max(latest_applied, done.version);
    auto ours = std::find_if(known.begin(), known.end(), [&](const auto& m) { return m.version == done.version; });
    if (ours == known.end()) {
      if (done.version > latest_known && done.oldest_reader <= latest_known) {
        continue;
      }
      return tl::unexpected("the database has schema version " + std::to_string(done.version)
                            + ", and this holt knows versions up to " + std::to_string(latest_known)
                            + ": start a newer holt on it, or restore a backup from before the upgrade");
    }
    if (migration_hash(ours->text) != done.hash) {
      return tl::unexpected("migration " + std::to_string(done.version) + " of this holt differs from the one that was "
                            + "applied to the database: they come from different builds");
    }
  }
  std::vector<migration> pending;
  for (const auto& ours : known) {
    bool done = std::any_of(applied.begin(), applied.end(), [&](const auto& a) { return a.version == ours.version; });
    if (done) {
      continue;
    }
    if (ours.version < latest_applied) {
      return tl::unexpected("migration " + std::to_string(ours.version) + " was never applied to the database, and "
                            + std::to_string(latest_applied) + " was: they come from different builds");
    }
    pending.push_back(ours);
  }
  return pending;
}

} // namespace holt::storage
