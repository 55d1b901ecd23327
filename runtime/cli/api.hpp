#pragma once

#include <map>
#include <string>
#include <string_view>

#include <boost/json/value.hpp>

#include "runtime/cli/failure.hpp"
#include "runtime/cli/http_client.hpp"

/// The API as the client's commands call it: JSON in, JSON or a failure out. One thread at a time.
namespace holt::runtime::cli {

/// What a status and its problem+json mean to a person: the exit code, and the server's own words.
failure failure_of(const http_head& head, std::string_view body);

/// Everything but letters, digits and `-._~` percent-encoded; `keep_slashes` for paths.
std::string percent_encode(std::string_view text, bool keep_slashes);

/// An absolute path inside an environment, as it stands in a URL: "files/workspace/a%20b".
std::string files_target(const std::string& environment_id, std::string_view absolute_path);

/// A name of bytes as JSON: the text where it is UTF-8, else {"b64": …}; and back. nullopt: it is neither.
boost::json::value name_to_json(std::string_view bytes);
std::optional<std::string> name_from_json(const boost::json::value& json);

/// A fresh id for an operation: "op_" and 128 random bits.
std::string new_op_id();

class api {
public:
  /// `timeout`: longest silence of the server. A first use may have to create a sandbox.
  explicit api(server_access access, std::chrono::milliseconds timeout = std::chrono::minutes(2))
      : client_(std::move(access)), timeout_(timeout) {
  }

  http_client& client() {
    return client_;
  }

  result<boost::json::value> get(const std::string& target);
  result<boost::json::value> post(const std::string& target, const boost::json::value& body);
  /// A POST that is known to the server by `op_id`, so that asking twice does it once.
  result<boost::json::value> post_once(const std::string& target, const boost::json::value& body,
                                       const std::string& op_id);
  result<boost::json::value> remove(const std::string& target);

  /// The id of an environment that is named by its id (env_…) or its name. A name that several have is refused.
  result<std::string> find_environment(const std::string& name_or_id);
  /// Where relative paths start.
  result<std::string> workspace_of(const std::string& environment_id);
  /// `path` made absolute: below the workspace if it is relative.
  result<std::string> absolute_path(const std::string& environment_id, const std::string& path);

private:
  result<boost::json::value> send(http_request request);

  http_client client_;
  std::chrono::milliseconds timeout_;
  std::map<std::string, std::string> workspaces_;
};

/// A member's text, or "" when there is none.
std::string_view text_at(const boost::json::value& object, std::string_view key);

} // namespace holt::runtime::cli
