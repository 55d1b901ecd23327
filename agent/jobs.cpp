#include "agent/jobs.hpp"

#include <poll.h>

#include "agent/files/file_operations.hpp"
#include "agent/files/file_reader.hpp"
#include "agent/files/file_writer.hpp"
#include "agent/files/watcher.hpp"
#include "agent/search/glob.hpp"
#include "agent/search/grep.hpp"
#include "protocols/json_bytes.hpp"

namespace holt::agent {

namespace json = protocols::json;
namespace wire = protocols::agent;

namespace {

template <class T>
job_answer answer_of(const files::result<T>& result) {
  job_answer out;
  if (result) {
    if constexpr (std::is_void_v<T>)
      out.result = "{}";
    else
      out.result = json::write(*result);
    return out;
  }
  out.error = result.error();
  // A body that never came whole: the file is as it was.
  out.not_started = out.error->code == "file.cancelled";
  return out;
}

/// One record a line.
template <class T>
bool write_line(body_sink& body, const T& record) {
  return body.write(json::write(record) + "\n");
}

job_answer watch(const files::root_table& roots, const wire::file_watch& arguments, job& self) {
  auto watcher = files::watcher::begin(roots, arguments);
  if (!watcher)
    return answer_of<void>(tl::unexpected{watcher.error()});
  auto stop = self.stop_token();
  std::string lines;
  while (!stop.stop_requested()) {
    pollfd ready{watcher->fd(), POLLIN, 0};
    // Looks up now and then for its cancel.
    if (::poll(&ready, 1, 500) <= 0)
      continue;
    lines.clear();
    auto read = watcher->read_events([&](wire::watch_event&& event) {
      lines += json::write(event) + "\n";
      return lines.size() < 1024 * 1024;
    });
    // Events are few, and each is waited for: no gathering.
    std::string_view rest{lines};
    while (!rest.empty()) {
      auto room = self.body().prepare();
      if (room.empty())
        break;
      auto part = std::min(room.size(), rest.size());
      rest.copy(room.data(), part);
      self.body().commit(part);
      rest.remove_prefix(part);
    }
    if (!read)
      return answer_of<void>(tl::unexpected{read.error()});
  }
  job_answer out;
  out.result = "{}";
  return out;
}

/// `run(arguments, job)` answers.
template <class T, class F>
tl::expected<job::work, std::string> with(const json::value& arguments, F run) {
  auto read = json::read<T>(arguments, json::unknown_fields::ignore);
  if (!read)
    return tl::unexpected<std::string>{read.error().pointer + " " + read.error().message};
  return job::work{[arguments = std::move(*read), run](job& self) { return run(arguments, self); }};
}

} // namespace

job_kind kind_of_job(std::string_view operation) {
  for (auto name : {"file.read", "file.stat", "file.list", "file.watch", "search.glob", "search.grep"})
    if (operation == name)
      return job_kind::reads;
  for (auto name : {"file.write", "file.edit", "file.mkdir", "file.remove", "file.move"})
    if (operation == name)
      return job_kind::changes;
  return job_kind::unknown;
}

bool takes_body(std::string_view operation) {
  return operation == "file.write";
}

bool runs_for_long(std::string_view operation) {
  return operation == "file.watch";
}

tl::expected<job::work, std::string> make_job(const files::root_table& roots, files::path_locks& locks,
                                              std::string_view operation, const json::value& arguments) {
  if (operation == "file.read")
    return with<wire::file_read>(
      arguments, [&roots](auto& ask, job& self) { return answer_of(files::read_file(roots, ask, self.body())); });
  if (operation == "file.write")
    return with<wire::file_write>(arguments, [&roots, &locks](auto& ask, job& self) {
      return answer_of(files::write_file(roots, locks, ask, self.source()));
    });
  if (operation == "file.stat")
    return with<wire::file_stat>(arguments, [&roots](auto& ask, job&) { return answer_of(files::stat_path(roots, ask)); });
  if (operation == "file.list")
    return with<wire::file_list>(arguments, [&roots](auto& ask, job& self) {
      return answer_of(files::list_directory(
        roots, ask, [&](wire::file_entry&& entry) { return write_line(self.body(), entry); }, self.stop_token()));
    });
  if (operation == "file.mkdir")
    return with<wire::file_mkdir>(arguments,
                                  [&roots](auto& ask, job&) { return answer_of(files::make_directory(roots, ask)); });
  if (operation == "file.remove")
    return with<wire::file_remove>(arguments, [&roots, &locks](auto& ask, job& self) {
      auto answer = answer_of(files::remove_path(roots, locks, ask, self.stop_token()));
      // Cancelled half way: something may be gone.
      answer.not_started = false;
      return answer;
    });
  if (operation == "file.move")
    return with<wire::file_move>(
      arguments, [&roots, &locks](auto& ask, job&) { return answer_of(files::move_path(roots, locks, ask)); });
  if (operation == "file.edit")
    return with<wire::file_edit>(
      arguments, [&roots, &locks](auto& ask, job&) { return answer_of(files::edit_file(roots, locks, ask)); });
  if (operation == "file.watch")
    return with<wire::file_watch>(arguments, [&roots](auto& ask, job& self) { return watch(roots, ask, self); });
  if (operation == "search.glob")
    return with<wire::search_glob>(arguments, [&roots](auto& ask, job& self) {
      return answer_of(search::glob(
        roots, ask, [&](wire::file_entry&& entry) { return write_line(self.body(), entry); }, self.stop_token()));
    });
  if (operation == "search.grep")
    return with<wire::search_grep>(arguments, [&roots](auto& ask, job& self) {
      return answer_of(search::grep(
        roots, ask, [&](wire::grep_record&& record) { return write_line(self.body(), record); }, self.stop_token()));
    });
  return tl::unexpected{std::string{"no such operation"}};
}

} // namespace holt::agent
