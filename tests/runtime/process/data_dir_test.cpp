#include "runtime/process/data_dir.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

namespace holt::runtime::process {
namespace {

class data_dir_test : public ::testing::Test {
protected:
  data_dir_test() {
    std::string pattern = ::testing::TempDir() + "holt-data-XXXXXX";
    base_ = ::mkdtemp(pattern.data());
  }
  ~data_dir_test() override {
    std::filesystem::remove_all(base_);
  }
  std::string base_;
};

TEST_F(data_dir_test, it_is_made_and_nobody_else_may_list_it) {
  auto opened = open_data_dir(base_ + "/a/b");
  ASSERT_TRUE(opened) << opened.error();
  struct stat status {};
  ASSERT_EQ(::stat(opened->path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0711u);
  ::close(opened->lock);
}

TEST_F(data_dir_test, a_second_server_on_it_is_refused) {
  auto first = open_data_dir(base_ + "/d");
  ASSERT_TRUE(first);
  auto second = open_data_dir(base_ + "/d");
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().find("another holt"), std::string::npos);
  ::close(first->lock);
  auto third = open_data_dir(base_ + "/d");
  EXPECT_TRUE(third);
  ::close(third->lock);
}

TEST_F(data_dir_test, the_host_keeps_its_id) {
  auto first = open_data_dir(base_ + "/d");
  ASSERT_TRUE(first);
  ::close(first->lock);
  auto second = open_data_dir(base_ + "/d");
  ASSERT_TRUE(second);
  EXPECT_EQ(first->host_id, second->host_id);
  EXPECT_GT(first->host_id.size(), 20u);
  ::close(second->lock);
}

TEST_F(data_dir_test, a_private_file_is_whole_and_only_its_owners) {
  auto path = base_ + "/key";
  ASSERT_TRUE(write_private_file(path, "one\n"));
  ASSERT_TRUE(write_private_file(path, "two\n"));
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(status.st_size, 4);
  EXPECT_FALSE(write_private_file(base_ + "/no/such/place", "x"));
}

} // namespace
} // namespace holt::runtime::process
