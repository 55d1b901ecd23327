#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/unique_fd.hpp"

namespace holt::agent {

enum class output_kind : std::uint8_t { out, err };

struct log_caps {
  /// Bytes kept from the beginning, and from the end.
  std::uint64_t head = 8 * 1024 * 1024;
  std::uint64_t tail = 8 * 1024 * 1024;
};

struct log_range {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  friend bool operator==(const log_range&, const log_range&) = default;
};

/// What is needed to read an ended log again; kept in the ledger.
struct log_record {
  log_caps caps;
  std::uint64_t end = 0;
  std::uint64_t failed_from = ~0ull;
  output_kind base = output_kind::out;
  bool mixed = false;
  bool in_files = false;
  std::string data;  // of a log that was never put into files
  std::string marks; // its kinds, one bit a byte; empty when it has one kind only

  std::string encode() const;
  static std::optional<log_record> decode(std::string_view bytes);
};

/// One process's output (spec 38): append only, one position for both kinds, each byte knows its kind. The first and the
/// last bytes are kept. Up to 16 KiB it lives in memory, beyond that in two sparse files of the state directory: the data
/// (head, then a ring), and one bit a byte for its kind, written only once both kinds have appeared.
///
/// Main thread only. A file that can't be written (disk full) loses everything from there on, which the omitted range says.
class output_log {
public:
  /// `dir` must outlive the log. Files are named NAME.log and NAME.kinds.
  output_log(int dir, std::string name, log_caps caps);
  output_log(int dir, std::string name, log_record record);

  void append(output_kind kind, std::string_view bytes);

  std::uint64_t end() const {
    return record_.end;
  }

  /// What the log doesn't keep.
  std::optional<log_range> omitted() const;

  struct piece {
    std::uint64_t at = 0; // later than asked for when bytes in between are gone
    std::size_t size = 0; // 0: nothing from there on (at is the end then)
    output_kind kind = output_kind::out;
  };

  /// The first piece of one kind at or after `at`, at most `room` bytes. `live` readers also get what the ring happens to
  /// hold beyond the caps, so that a reader a little behind misses nothing.
  piece read(std::uint64_t at, char* buffer, std::size_t room, bool live) const;

  /// Bytes in files.
  std::uint64_t stored() const;
  const log_record& record() const {
    return record_;
  }

  static void remove_files(int dir, const std::string& name);

private:
  std::uint64_t ring() const;
  std::uint64_t place(std::uint64_t position) const;
  bool spill();
  bool write_data(std::uint64_t position, std::string_view bytes);
  bool write_kinds(std::uint64_t position, std::uint64_t size, bool other);
  bool open_kinds();
  std::size_t run_length(std::uint64_t place, std::size_t limit, bool& other) const;

  int dir_;
  std::string name_;
  log_record record_;
  mutable unique_fd data_;
  mutable unique_fd kinds_;
  /// The bits of the byte that the end lies in.
  unsigned char open_bits_ = 0;
};

} // namespace holt::agent
