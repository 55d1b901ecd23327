#include "actors/error.hpp"

namespace holt::actors {

ec code_of(const caf::error& error, ec otherwise) {
  if (!error)
    return ec::none;
  if (error.category() == caf::detail::error_factory<ec>::category && error.code() < static_cast<std::uint8_t>(ec::count))
    return static_cast<ec>(error.code());
  return otherwise;
}

caf::error error_with(ec code, std::string detail) {
  return caf::make_error(code, std::move(detail));
}

std::string detail_of(const caf::error& error) {
  if (error && error.context().match_elements<std::string>())
    return error.context().get_as<std::string>(0);
  return {};
}

} // namespace holt::actors
