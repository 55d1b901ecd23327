#pragma once

#include <cstdint>
#include <string_view>

#include <sys/stat.h>

#include "agent/body.hpp"
#include "agent/files/path_locks.hpp"
#include "agent/files/root_table.hpp"
#include "agent/files/sha256.hpp"

namespace holt::agent::files {

/// New content beside a file, invisible until published: an unnamed file where the file system has them, else one named
/// ".holt-…" that is removed when given up. Publishing syncs the bytes, then renames over the target, so that every
/// reader finds the old or the new file, whole. One thread at a time.
class staged_file {
public:
  /// REQUIRES: `where` from root_table::locate with last_link::follow. Fails on a read-only root and on what isn't a file.
  static result<staged_file> begin(location where);
  staged_file(staged_file&& other) noexcept;
  staged_file& operator=(staged_file&&) = delete;
  ~staged_file();

  result<void> append(std::string_view bytes);

  struct published {
    bool created = false;
  };
  /// An existing file keeps its mode and (where we may) its owner; a new one gets `mode`. With `must_be_new`, an entry
  /// that appeared meanwhile is left alone: file.changed. REQUIRES: the path's lock is held.
  result<published> publish(unsigned mode, bool must_be_new);

  const location& where() const {
    return where_;
  }

private:
  staged_file() = default;
  result<void> name_it();

  location where_;
  descriptor fd_;
  std::string temporary_; // its name while it has one
};

/// One file.write (spec 45): begin, append the body, commit. Nothing shows before commit, and all that isn't committed is
/// taken away by the destructor. One thread at a time.
class file_writer {
public:
  /// `locks` and `roots` must outlive the writer.
  static result<file_writer> begin(const root_table& roots, path_locks& locks, protocols::agent::file_write arguments);

  /// Fails as soon as more comes than was announced.
  result<void> append(std::string_view bytes);

  /// Verifies size, hash and if_match, then publishes.
  result<protocols::agent::file_write_result> commit();

private:
  file_writer(path_locks& locks, protocols::agent::file_write arguments, staged_file file)
      : locks_(&locks), arguments_(std::move(arguments)), file_(std::move(file)) {
  }

  path_locks* locks_;
  protocols::agent::file_write arguments_;
  staged_file file_;
  sha256 hash_;
  std::uint64_t size_ = 0;
};

/// The whole operation, from a body. A body that ends early (cancelled, session gone) gives file.cancelled.
result<protocols::agent::file_write_result> write_file(const root_table& roots, path_locks& locks,
                                                       protocols::agent::file_write arguments, body_source& body);

/// Compares the present content of an entry with `if_match`: "" means there is none. REQUIRES: the path's lock is held.
result<void> check_if_match(const location& where, const std::string& if_match);

} // namespace holt::agent::files
