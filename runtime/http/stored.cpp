#include "runtime/http/stored.hpp"

namespace holt::runtime::http {

void refuse_stored(exchange& x, const storage::store_error& error, std::string_view not_found, std::string_view what) {
  switch (error.code) {
  case storage::store_errc::not_found:
    return x.refuse(not_found, "There is no such " + std::string{what} + ".");
  case storage::store_errc::conflict:
    return x.refuse("operation.conflict", "There is such a " + std::string{what} + " already.");
  case storage::store_errc::fenced:
    return x.refuse("lease.lost", "Somebody else changed it meanwhile; ask again.");
  case storage::store_errc::unavailable:
    x.add_header("Retry-After", "1");
    return x.refuse("storage.unavailable", "The database does not answer; try again.");
  case storage::store_errc::invalid:
    return x.refuse("request.invalid", "The cursor is none that this list gave.");
  case storage::store_errc::internal:
    break;
  }
  x.core().log("error", "http.storage",
               protocols::json::write_text(protocols::json::object{{"request_id", x.request_id}, {"detail", error.detail}}));
  x.refuse("server.internal", "A fault of the server; its log has more under this request's id.");
}

} // namespace holt::runtime::http
