#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "agent/body.hpp"
#include "agent/files/root_table.hpp"
#include "agent/files/sha256.hpp"

namespace holt::agent::files {

/// One file.read (spec 45), pulled by its caller, so that a slow receiver simply doesn't ask. Only regular files; opening
/// never blocks on a pipe or a device. One thread at a time; keeps no buffer.
class file_reader {
public:
  /// Checks if_match (which reads the whole file once).
  static result<file_reader> open(const root_table& roots, const protocols::agent::file_read& arguments);

  /// Fills from the range; 0 is its end (earlier than announced if the file was shortened meanwhile).
  result<std::size_t> read(std::span<char> buffer);

  /// What was read so far; sha256 only if that was the whole file.
  protocols::agent::file_read_result finish();

private:
  file_reader() = default;

  descriptor fd_;
  std::string path_;
  protocols::agent::file_read_result result_;
  std::uint64_t left_ = 0;
  std::optional<sha256> hash_;
};

/// The whole operation, into a body. A cancelled one gives file.cancelled.
result<protocols::agent::file_read_result> read_file(const root_table& roots, const protocols::agent::file_read& arguments,
                                                     body_sink& body);

/// Opens a regular file for reading, following links inside the roots. Refuses everything else, without blocking.
result<opened> open_regular(const root_table& roots, std::string_view path);

} // namespace holt::agent::files
