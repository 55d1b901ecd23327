#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "agent/files/path_locks.hpp"
#include "agent/files/root_table.hpp"

namespace holt::tests {

/// An instance's directories in a new temporary directory: workspace, skills (read only), tmp, and `outside`, which no
/// path may reach.
class temporary_tree : public ::testing::Test {
protected:
  temporary_tree() {
    std::string pattern = (std::filesystem::temp_directory_path() / "holt-files-XXXXXX").string();
    base = ::mkdtemp(pattern.data());
    for (auto name : {"workspace", "skills", "tmp", "outside"})
      std::filesystem::create_directory(base + "/" + name);
    workspace = base + "/workspace";
    outside = base + "/outside";
    put(outside + "/secret", "secret");
    std::vector<agent::files::root> list;
    for (auto name : {"workspace", "skills", "tmp"}) {
      auto path = base + "/" + name;
      descriptors.emplace_back(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
      list.push_back({path, descriptors.back().get(), std::string(name) == "skills"});
    }
    roots = std::make_unique<agent::files::root_table>(std::move(list));
  }

  ~temporary_tree() override {
    std::error_code ignored;
    std::filesystem::permissions(workspace, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(base, ignored);
  }

  static void put(const std::string& path, const std::string& content) {
    std::ofstream file(path, std::ios::binary);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    ASSERT_TRUE(file.flush()) << path;
  }
  static std::string get(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void link(const std::string& target, const std::string& name) {
    ASSERT_EQ(::symlink(target.c_str(), (workspace + "/" + name).c_str()), 0);
  }
  void directory(const std::string& name) {
    std::filesystem::create_directories(workspace + "/" + name);
  }
  /// Names in a directory, to see that nothing is left behind.
  static std::vector<std::string> names(const std::string& path) {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(path))
      out.push_back(entry.path().filename().string());
    std::sort(out.begin(), out.end());
    return out;
  }

  std::string base;
  std::string workspace;
  std::string outside;
  std::vector<agent::files::descriptor> descriptors;
  std::unique_ptr<agent::files::root_table> roots;
  agent::files::path_locks locks;
};

} // namespace holt::tests
