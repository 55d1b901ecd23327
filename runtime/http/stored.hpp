#pragma once

#include <utility>

#include "runtime/http/core.hpp"

/// Calls of the store from handlers.
namespace holt::runtime::http {

/// `co_await stored<Row>(x, [=](auto& store, auto reply) { store.get_…(…, reply); })`
template <class T, class Call>
task<storage::store_result<T>> stored(exchange& x, Call call) {
  auto start = [store = x.core().parts.store, call = std::move(call)](auto reply) mutable { call(*store, std::move(reply)); };
  co_return co_await answer_of<storage::store_result<T>>(std::move(start));
}

/// `not_found` is the code of a missing row.
void refuse_stored(exchange& x, const storage::store_error& error, std::string_view not_found, std::string_view what);

} // namespace holt::runtime::http
