#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

/// The two ways in which a file or search operation, on a worker thread, meets its stream "body". Implemented by
/// agent/worker.hpp over the session's credit, and by tests over memory.
namespace holt::agent {

/// Where an operation's outgoing bytes go. One worker thread calls it.
class body_sink {
public:
  virtual ~body_sink() = default;

  /// Appends bytes; waits while the receiver's credit is used up. False: cancelled or the session ended; give up.
  virtual bool write(std::string_view bytes) = 0;

  /// A buffer to fill in place, so that a large file is copied once; never empty, at most 64 KiB. Empty: cancelled.
  /// REQUIRES: commit() with the number of bytes filled (0 is allowed) before the next call of anything here.
  virtual std::span<char> prepare() = 0;
  virtual bool commit(std::size_t bytes) = 0;

  /// Whether the operation should give up. Cheap: ask between files, lines, and so on.
  virtual bool cancelled() const = 0;
};

/// Where an operation's incoming bytes come from. One worker thread calls it.
class body_source {
public:
  virtual ~body_source() = default;

  /// The next bytes, valid until the next call; waits for them. Empty view: the end, as its sender marked it.
  /// nullopt: cancelled, or the session ended before the end.
  virtual std::optional<std::string_view> next() = 0;

  virtual bool cancelled() const = 0;
};

} // namespace holt::agent
