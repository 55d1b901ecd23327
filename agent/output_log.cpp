#include "agent/output_log.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>

namespace holt::agent {

namespace {

constexpr std::uint64_t memory_limit = 16 * 1024;
/// The ring holds at least this, whatever the caps: what a full pipe may hold when its process ends, and a frame more.
constexpr std::uint64_t least_ring = 1024 * 1024 + 256 * 1024;

constexpr std::uint64_t round_up(std::uint64_t size) {
  return (size + 7) / 8 * 8;
}

bool write_all(int fd, const char* bytes, std::size_t size, std::uint64_t at) {
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

bool read_all(int fd, char* bytes, std::size_t size, std::uint64_t at) {
  while (size > 0) {
    auto got = ::pread(fd, bytes, size, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return false;
    // Past the end of a sparse file: zeros.
    if (got == 0) {
      std::memset(bytes, 0, size);
      return true;
    }
    bytes += got;
    at += static_cast<std::uint64_t>(got);
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

unique_fd open_in(int dir, const std::string& name) {
  return unique_fd{::openat(dir, name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)};
}

/// Sets bits [from, to) of `bits` to `value`.
void set_bits(char* bits, std::size_t from, std::size_t to, bool value) {
  while (from < to && from % 8 != 0) {
    auto mask = static_cast<char>(1u << (from % 8));
    bits[from / 8] = static_cast<char>(value ? bits[from / 8] | mask : bits[from / 8] & ~mask);
    ++from;
  }
  auto whole = (to - std::min(to, from)) / 8;
  std::memset(bits + from / 8, value ? 0xff : 0, whole);
  from += whole * 8;
  for (; from < to; ++from) {
    auto mask = static_cast<char>(1u << (from % 8));
    bits[from / 8] = static_cast<char>(value ? bits[from / 8] | mask : bits[from / 8] & ~mask);
  }
}

/// How many bits from `from` on, up to `to`, equal the first.
std::size_t equal_bits(const char* bits, std::size_t from, std::size_t to) {
  auto value = (static_cast<unsigned char>(bits[from / 8]) >> (from % 8)) & 1u;
  auto at = from;
  while (at < to) {
    if (at % 8 == 0 && static_cast<unsigned char>(bits[at / 8]) == (value != 0 ? 0xffu : 0u)) {
      at += 8;
      continue;
    }
    if (((static_cast<unsigned char>(bits[at / 8]) >> (at % 8)) & 1u) != value)
      return at - from;
    ++at;
  }
  return to - from;
}

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
bool take(std::string_view& in, T& value) {
  if (in.size() < sizeof value)
    return false;
  std::memcpy(&value, in.data(), sizeof value);
  in.remove_prefix(sizeof value);
  return true;
}

} // namespace

std::string log_record::encode() const {
  std::string out;
  put(out, caps.head);
  put(out, caps.tail);
  put(out, end);
  put(out, failed_from);
  put(out, static_cast<std::uint8_t>(base));
  put(out, static_cast<std::uint8_t>(mixed));
  put(out, static_cast<std::uint8_t>(in_files));
  put(out, static_cast<std::uint32_t>(data.size()));
  out += data;
  out += marks;
  return out;
}

std::optional<log_record> log_record::decode(std::string_view in) {
  log_record record;
  std::uint8_t base, mixed, in_files;
  std::uint32_t size;
  if (!take(in, record.caps.head) || !take(in, record.caps.tail) || !take(in, record.end)
      || !take(in, record.failed_from) || !take(in, base) || !take(in, mixed) || !take(in, in_files) || !take(in, size)
      || in.size() < size)
    return std::nullopt;
  record.base = base != 0 ? output_kind::err : output_kind::out;
  record.mixed = mixed != 0;
  record.in_files = in_files != 0;
  record.data = in.substr(0, size);
  record.marks = in.substr(size);
  auto held = std::min(record.end, record.failed_from);
  if (!record.in_files && (record.data.size() != held || (record.mixed && record.marks.size() * 8 < held)))
    return std::nullopt;
  return record;
}

output_log::output_log(int dir, std::string name, log_caps caps) : dir_(dir), name_(std::move(name)) {
  record_.caps = caps;
}

output_log::output_log(int dir, std::string name, log_record record)
  : dir_(dir), name_(std::move(name)), record_(std::move(record)) {
  if (record_.in_files) {
    data_.reset(::openat(dir_, (name_ + ".log").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (record_.mixed)
      kinds_.reset(::openat(dir_, (name_ + ".kinds").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!data_ || (record_.mixed && !kinds_))
      record_.failed_from = 0;
  }
}

std::uint64_t output_log::ring() const {
  return round_up(std::max(record_.caps.tail, least_ring)) + 64;
}

/// Where a position lies in the data file. The head's length there is a multiple of 8, so that bits stay in step.
std::uint64_t output_log::place(std::uint64_t position) const {
  auto head = round_up(record_.caps.head);
  return position < head ? position : head + (position - head) % ring();
}

void output_log::append(output_kind kind, std::string_view bytes) {
  if (bytes.empty())
    return;
  if (record_.end == 0)
    record_.base = kind;
  bool other = kind != record_.base;
  auto position = record_.end;
  record_.end += bytes.size();
  if (record_.failed_from != ~0ull)
    return;
  bool turns_mixed = other && !record_.mixed;
  record_.mixed = record_.mixed || other;
  if (!record_.in_files && record_.end <= memory_limit) {
    record_.data += bytes;
    if (record_.mixed) {
      record_.marks.resize((record_.end + 7) / 8);
      set_bits(record_.marks.data(), position, record_.end, other);
    }
    return;
  }
  bool ok = record_.in_files || spill();
  if (ok && turns_mixed)
    ok = open_kinds();
  ok = ok && write_data(position, bytes) && (!record_.mixed || write_kinds(position, bytes.size(), other));
  if (!ok)
    record_.failed_from = position;
}

bool output_log::spill() {
  data_ = open_in(dir_, name_ + ".log");
  if (!data_)
    return false;
  record_.in_files = true;
  auto size = record_.data.size();
  bool ok = write_data(0, record_.data);
  if (ok && !record_.marks.empty()) {
    ok = open_kinds();
    // Piece by piece, so that the ring (a head shorter than what was in memory) is respected.
    for (std::size_t at = 0; ok && at < size;) {
      auto run = equal_bits(record_.marks.data(), at, size);
      ok = write_kinds(at, run, ((static_cast<unsigned char>(record_.marks[at / 8]) >> (at % 8)) & 1u) != 0);
      at += run;
    }
  }
  if (!ok) {
    record_.in_files = false;
    return false;
  }
  record_.data = {};
  record_.marks = {};
  return true;
}

bool output_log::open_kinds() {
  if (!kinds_)
    kinds_ = open_in(dir_, name_ + ".kinds");
  return static_cast<bool>(kinds_);
}

bool output_log::write_data(std::uint64_t position, std::string_view bytes) {
  auto head = round_up(record_.caps.head);
  while (!bytes.empty()) {
    auto at = place(position);
    auto contiguous = position < head ? head - position : head + ring() - at;
    auto part = bytes.substr(0, contiguous);
    if (!write_all(data_.get(), part.data(), part.size(), at))
      return false;
    position += part.size();
    bytes.remove_prefix(part.size());
  }
  return true;
}

bool output_log::write_kinds(std::uint64_t position, std::uint64_t size, bool other) {
  char bits[8192 + 2];
  auto head = round_up(record_.caps.head);
  while (size > 0) {
    auto at = place(position);
    auto part = std::min({size, position < head ? head - position : head + ring() - at, std::uint64_t{65536}});
    auto shift = at % 8;
    bits[0] = shift != 0 ? static_cast<char>(open_bits_) : '\0';
    auto bytes = (shift + part + 7) / 8;
    bits[bytes - 1] = bytes > 1 ? '\0' : bits[0];
    set_bits(bits, shift, shift + part, other);
    // Bits beyond the end belong to bytes that the ring has lost: no reader asks for them.
    if (!write_all(kinds_.get(), bits, bytes, at / 8))
      return false;
    open_bits_ = static_cast<unsigned char>(bits[bytes - 1]);
    position += part;
    size -= part;
  }
  return true;
}

std::optional<log_range> output_log::omitted() const {
  auto head = std::min(record_.caps.head, record_.failed_from);
  if (record_.failed_from != ~0ull)
    return log_range{head, record_.end};
  if (record_.end <= record_.caps.head || record_.end - record_.caps.head <= record_.caps.tail)
    return std::nullopt;
  return log_range{record_.caps.head, record_.end - record_.caps.tail};
}

output_log::piece output_log::read(std::uint64_t at, char* buffer, std::size_t room, bool live) const {
  // An empty range at the very end: nothing is gone.
  auto gone = omitted().value_or(log_range{record_.end, record_.end});
  if (live && record_.failed_from == ~0ull) {
    // All of memory, or the whole ring but its slack.
    auto head = round_up(record_.caps.head);
    auto held = ring() - 64;
    bool whole = !record_.in_files || record_.end <= head || record_.end - head <= held;
    gone = whole ? log_range{record_.end, record_.end} : log_range{head, record_.end - held};
  }
  if (at >= gone.from && at < gone.to)
    at = gone.to;
  if (at >= record_.end || room == 0)
    return {.at = std::min(at, record_.end)};
  auto limit = std::min<std::uint64_t>(room, (at < gone.from ? gone.from : record_.end) - at);
  bool other = false;
  if (!record_.in_files) {
    if (record_.mixed) {
      other = ((static_cast<unsigned char>(record_.marks[at / 8]) >> (at % 8)) & 1u) != 0;
      limit = equal_bits(record_.marks.data(), at, at + limit);
    }
    std::memcpy(buffer, record_.data.data() + at, limit);
  } else {
    auto where = place(at);
    auto file_head = round_up(record_.caps.head);
    limit = std::min(limit, at < file_head ? file_head - at : file_head + ring() - where);
    if (record_.mixed)
      limit = run_length(where, limit, other);
    if (limit == 0 || !read_all(data_.get(), buffer, limit, where))
      return {.at = record_.end};
  }
  auto base = record_.base == output_kind::err;
  return {.at = at, .size = limit, .kind = base != other ? output_kind::err : output_kind::out};
}

std::size_t output_log::run_length(std::uint64_t place, std::size_t limit, bool& other) const {
  char bits[1024];
  auto shift = place % 8;
  limit = std::min(limit, sizeof bits * 8 - 8);
  if (!read_all(kinds_.get(), bits, (shift + limit + 7) / 8, place / 8))
    return 0;
  other = ((static_cast<unsigned char>(bits[0]) >> shift) & 1u) != 0;
  return equal_bits(bits, shift, shift + limit);
}

std::uint64_t output_log::stored() const {
  if (!record_.in_files)
    return record_.data.size();
  auto data = std::min(record_.end, round_up(record_.caps.head) + ring());
  return record_.mixed ? data + data / 8 : data;
}

void output_log::remove_files(int dir, const std::string& name) {
  ::unlinkat(dir, (name + ".log").c_str(), 0);
  ::unlinkat(dir, (name + ".kinds").c_str(), 0);
}

} // namespace holt::agent
