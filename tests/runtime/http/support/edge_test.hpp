#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <gtest/gtest.h>

#include "runtime/http/server.hpp"
#include "tests/runtime/http/support/fake_front.hpp"
#include "tests/runtime/http/support/raw_client.hpp"

/// A server on a free loopback port with a store of its own, two orgs and a key of each kind.
namespace holt::tests::http {

class edge_test : public testing::Test {
protected:
  explicit edge_test(runtime::http::server_settings settings = {});
  ~edge_test() override;

  std::uint16_t port() const {
    return server_->port();
  }
  /// A whole exchange on a connection of its own.
  response call(std::string_view method, std::string_view target, std::string_view body = {}, std::string_view headers = {});
  response call_as(std::string_view key, std::string_view method, std::string_view target, std::string_view body = {},
                   std::string_view headers = {});
  /// POST /v1/environments; its id.
  std::string new_environment(std::string_view body = "{}");
  /// A key of this org with these scopes, straight into the store.
  std::string make_key(const std::string& org, std::vector<std::string> scopes);

  static boost::json::value json(const response& answer);
  static std::string code(const response& answer);

  std::shared_ptr<storage::store> store_;
  fake_front front_;
  std::unique_ptr<runtime::http::http_server> server_;
  std::string org_, other_org_;
  std::string key_, other_key_, use_key_;

private:
  std::string directory_;
  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{context_.get_executor()};
  std::vector<std::thread> threads_;
};

} // namespace holt::tests::http
