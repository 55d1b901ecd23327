#pragma once

#include <chrono>
#include <string_view>

#include "actors/ec.hpp"
#include "actors/front.hpp"
#include "actors/messages.hpp"

/// What callers read of a failure: one place for words, retry times and details (spec 16, 94).
namespace holt::actors {

/// `retry_after` overrides the code's own. Words never name paths, hosts or secrets.
use_error answer_of(ec code, std::optional<std::chrono::milliseconds> retry_after = {});

/// A use that failed so.
use_result failed_use(ec code, std::optional<std::chrono::milliseconds> retry_after = {});

/// A one-shot way back for a use; answers server.stopping if it is dropped.
std::shared_ptr<once<use_result>> once_for(use_reply reply);
std::shared_ptr<once<lifecycle_result>> once_for(std::function<void(lifecycle_result)> reply);
std::shared_ptr<once<environment_activity>> once_for(std::function<void(environment_activity)> reply);

} // namespace holt::actors
