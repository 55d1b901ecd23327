#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "protocols/openapi.hpp"
#include "runtime/http/exchange.hpp"

/// The table of routes, each with its page of the API document, so that the document is true by construction (spec 91).
/// Filled once, then read by any thread.
namespace holt::runtime::http {

using handler = task<> (*)(exchange&);
/// For answers that wait for nothing: no coroutine.
using plain_handler = void (*)(exchange&);

struct route {
  protocols::route_doc doc;
  handler run = nullptr;
  plain_handler run_plain = nullptr;
  std::uint8_t scopes = 0; // any of them is enough; 0: open to all
  /// GET that may stand in for HEAD.
  bool head_too = true;

  // made by add()
  verb method = verb::get;
  std::vector<std::string> segments{}; // "{…}": any one; a last "{path}": all that is left
  std::size_t index = 0;
};

struct match {
  const route* found = nullptr;
  std::array<std::string_view, 4> params;
  std::string allow; // when only the method is wrong
};

class route_table {
public:
  void add(route one);
  match find(verb method, std::string_view path) const;
  const std::vector<std::unique_ptr<route>>& all() const {
    return routes_;
  }

private:
  std::vector<std::unique_ptr<route>> routes_;
};

std::string_view verb_name(verb method);

// Each in its own routes_….cpp.
void add_server_routes(route_table& table);
void add_environment_routes(route_table& table);
void add_exec_routes(route_table& table);
void add_process_routes(route_table& table);
void add_file_routes(route_table& table);
void add_terminal_routes(route_table& table);
void add_identity_routes(route_table& table);

void add_all_routes(route_table& table);

} // namespace holt::runtime::http
