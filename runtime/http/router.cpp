#include "runtime/http/router.hpp"

#include <stdexcept>

namespace holt::runtime::http {

namespace {

constexpr std::array<std::pair<std::string_view, verb>, 7> verbs{{{"GET", verb::get},
                                                                  {"HEAD", verb::head},
                                                                  {"POST", verb::post},
                                                                  {"PUT", verb::put},
                                                                  {"PATCH", verb::patch},
                                                                  {"DELETE", verb::del},
                                                                  {"OPTIONS", verb::options}}};

/// Whether `path` is one that the route serves; fills the parameters.
bool fits(const route& one, std::string_view path, std::array<std::string_view, 4>& params) {
  std::size_t param = 0;
  path.remove_prefix(1); // the leading slash
  for (std::size_t i = 0; i < one.segments.size(); ++i) {
    const std::string& wanted = one.segments[i];
    if (wanted == "{path}" && i + 1 == one.segments.size()) {
      params[param] = path;
      return !path.empty();
    }
    auto slash = path.find('/');
    bool last = i + 1 == one.segments.size();
    if (last != (slash == std::string_view::npos))
      return false;
    auto segment = path.substr(0, slash);
    if (wanted.front() == '{') {
      if (segment.empty())
        return false;
      params[param++] = segment;
    } else if (segment != wanted) {
      return false;
    }
    path = last ? std::string_view{} : path.substr(slash + 1);
  }
  return true;
}

} // namespace

std::string_view verb_name(verb method) {
  for (auto& [name, value] : verbs)
    if (value == method)
      return name;
  return "OTHER";
}

void route_table::add(route one) {
  auto known = std::find_if(verbs.begin(), verbs.end(), [&](auto& entry) { return entry.first == one.doc.method; });
  if (known == verbs.end() || (one.run == nullptr) == (one.run_plain == nullptr))
    throw std::logic_error("a route needs a method and one handler: " + one.doc.path);
  one.method = known->second;
  one.index = routes_.size();
  one.doc.open = one.scopes == 0;
  if (one.scopes & scope_use)
    one.doc.scopes.push_back("use");
  if (one.scopes & scope_manage)
    one.doc.scopes.push_back("manage");
  if (one.scopes & scope_operate)
    one.doc.scopes.push_back("operate");
  std::string_view rest = one.doc.path;
  rest.remove_prefix(1);
  while (true) {
    auto slash = rest.find('/');
    one.segments.emplace_back(rest.substr(0, slash));
    if (slash == std::string_view::npos)
      break;
    rest.remove_prefix(slash + 1);
  }
  routes_.push_back(std::make_unique<route>(std::move(one)));
}

match route_table::find(verb method, std::string_view path) const {
  match out;
  const route* instead_of_head = nullptr;
  std::array<std::string_view, 4> head_params;
  for (auto& one : routes_) {
    std::array<std::string_view, 4> params;
    if (!fits(*one, path, params))
      continue;
    if (one->method == method) {
      out.found = one.get();
      out.params = params;
      return out;
    }
    if (method == verb::head && one->method == verb::get && one->head_too) {
      instead_of_head = one.get();
      head_params = params;
    }
    out.allow += out.allow.empty() ? "" : ", ";
    out.allow += verb_name(one->method);
    if (one->method == verb::get && one->head_too)
      out.allow += ", HEAD";
  }
  if (instead_of_head) {
    out.found = instead_of_head;
    out.params = head_params;
  }
  return out;
}

void add_all_routes(route_table& table) {
  add_server_routes(table);
  add_exec_routes(table);
  add_process_routes(table);
  add_file_routes(table);
  add_environment_routes(table);
  add_terminal_routes(table);
  add_identity_routes(table);
}

} // namespace holt::runtime::http
