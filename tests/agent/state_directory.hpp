#pragma once

#include <filesystem>
#include <string>

#include <fcntl.h>
#include <stdlib.h>

#include "agent/unique_fd.hpp"

namespace holt::tests {

/// An empty directory with a descriptor, removed at the end.
class state_directory {
public:
  state_directory() {
    std::string name = std::filesystem::temp_directory_path() / "holt-state-XXXXXX";
    path_ = ::mkdtemp(name.data());
    fd_.reset(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  ~state_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  state_directory(const state_directory&) = delete;

  int fd() const {
    return fd_.get();
  }
  const std::filesystem::path& path() const {
    return path_;
  }

private:
  std::filesystem::path path_;
  agent::unique_fd fd_;
};

} // namespace holt::tests
