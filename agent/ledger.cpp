#include "agent/ledger.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "agent/output_log.hpp"

namespace holt::agent {

namespace {

constexpr const char* file_name = "ledger";
constexpr const char* new_file_name = "ledger.new";
constexpr char magic[8] = {'h', 'o', 'l', 't', 'l', 'e', 'd', '1'};

enum class record_type : std::uint8_t { started = 1, done = 2, expired = 3, released = 4, epoch = 5 };

/// Lengths and times of a record; strings follow in this order: op_id, digest, operation, result, log.
struct fixed_part {
  std::uint32_t size = 0;     // of everything after `checksum`, without padding
  std::uint32_t checksum = 0; // of the same
  record_type type = record_type::started;
  std::uint8_t operation = 0;
  std::uint16_t op_id = 0;
  std::uint32_t digest = 0;
  std::uint32_t result = 0;
  std::uint32_t log = 0;
  std::int64_t time = 0;
  std::uint64_t log_id = 0; // or the epoch
  std::uint64_t stored = 0;
};
static_assert(sizeof(fixed_part) == 48);
constexpr std::size_t header_size = 8;

constexpr auto crc_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    auto value = i;
    for (int bit = 0; bit < 8; ++bit)
      value = (value & 1) != 0 ? 0xedb88320u ^ (value >> 1) : value >> 1;
    table[i] = value;
  }
  return table;
}();

std::uint32_t checksum(const char* bytes, std::size_t size) {
  std::uint32_t sum = ~0u;
  for (std::size_t i = 0; i < size; ++i)
    sum = crc_table[(sum ^ static_cast<unsigned char>(bytes[i])) & 0xff] ^ (sum >> 8);
  return ~sum;
}

std::uint64_t hash(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325ull;
  for (unsigned char c : text)
    value = (value ^ c) * 0x100000001b3ull;
  value ^= value >> 32;
  return value * 0x9e3779b97f4a7c15ull;
}

bool pread_all(int fd, char* bytes, std::size_t size, std::uint64_t at) {
  while (size > 0) {
    auto got = ::pread(fd, bytes, size, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return false;
    bytes += got;
    at += static_cast<std::uint64_t>(got);
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

bool pwrite_all(int fd, const char* bytes, std::size_t size, std::uint64_t at) {
  while (size > 0) {
    auto written = ::pwrite(fd, bytes, size, static_cast<off_t>(at));
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return false;
    bytes += written;
    at += static_cast<std::uint64_t>(written);
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

constexpr std::uint64_t padded(std::uint64_t size) {
  return (size + 7) / 8 * 8;
}

} // namespace

struct ledger::record {
  record_type type = record_type::started;
  std::string op_id; // or the incarnation
  entry content;
  std::uint64_t bytes = 0; // in the file, with padding

  std::string encode() const {
    fixed_part fixed;
    fixed.type = type;
    fixed.operation = static_cast<std::uint8_t>(content.operation.size());
    fixed.op_id = static_cast<std::uint16_t>(op_id.size());
    fixed.digest = static_cast<std::uint32_t>(content.digest.size());
    fixed.result = static_cast<std::uint32_t>(content.result.size());
    fixed.log = static_cast<std::uint32_t>(content.log.size());
    fixed.time = content.time;
    fixed.log_id = content.log_id;
    fixed.stored = content.stored;
    std::string out;
    auto total = sizeof fixed + op_id.size() + content.digest.size() + content.operation.size() + content.result.size()
                 + content.log.size();
    out.reserve(padded(total));
    out.resize(sizeof fixed);
    out += op_id;
    out += content.digest;
    out += content.operation;
    out += content.result;
    out += content.log;
    fixed.size = static_cast<std::uint32_t>(total - header_size);
    std::memcpy(out.data(), &fixed, sizeof fixed);
    fixed.checksum = checksum(out.data() + header_size, fixed.size);
    std::memcpy(out.data(), &fixed, sizeof fixed);
    out.resize(padded(total));
    return out;
  }
};

std::string ledger::log_name(std::uint64_t log_id) {
  return "o" + std::to_string(log_id);
}

ledger::ledger(int dir, ledger_limits limits, std::int64_t now) : dir_(dir), limits_(limits) {
  ::unlinkat(dir_, new_file_name, 0);
  file_.reset(::openat(dir_, file_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file_)
    return;
  load();
  if (size_ > sizeof magic) {
    if (!compact(now, true))
      file_.reset();
  } else if (::ftruncate(file_.get(), 0) != 0 || !pwrite_all(file_.get(), magic, sizeof magic, 0)) {
    file_.reset();
  } else {
    size_ = compacted_size_ = run_begins_ = sizeof magic;
  }
  remove_stray_logs();
}

bool ledger::read_record(std::uint64_t offset, record& out) const {
  // Most records are short: one read.
  char begin[512];
  ssize_t got;
  do {
    got = ::pread(file_.get(), begin, sizeof begin, static_cast<off_t>(offset));
  } while (got < 0 && errno == EINTR);
  fixed_part fixed;
  if (got < static_cast<ssize_t>(sizeof fixed))
    return false;
  std::memcpy(&fixed, begin, sizeof fixed);
  std::uint64_t strings = std::uint64_t{fixed.operation} + fixed.op_id + fixed.digest + fixed.result + fixed.log;
  constexpr std::uint64_t longest = 64 * 1024 * 1024;
  if (fixed.size < sizeof fixed - header_size || strings > longest || fixed.size != sizeof fixed - header_size + strings)
    return false;
  std::string body(fixed.size, '\0');
  auto here = std::min<std::size_t>(body.size(), static_cast<std::size_t>(got) - header_size);
  std::memcpy(body.data(), begin + header_size, here);
  if ((here < body.size() && !pread_all(file_.get(), body.data() + here, body.size() - here, offset + header_size + here))
      || checksum(body.data(), body.size()) != fixed.checksum)
    return false;
  std::string_view rest{body};
  rest.remove_prefix(sizeof fixed - header_size);
  auto take = [&rest](std::size_t size) {
    std::string part{rest.substr(0, size)};
    rest.remove_prefix(size);
    return part;
  };
  out.type = fixed.type;
  out.op_id = take(fixed.op_id);
  out.content.digest = take(fixed.digest);
  out.content.operation = take(fixed.operation);
  out.content.result = take(fixed.result);
  out.content.log = take(fixed.log);
  out.content.time = fixed.time;
  out.content.log_id = fixed.log_id;
  out.content.stored = fixed.stored;
  out.bytes = padded(header_size + fixed.size);
  return true;
}

void ledger::load() {
  struct stat status;
  char begin[sizeof magic];
  if (::fstat(file_.get(), &status) != 0 || !pread_all(file_.get(), begin, sizeof begin, 0)
      || std::memcmp(begin, magic, sizeof magic) != 0)
    return;
  std::uint64_t at = sizeof magic;
  record found;
  while (at < static_cast<std::uint64_t>(status.st_size) && read_record(at, found)) {
    if (found.type == record_type::epoch) {
      std::erase_if(epochs_, [&](auto& known) { return known.first == found.op_id; });
      epochs_.emplace_back(found.op_id, found.content.log_id);
    } else {
      remember(found.op_id, at);
      last_log_id_ = std::max(last_log_id_, found.content.log_id);
    }
    at += found.bytes;
  }
  size_ = at;
}

void ledger::place(std::uint64_t slot_value) {
  auto mask = table_.size() - 1;
  auto at = (slot_value >> 32) & mask;
  while (table_[at] != 0)
    at = (at + 1) & mask;
  table_[at] = slot_value;
}

void ledger::remember(std::string_view op_id, std::uint64_t offset) {
  auto tag = hash(op_id) & 0xffffffff00000000ull;
  auto value = tag | (offset / 8 + 1);
  record found;
  auto known = lookup(op_id, &found);
  if (known != ~0ull) {
    table_[known] = value;
    return;
  }
  if ((used_ + 1) * 10 > table_.size() * 9) {
    auto old = std::exchange(table_, std::vector<std::uint64_t>(std::max<std::size_t>(64, table_.size() * 2)));
    for (auto slot : old)
      if (slot != 0)
        place(slot);
  }
  ++used_;
  place(value);
}

/// The slot of an id, ~0 when it isn't known.
std::uint64_t ledger::lookup(std::string_view op_id, record* found) const {
  if (table_.empty())
    return ~0ull;
  auto tag = hash(op_id) >> 32;
  auto mask = table_.size() - 1;
  for (auto at = tag & mask; table_[at] != 0; at = (at + 1) & mask)
    if (table_[at] >> 32 == tag && read_record(((table_[at] & 0xffffffffu) - 1) * 8, *found) && found->op_id == op_id)
      return at;
  return ~0ull;
}

ledger::entry ledger::find(std::string_view op_id) const {
  record found;
  auto slot = lookup(op_id, &found);
  if (slot == ~0ull)
    return {};
  switch (found.type) {
    case record_type::started:
      found.content.state = ((table_[slot] & 0xffffffffu) - 1) * 8 >= run_begins_ ? state::running : state::unknown;
      break;
    case record_type::done:
      found.content.state = state::done;
      break;
    case record_type::expired:
      found.content.state = state::expired;
      break;
    case record_type::released:
    case record_type::epoch:
      return {};
  }
  return std::move(found.content);
}

bool ledger::append(const record& what, bool durable, std::uint64_t& offset) {
  if (!file_)
    return false;
  auto bytes = what.encode();
  if (!pwrite_all(file_.get(), bytes.data(), bytes.size(), size_)) {
    // Whatever was written of it lies beyond the end and is overwritten.
    return false;
  }
  if (durable && ::fdatasync(file_.get()) != 0)
    return false;
  offset = size_;
  size_ += bytes.size();
  return true;
}

bool ledger::start(std::string_view op_id, std::string_view digest, std::string_view operation, std::int64_t now,
                   bool durable) {
  maybe_compact(now);
  record what;
  what.type = record_type::started;
  what.op_id = op_id;
  what.content.digest = digest;
  what.content.operation = operation;
  what.content.time = now;
  std::uint64_t offset;
  if (!append(what, durable, offset))
    return false;
  remember(op_id, offset);
  return true;
}

bool ledger::finish(std::string_view op_id, entry result, std::int64_t now) {
  record what;
  if (auto slot = lookup(op_id, &what); slot != ~0ull && what.type == record_type::done)
    forget_ref(((table_[slot] & 0xffffffffu) - 1) * 8);
  what.type = record_type::done;
  what.op_id = op_id;
  what.content = std::move(result);
  what.content.time = now;
  std::uint64_t offset;
  if (!append(what, false, offset))
    return false;
  remember(op_id, offset);
  auto bytes = size_ - offset + what.content.stored;
  results_.push_back({offset, bytes});
  result_bytes_ += bytes;
  enforce_limits(now);
  return true;
}

void ledger::release(std::string_view op_id, std::int64_t now) {
  record what;
  what.type = record_type::released;
  what.op_id = op_id;
  what.content.time = now;
  std::uint64_t offset;
  if (append(what, false, offset))
    remember(op_id, offset);
}

void ledger::forget(std::string_view op_id, std::int64_t now) {
  record found;
  auto slot = lookup(op_id, &found);
  if (slot == ~0ull || found.type != record_type::done)
    return;
  auto offset = ((table_[slot] & 0xffffffffu) - 1) * 8;
  forget_ref(offset);
  drop_result(offset, now);
}

void ledger::forget_ref(std::uint64_t offset) {
  auto ref = std::lower_bound(results_.begin(), results_.end(), result_ref{offset, 0});
  if (ref == results_.end() || ref->offset != offset)
    return;
  result_bytes_ -= ref->bytes;
  results_.erase(ref);
}

void ledger::drop_result(std::uint64_t offset, std::int64_t now) {
  record found;
  if (!read_record(offset, found))
    return;
  if (found.content.log_id != 0)
    output_log::remove_files(dir_, log_name(found.content.log_id));
  found.type = record_type::expired;
  found.content.result.clear();
  found.content.log.clear();
  found.content.log_id = 0;
  found.content.stored = 0;
  // When it was done, not when it was forgotten, begins its 30 days.
  (void)now;
  std::uint64_t at;
  if (append(found, false, at))
    remember(found.op_id, at);
}

void ledger::enforce_limits(std::int64_t now) {
  while (results_.size() > 1 && (results_.size() > limits_.results || result_bytes_ > limits_.bytes)) {
    auto oldest = results_.front();
    results_.pop_front();
    result_bytes_ -= oldest.bytes;
    drop_result(oldest.offset, now);
  }
}

void ledger::maybe_compact(std::int64_t now) {
  if (size_ >= limits_.least_compaction && size_ >= 2 * compacted_size_)
    compact(now, false);
}

bool ledger::compact(std::int64_t now, bool opening) {
  unique_fd fresh{::openat(dir_, new_file_name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600)};
  if (!fresh || !pwrite_all(fresh.get(), magic, sizeof magic, 0))
    return false;
  std::vector<std::uint64_t> offsets;
  offsets.reserve(used_);
  for (auto slot : table_)
    if (slot != 0)
      offsets.push_back(((slot & 0xffffffffu) - 1) * 8);
  std::sort(offsets.begin(), offsets.end());
  std::uint64_t size = sizeof magic;
  auto write = [&](const record& what) {
    auto bytes = what.encode();
    if (!pwrite_all(fresh.get(), bytes.data(), bytes.size(), size))
      return false;
    size += bytes.size();
    return true;
  };
  struct moved {
    std::uint64_t slot;
    std::optional<result_ref> result;
  };
  std::vector<moved> kept;
  std::vector<std::uint64_t> gone_logs;
  kept.reserve(offsets.size());
  record found;
  for (auto& [incarnation, epoch] : epochs_) {
    record what;
    what.type = record_type::epoch;
    what.op_id = incarnation;
    what.content.log_id = epoch;
    if (!write(what))
      return false;
  }
  // Started in this run stays in this run: those records go last, the others come before the new beginning.
  std::uint64_t run_begins = size;
  for (int pass = 0; pass < 2; ++pass) {
    run_begins = size;
    for (auto offset : offsets) {
      if (!read_record(offset, found))
        continue;
      bool runs = !opening && found.type == record_type::started && offset >= run_begins_;
      if (runs != (pass == 1) || found.type == record_type::released)
        continue;
      if (!runs && now - found.content.time > limits_.known_for.count()) {
        if (found.content.log_id != 0)
          gone_logs.push_back(found.content.log_id);
        continue;
      }
      auto at = size;
      if (!write(found))
        return false;
      moved entry{(hash(found.op_id) & 0xffffffff00000000ull) | (at / 8 + 1), std::nullopt};
      if (found.type == record_type::done)
        entry.result = result_ref{at, size - at + found.content.stored};
      kept.push_back(entry);
    }
  }
  if (::fdatasync(fresh.get()) != 0 || ::renameat(dir_, new_file_name, dir_, file_name) != 0)
    return false;
  ::fsync(dir_);
  for (auto log : gone_logs)
    output_log::remove_files(dir_, log_name(log));
  file_ = std::move(fresh);
  size_ = size;
  compacted_size_ = size;
  run_begins_ = run_begins;
  std::size_t slots = kept.empty() ? 0 : 64;
  while (slots != 0 && kept.size() * 10 > slots * 7)
    slots *= 2;
  table_.assign(slots, 0);
  table_.shrink_to_fit();
  used_ = kept.size();
  results_.clear();
  result_bytes_ = 0;
  for (auto& entry : kept) {
    place(entry.slot);
    if (entry.result) {
      results_.push_back(*entry.result);
      result_bytes_ += entry.result->bytes;
    }
  }
  enforce_limits(now);
  return true;
}

void ledger::remove_stray_logs() const {
  std::set<std::string> named;
  record found;
  for (auto& result : results_)
    if (read_record(result.offset, found) && found.content.log_id != 0)
      named.insert(log_name(found.content.log_id));
  unique_fd listing{::openat(dir_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!listing)
    return;
  auto* dir = ::fdopendir(listing.get());
  if (dir == nullptr)
    return;
  listing.release();
  while (auto* item = ::readdir(dir)) {
    std::string_view name{item->d_name};
    auto dot = name.rfind('.');
    if (dot == name.npos || name[0] != 'o')
      continue;
    auto suffix = name.substr(dot);
    if ((suffix == ".log" || suffix == ".kinds") && !named.contains(std::string{name.substr(0, dot)}))
      ::unlinkat(dir_, item->d_name, 0);
  }
  ::closedir(dir);
}

std::vector<std::pair<std::string, ledger::entry>> ledger::recent(std::string_view operation, std::size_t count) const {
  std::vector<std::pair<std::string, entry>> out;
  record found;
  for (auto result = results_.rbegin(); result != results_.rend() && out.size() < count; ++result)
    if (read_record(result->offset, found) && found.content.operation == operation) {
      found.content.state = state::done;
      out.emplace_back(std::move(found.op_id), std::move(found.content));
    }
  return out;
}

std::uint64_t ledger::epoch(std::string_view incarnation) const {
  for (auto& [name, epoch] : epochs_)
    if (name == incarnation)
      return epoch;
  return 0;
}

void ledger::set_epoch(std::string_view incarnation, std::uint64_t epoch, std::int64_t now) {
  std::erase_if(epochs_, [&](auto& known) { return known.first == incarnation; });
  // Incarnations change when a database is restored: a few in a lifetime.
  if (epochs_.size() >= 64)
    epochs_.erase(epochs_.begin());
  epochs_.emplace_back(incarnation, epoch);
  record what;
  what.type = record_type::epoch;
  what.op_id = incarnation;
  what.content.time = now;
  what.content.log_id = epoch;
  std::uint64_t offset;
  append(what, false, offset);
}

} // namespace holt::agent
