#pragma once

#include <functional>
#include <future>

#include "storage/store.hpp"

namespace holt::runtime::process {

/// One answer of the store, waited for: only main's thread, before the server serves and after it has stopped.
template <class T>
storage::store_result<T> wait_for(const std::function<void(storage::store_reply<T>)>& ask) {
  std::promise<storage::store_result<T>> answer;
  ask([&](storage::store_result<T> result) { answer.set_value(std::move(result)); });
  return answer.get_future().get();
}

} // namespace holt::runtime::process
