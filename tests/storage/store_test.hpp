#pragma once

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <stdlib.h>

#include "storage/sqlite_store.hpp"

namespace holt::tests {

/// A directory of its own, gone with the test.
class temporary_directory {
public:
  temporary_directory() {
    auto name = (std::filesystem::temp_directory_path() / "holt-storage-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error("no temporary directory");
    }
    path_ = name;
  }
  temporary_directory(const temporary_directory&) = delete;
  temporary_directory& operator=(const temporary_directory&) = delete;
  ~temporary_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string file(const std::string& name) const {
    return (path_ / name).string();
  }

private:
  std::filesystem::path path_;
};

/// Makes an asynchronous call and waits for its answer: `call` takes the reply.
template <class T, class Call>
storage::store_result<T> answer_of(Call call) {
  std::promise<storage::store_result<T>> promised;
  auto answer = promised.get_future();
  call([&](storage::store_result<T> result) { promised.set_value(std::move(result)); });
  if (answer.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
    throw std::runtime_error("the store did not answer");
  }
  return answer.get();
}

inline storage::store_errc error_of(const auto& result) {
  EXPECT_FALSE(result.has_value());
  return result ? storage::store_errc{255} : result.error().code;
}

inline storage::environment_row environment(const std::string& id, const std::string& org = "org_a",
                                            std::int64_t created_at = 1000) {
  storage::environment_row row;
  row.id = id;
  row.org_id = org;
  row.name = "name of " + id;
  row.kind = "cloud";
  row.created_by = "user_1";
  row.created_at = created_at;
  row.updated_at = created_at;
  return row;
}

inline storage::instance_row instance(const std::string& environment_id, const std::string& status = "running") {
  storage::instance_row row;
  row.environment_id = environment_id;
  row.provider = "bubblewrap";
  row.handle = R"({"a":1})";
  row.file_system_id = "fs_1";
  row.status = status;
  row.host_id = "host_1";
  row.boot_id = "boot_1";
  row.instance_created_at = 5;
  row.last_used_at = 10;
  return row;
}

inline storage::operation_row deletion(const std::string& id, std::int64_t at = 7) {
  storage::operation_row row;
  row.id = id;
  row.kind = "environment.delete";
  row.status = "running";
  row.created_at = at;
  row.updated_at = at;
  return row;
}

/// What to list, for a test to fill in further.
inline storage::environment_filter list_of(const std::string& org,
                                           const std::map<std::string, std::string>& labels = {}) {
  storage::environment_filter filter;
  filter.org_id = org;
  filter.labels = labels;
  return filter;
}

/// The store's calls, each waiting for its answer.
class waiting_store {
public:
  explicit waiting_store(std::shared_ptr<storage::store> over) : store_(std::move(over)) {
  }

  storage::store& operator*() {
    return *store_;
  }

#define HOLT_WAITING(Type, name)                                                                                       \
  template <class... Args>                                                                                             \
  storage::store_result<Type> name(Args... args) {                                                                     \
    return answer_of<Type>([&](auto reply) { store_->name(std::move(args)..., std::move(reply)); });                   \
  }
  HOLT_WAITING(storage::environment_row, create_environment)
  HOLT_WAITING(storage::environment_record, get_environment)
  HOLT_WAITING(storage::page<storage::environment_record>, list_environments)
  HOLT_WAITING(storage::environment_row, update_environment)
  HOLT_WAITING(storage::operation_row, delete_environment)
  HOLT_WAITING(storage::environment_record, load_environment)
  HOLT_WAITING(storage::instance_row, write_instance)
  HOLT_WAITING(std::uint64_t, next_epoch)
  HOLT_WAITING(std::string, swap_seen)
  HOLT_WAITING(bool, purge_environment)
  HOLT_WAITING(storage::page<storage::environment_record>, list_instances)
  HOLT_WAITING(storage::operation_row, get_operation)
  HOLT_WAITING(bool, finish_operation)
  HOLT_WAITING(storage::org_row, create_org)
  HOLT_WAITING(storage::page<storage::org_row>, list_orgs)
  HOLT_WAITING(storage::org_row, get_org)
  HOLT_WAITING(bool, delete_org)
  HOLT_WAITING(storage::user_row, create_user)
  HOLT_WAITING(storage::page<storage::user_row>, list_users)
  HOLT_WAITING(bool, delete_user)
  HOLT_WAITING(storage::key_row, create_key)
  HOLT_WAITING(storage::page<storage::key_row>, list_keys)
  HOLT_WAITING(bool, delete_key)
  HOLT_WAITING(storage::key_row, find_key)
  HOLT_WAITING(std::uint64_t, count_keys)
  HOLT_WAITING(std::string, incarnation)
  HOLT_WAITING(bool, ping)
#undef HOLT_WAITING

private:
  std::shared_ptr<storage::store> store_;
};

/// A store in a fresh file, with the orgs org_a and org_b.
class store_test : public ::testing::Test {
protected:
  void SetUp() override {
    open();
    ASSERT_TRUE(db().create_org(storage::org_row{"org_a", "A", 1}));
    ASSERT_TRUE(db().create_org(storage::org_row{"org_b", "B", 2}));
  }

  void open() {
    auto opened = storage::open_sqlite_store(path(), options_);
    ASSERT_TRUE(opened) << opened.error().detail;
    store_ = std::make_unique<waiting_store>(*opened);
  }

  void reopen() {
    (**store_).close();
    open();
  }

  waiting_store& db() {
    return *store_;
  }

  std::string path() const {
    return directory_.file("holt.db");
  }

  temporary_directory directory_;
  storage::sqlite_store_options options_;
  std::unique_ptr<waiting_store> store_;
};

} // namespace holt::tests
