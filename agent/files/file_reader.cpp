#include "agent/files/file_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <limits>
#include <sys/stat.h>
#include <unistd.h>

namespace holt::agent::files {

result<opened> open_regular(const root_table& roots, std::string_view path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer. O_NOCTTY: nor may a terminal become ours.
  auto file = roots.open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, last_link::follow);
  if (!file)
    return file;
  struct stat status {};
  if (::fstat(file->fd.get(), &status) != 0)
    return failure_of(errno, path);
  if (S_ISDIR(status.st_mode))
    return failure_of(EISDIR, path);
  if (!S_ISREG(status.st_mode))
    return failure_of(ENXIO, path);
  return file;
}

result<file_reader> file_reader::open(const root_table& roots, const protocols::agent::file_read& arguments) {
  const auto& path = arguments.path.bytes;
  auto file = open_regular(roots, path);
  if (!file)
    return tl::unexpected(std::move(file.error()));
  struct stat status {};
  if (::fstat(file->fd.get(), &status) != 0)
    return failure_of(errno, path);
  if (arguments.if_match) {
    auto present = sha256_of_file(file->fd.get());
    if (present.empty())
      return failure_of(errno, path);
    if (!same_hash(present, *arguments.if_match))
      return failure("file.changed", "the file is not the one that if_match names: " + printable(path), "after_change");
  }

  file_reader reader;
  reader.fd_ = std::move(file->fd);
  reader.path_ = path;
  auto size = static_cast<std::uint64_t>(status.st_size);
  reader.result_.size = size;
  reader.result_.offset = std::min(arguments.offset, size);
  reader.result_.mode = status.st_mode & 07777;
  reader.result_.modified_at = status.st_mtim.tv_sec * 1'000'000 + status.st_mtim.tv_nsec / 1000;
  // Without a length, to the end: also when the file grows meanwhile, or doesn't know its size (size 0, as in /proc).
  reader.left_ = arguments.length.value_or(std::numeric_limits<std::uint64_t>::max());
  if (arguments.hash && reader.result_.offset == 0 && reader.left_ >= size)
    reader.hash_.emplace();
  return reader;
}

result<std::size_t> file_reader::read(std::span<char> buffer) {
  auto size = std::min<std::uint64_t>(buffer.size(), left_);
  if (size == 0)
    return 0;
  for (;;) {
    auto count = ::pread(fd_.get(), buffer.data(), size, static_cast<off_t>(result_.offset + result_.length));
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return failure_of(errno, path_);
    auto bytes = static_cast<std::size_t>(count);
    if (hash_)
      hash_->update({buffer.data(), bytes});
    result_.length += bytes;
    left_ = bytes == 0 ? 0 : left_ - bytes;
    return bytes;
  }
}

protocols::agent::file_read_result file_reader::finish() {
  // A file that grew or shrank under the reader: the bytes sent are what it was, and its size says so.
  auto end = result_.offset + result_.length;
  if (end > result_.size)
    result_.size = end;
  if (hash_ && result_.length == result_.size)
    result_.sha256 = hash_->finish();
  hash_.reset();
  return result_;
}

result<protocols::agent::file_read_result> read_file(const root_table& roots, const protocols::agent::file_read& arguments,
                                                     body_sink& body) {
  auto reader = file_reader::open(roots, arguments);
  if (!reader)
    return tl::unexpected(std::move(reader.error()));
  for (;;) {
    auto space = body.prepare();
    if (space.empty())
      return failure("file.cancelled", "cancelled while reading " + printable(arguments.path.bytes));
    auto count = reader->read(space);
    if (!body.commit(count.value_or(0)))
      return failure("file.cancelled", "cancelled while reading " + printable(arguments.path.bytes));
    if (!count)
      return tl::unexpected(std::move(count.error()));
    if (*count == 0)
      return reader->finish();
  }
}

} // namespace holt::agent::files
