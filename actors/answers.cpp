#include "actors/answers.hpp"

#include <unistd.h>

namespace holt::actors {

namespace {

using std::chrono::milliseconds;

struct wording {
  const char* message;
  milliseconds retry_after; // 0: trying again the same way doesn't help
};

wording words_of(ec code) {
  switch (code) {
    case ec::busy:
      return {"Too many uses of this environment wait already, or this one waited too long.", milliseconds{1000}};
    case ec::lease_lost:
      return {"The right to use the environment was lost meanwhile; nothing was written.", milliseconds{1000}};
    case ec::cancelled:
      return {"The operation was cancelled before it began.", milliseconds{0}};
    case ec::conflict:
      return {"The operation id is in use for something else.", milliseconds{0}};
    case ec::not_found:
      return {"There is no such environment.", milliseconds{0}};
    case ec::not_running:
      return {"The environment has no running instance.", milliseconds{0}};
    case ec::files_lost:
      return {"The environment's files are lost; reset it to begin with new ones.", milliseconds{0}};
    case ec::environment_unavailable:
      return {"The environment's files are kept by a provider that isn't available.", milliseconds{5000}};
    case ec::sandbox_unavailable:
      return {"The sandbox can't be reached at the moment.", milliseconds{2000}};
    case ec::sandbox_refused:
      return {"The sandbox was refused: a limit, or something that this machine can't give.", milliseconds{0}};
    case ec::sandbox_failed:
      return {"The sandbox could not be made ready.", milliseconds{5000}};
    case ec::instance_gone:
      return {"The instance went away twice while the operation was tried.", milliseconds{1000}};
    case ec::outcome_unknown:
      return {"The operation may have run or not; it was not tried again.", milliseconds{0}};
    case ec::expired:
      return {"The operation's result is no longer kept.", milliseconds{0}};
    case ec::detached:
      return {"The operation goes on; ask for it by its id.", milliseconds{0}};
    case ec::stopping:
      return {"The server is stopping.", milliseconds{1000}};
    case ec::store_unavailable:
      return {"The database can't be reached at the moment.", milliseconds{1000}};
    case ec::none:
    case ec::internal:
    case ec::count:
      break;
  }
  return {"Something went wrong in the server.", milliseconds{0}};
}

} // namespace

use_error answer_of(ec code, std::optional<milliseconds> retry_after) {
  auto words = words_of(code);
  use_error error;
  error.code = to_string(code);
  error.message = words.message;
  if (!retry_after && words.retry_after.count() > 0)
    retry_after = words.retry_after;
  error.retry_after = retry_after;
  return error;
}

use_result failed_use(ec code, std::optional<milliseconds> retry_after) {
  use_result result;
  result.error = answer_of(code, retry_after);
  return result;
}

std::shared_ptr<once<use_result>> once_for(use_reply reply) {
  return std::make_shared<once<use_result>>(std::move(reply), [] { return failed_use(ec::stopping); });
}

std::shared_ptr<once<lifecycle_result>> once_for(std::function<void(lifecycle_result)> reply) {
  return std::make_shared<once<lifecycle_result>>(std::move(reply), [] {
    return lifecycle_result{.error = answer_of(ec::stopping), .record = {}};
  });
}

std::shared_ptr<once<environment_activity>> once_for(std::function<void(environment_activity)> reply) {
  return std::make_shared<once<environment_activity>>(std::move(reply), [] { return environment_activity{}; });
}

held_socket::~held_socket() {
  if (socket_ >= 0)
    ::close(socket_);
}

} // namespace holt::actors
