#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "protocols/agent_messages.hpp"
#include "protocols/api/processes.hpp"

/// How output of processes becomes text, JSON and events (spec 38, 91). Pure.
namespace holt::runtime::http {

struct shown_text {
  std::string text;
  bool lossy = false;
};
/// The bytes as the caller wants them: base64, or repaired UTF-8. `cut`: more bytes followed, so that a character that is
/// open at the end is left out rather than replaced.
shown_text show(std::string_view bytes, bool base64, bool cut);

/// Output as server-sent events: `stdout`, `stderr` and `gap`, whose ids are `op_id:position`, from where a client goes on
/// without losing a byte. Text is cut only between characters. One stream at a time.
class event_encoder {
public:
  event_encoder(std::string op_id, bool base64, std::uint64_t from);
  void data(std::string& out, std::uint64_t offset, std::string_view bytes, bool is_stderr);
  void gap(std::string& out, std::uint64_t from, std::uint64_t to);
  /// Characters that are still open become U+FFFD: the stream has ended.
  void finish(std::string& out);
  /// `op_id:position`
  std::string id() const;

private:
  struct held_bytes {
    std::string bytes;
    std::uint64_t offset = 0;
  };
  void emit(std::string& out, bool is_stderr, std::uint64_t offset, std::string_view bytes);
  void flush(std::string& out, bool is_stderr);

  std::string op_id_;
  bool base64_;
  std::uint64_t position_;
  held_bytes held_[2];
};

protocols::api::process_view view_of(const protocols::agent::process_state& state);

} // namespace holt::runtime::http
