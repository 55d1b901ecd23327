#include "storage/sql_store.hpp"

namespace holt::storage {

void sql_store::swap_seen(std::string environment_id, std::string holder, std::string identity, std::int64_t expires_at,
                          store_reply<std::string> reply) {
  // What stands right of SET is the row as it was: `former` gets the identity that is replaced, unless it had expired.
  const auto now = now_();
  unit work;
  work.push_back({"INSERT INTO seen (environment_id, holder, identity, former, expires_at) VALUES ($1, $2, $3, '', $4) "
                  "ON CONFLICT (environment_id, holder) DO UPDATE SET "
                  "former = CASE WHEN seen.expires_at > $5 THEN seen.identity ELSE '' END, "
                  "identity = excluded.identity, expires_at = excluded.expires_at RETURNING former",
                  values(std::move(environment_id), std::move(holder), std::move(identity), expires_at, now)});
  if (seen_swaps_.fetch_add(1, std::memory_order_relaxed) % 256 == 255) {
    // Expired rows count as absent already; this only gives their space back.
    database_->write_lazily("expired seen", now, {{"DELETE FROM seen WHERE expires_at <= $1", values(now)}});
  }
  database_->write(std::move(work),
                   answer(std::move(reply), [](const unit_result& done) { return done[0].rows[0].text(0); }));
}

} // namespace holt::storage
