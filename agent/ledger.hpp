#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/unique_fd.hpp"

namespace holt::agent {

struct ledger_limits {
  /// How long an id is known (spec 44).
  std::chrono::microseconds known_for = std::chrono::hours{24 * 30};
  std::size_t results = 10'000;
  /// Results with their logs, in memory records and in files.
  std::uint64_t bytes = 256ull * 1024 * 1024;
  /// The file is rewritten when it has this size and has doubled since it was last written.
  std::uint64_t least_compaction = 1024 * 1024;
};

/// What the agent has done, so that nothing is done twice (spec 44): an append-only file of checksummed records, the
/// latest record of an id counts. In memory an id costs 8 to 16 bytes.
///
/// Main thread only. Survives a kill at any point: a torn record at the end is dropped. An id that was started in an
/// earlier run and has no result is `unknown`.
class ledger {
public:
  enum class state : std::uint8_t {
    never,
    /// Started in this run.
    running,
    done,
    /// Started, no result, and the run that started it has ended.
    unknown,
    /// Done, and the result is dropped.
    expired,
  };

  struct entry {
    ledger::state state = ledger::state::never;
    std::string digest;
    std::string operation;
    std::int64_t time = 0; // microseconds since 1970, of the record
    /// Of a done one: what op.result said, as JSON; and the record of its log, encoded.
    std::string result;
    std::string log;
    std::uint64_t log_id = 0; // names the log's files; 0: none
    std::uint64_t stored = 0; // bytes in those files
  };

  /// `dir` must outlive the ledger. Drops what is too old and files of logs that nothing names.
  /// `now`: microseconds since 1970.
  ledger(int dir, ledger_limits limits, std::int64_t now);

  /// False: the file can't be written, so nothing may be started.
  bool ok() const {
    return static_cast<bool>(file_);
  }

  entry find(std::string_view op_id) const;

  /// Before the act. `durable`: on the disk before this returns. False: not written; don't act.
  bool start(std::string_view op_id, std::string_view digest, std::string_view operation, std::int64_t now, bool durable);

  /// After the act; again when more is known. Oldest results are dropped where the limits ask for it.
  bool finish(std::string_view op_id, entry result, std::int64_t now);

  /// Proven never to have happened: the id may be used again.
  void release(std::string_view op_id, std::int64_t now);

  /// Drops the result, keeps the id. Nothing for an id that isn't done.
  void forget(std::string_view op_id, std::int64_t now);

  /// The last ended operations of this name with a result, newest first.
  std::vector<std::pair<std::string, entry>> recent(std::string_view operation, std::size_t count) const;

  /// Highest epoch accepted in this incarnation; 0 when none was.
  std::uint64_t epoch(std::string_view incarnation) const;
  void set_epoch(std::string_view incarnation, std::uint64_t epoch, std::int64_t now);

  /// A number that names a new log's files; unique in the state directory.
  std::uint64_t new_log_id() {
    return ++last_log_id_;
  }
  static std::string log_name(std::uint64_t log_id);

  std::uint64_t file_bytes() const {
    return size_;
  }

private:
  struct record;
  struct result_ref {
    std::uint64_t offset;
    std::uint64_t bytes;
    bool operator<(const result_ref& other) const {
      return offset < other.offset;
    }
  };

  std::uint64_t lookup(std::string_view op_id, record* found) const;
  void remember(std::string_view op_id, std::uint64_t offset);
  void place(std::uint64_t slot);
  bool read_record(std::uint64_t offset, record& out) const;
  bool append(const record& what, bool durable, std::uint64_t& offset);
  void drop_result(std::uint64_t offset, std::int64_t now);
  void forget_ref(std::uint64_t offset);
  void enforce_limits(std::int64_t now);
  void maybe_compact(std::int64_t now);
  bool compact(std::int64_t now, bool opening);
  void load();
  void remove_stray_logs() const;

  int dir_;
  ledger_limits limits_;
  unique_fd file_;
  std::uint64_t size_ = 0;
  std::uint64_t compacted_size_ = 0;
  /// Records from here on are of this run.
  std::uint64_t run_begins_ = 0;
  std::uint64_t last_log_id_ = 0;
  /// Open addressing: the upper half of an id's hash, and the offset of its latest record in units of 8 (plus 1).
  std::vector<std::uint64_t> table_;
  std::size_t used_ = 0;
  /// Kept results in the order of their records.
  std::deque<result_ref> results_;
  std::uint64_t result_bytes_ = 0;
  std::vector<std::pair<std::string, std::uint64_t>> epochs_;
};

} // namespace holt::agent
