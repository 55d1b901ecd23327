#include "agent/files/error.hpp"

#include <cerrno>
#include <cstring>

namespace holt::agent::files {

tl::unexpected<operation_error> failure(std::string code, std::string message, std::string_view retry) {
  operation_error error;
  error.code = std::move(code);
  error.message = std::move(message);
  error.retry = retry;
  return tl::unexpected<operation_error>(std::move(error));
}

std::string printable(std::string_view path) {
  constexpr std::size_t longest = 512;
  std::string text;
  text.reserve(std::min(path.size(), longest + 3));
  for (std::size_t i = 0; i < path.size() && text.size() < longest;) {
    auto byte = static_cast<unsigned char>(path[i]);
    std::size_t length = byte < 0x80 ? 1 : byte >= 0xc2 && byte < 0xe0 ? 2 : byte >= 0xe0 && byte < 0xf0 ? 3 : byte >= 0xf0 && byte < 0xf5 ? 4 : 0;
    bool good = length != 0 && i + length <= path.size() && byte >= 0x20 && byte != 0x7f;
    for (std::size_t k = 1; good && k < length; ++k)
      good = (static_cast<unsigned char>(path[i + k]) & 0xc0) == 0x80;
    if (good && length == 3) {
      // Overlong forms and surrogates.
      auto second = static_cast<unsigned char>(path[i + 1]);
      good = !(byte == 0xe0 && second < 0xa0) && !(byte == 0xed && second >= 0xa0);
    } else if (good && length == 4) {
      auto second = static_cast<unsigned char>(path[i + 1]);
      good = !(byte == 0xf0 && second < 0x90) && !(byte == 0xf4 && second >= 0x90);
    }
    if (good) {
      text.append(path.substr(i, length));
      i += length;
    } else {
      text.push_back('?');
      ++i;
    }
  }
  if (path.size() > longest)
    text += "...";
  return text;
}

tl::unexpected<operation_error> failure_of(int error, std::string_view path) {
  auto shown = printable(path);
  switch (error) {
  case ENOENT:
    return failure("file.not_found", "no such file or directory: " + shown, "after_change");
  case EACCES:
  case EPERM:
    return failure("file.denied", "permission denied: " + shown);
  case EROFS:
    return failure("file.read_only", "read only: " + shown);
  case ENOSPC:
  case EDQUOT:
    return failure("storage.full", "no space left for " + shown, "after_change");
  case EXDEV:
    return failure("file.outside_roots", "the path leaves this environment's directories: " + shown);
  case ELOOP:
    return failure("file.too_many_links", "too many symbolic links: " + shown);
  case ENAMETOOLONG:
    return failure("file.invalid_path", "the path is too long: " + shown);
  case ENOTDIR:
    return failure("file.not_directory", "not a directory: " + shown);
  case EISDIR:
    return failure("file.is_directory", "a directory: " + shown);
  case EEXIST:
    return failure("file.exists", "exists already: " + shown, "after_change");
  case ENOTEMPTY:
    return failure("file.not_empty", "the directory is not empty: " + shown, "after_change");
  case EFBIG:
    return failure("file.too_large", "larger than files may be here: " + shown);
  case ENXIO:
  case ENODEV:
    return failure("file.not_regular", "a pipe, socket or device, not a file: " + shown);
  case EBUSY:
  case ETXTBSY:
    return failure("file.busy", "in use: " + shown, "later");
  case EMFILE:
  case ENFILE:
  case ENOMEM:
  case EAGAIN:
    return failure("file.failed", std::string(std::strerror(error)) + ": " + shown, "later");
  default:
    return failure("file.failed", std::string(std::strerror(error)) + ": " + shown);
  }
}

} // namespace holt::agent::files
