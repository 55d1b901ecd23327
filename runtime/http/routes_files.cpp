#include <algorithm>
#include <charconv>

#include "protocols/api/files.hpp"
#include "protocols/base64.hpp"
#include "protocols/ids.hpp"
#include "protocols/sse.hpp"
#include "runtime/http/commands.hpp"
#include "runtime/http/core.hpp"
#include "runtime/http/secrets.hpp"

/// …/files/{path}: bytes of one file; …/fs/: names, searches and edits (spec 45).
///
/// An ETag is the file's SHA-256 in quotes, so that If-Match and If-None-Match compare content.
namespace holt::runtime::http {

namespace {

using namespace protocols;
using agent::raw_name;

/// Up to here a file is read as a whole before it is answered: one read gives bytes and hash of one state of the file.
constexpr std::uint64_t held_bytes = 256 * 1024;
/// Up to here a GET hashes first, to have an ETag. Above, only when a condition needs one, or HEAD asks.
constexpr std::uint64_t hashed_bytes = 16 * 1024 * 1024;
constexpr std::size_t upload_piece = 256 * 1024;
/// Records of a list or search that are answered as one JSON text.
constexpr std::uint64_t max_records_bytes = 64 * 1024 * 1024;

actors::use_request with(actors::use_request request, std::string name, json::value arguments, bool repeatable) {
  request.operation = std::move(name);
  request.digest = sha256_hex(request.operation + "\n" + json::write_text(arguments));
  request.arguments = std::move(arguments);
  request.safe_to_repeat = repeatable;
  return request;
}

/// The absolute path of the last parameter, as bytes. nullopt: refused, and answered.
std::optional<raw_name> path_of(exchange& x) {
  auto decoded = percent_decode(x.params[1]);
  if (!decoded || decoded->find('\0') != std::string::npos || decoded->size() > 4096) {
    x.refuse("file.invalid_path", !decoded ? "The path has a broken escape: % is written %25."
                                           : "A path has at most 4096 bytes, and no NUL.");
    return std::nullopt;
  }
  return raw_name{"/" + *decoded};
}

std::string quoted(std::string_view hash) {
  return "\"" + std::string{hash} + "\"";
}

/// Whether one of the tags in an If-Match or If-None-Match is this hash. Weak tags match for If-None-Match only.
bool names_tag(std::string_view list, std::string_view hash, bool weak) {
  while (!list.empty()) {
    auto one = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), one.size() + 1));
    while (!one.empty() && (one.front() == ' ' || one.front() == '\t'))
      one.remove_prefix(1);
    while (!one.empty() && (one.back() == ' ' || one.back() == '\t'))
      one.remove_suffix(1);
    if (one == "*")
      return true;
    if (weak && one.starts_with("W/"))
      one.remove_prefix(2);
    if (one == quoted(hash))
      return true;
  }
  return false;
}

struct span_of_bytes {
  std::uint64_t from = 0, to = 0;
};

enum class range_kind { none, one, outside };

/// A `Range` of a file of this size. Several ranges, other units and nonsense are ignored, as RFC 9110 allows.
range_kind parse_range(std::string_view text, std::uint64_t size, span_of_bytes& out) {
  if (!text.starts_with("bytes=") || text.find(',') != std::string_view::npos)
    return range_kind::none;
  text.remove_prefix(6);
  auto dash = text.find('-');
  if (dash == std::string_view::npos)
    return range_kind::none;
  auto number = [](std::string_view digits, std::uint64_t& value) {
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return !digits.empty() && error == std::errc{} && end == digits.data() + digits.size();
  };
  auto first = text.substr(0, dash), last = text.substr(dash + 1);
  std::uint64_t from = 0, to = 0;
  if (first.empty()) { // the last n bytes
    if (!number(last, from))
      return range_kind::none;
    if (from == 0 || size == 0)
      return range_kind::outside;
    out = {size - std::min(size, from), size};
    return range_kind::one;
  }
  if (!number(first, from) || (!last.empty() && (!number(last, to) || to < from)))
    return range_kind::none;
  if (from >= size)
    return range_kind::outside;
  out = {from, last.empty() ? size : std::min(size, to + 1)};
  return range_kind::one;
}

api::entry_view view_of_entry(const agent::file_entry& entry) {
  char mode[8];
  std::snprintf(mode, sizeof mode, "%04o", entry.mode & 07777u);
  return {entry.name, entry.type, entry.size, mode, api::time_text(entry.modified_at), entry.target};
}

api::stat_view view_of_stat(const agent::file_stat_result& stat) {
  auto entry = view_of_entry(stat.entry);
  return {stat.path, entry.name, entry.type, entry.size, entry.mode, entry.modified_at, entry.target, stat.sha256};
}

// -- reading -----------------------------------------------------------------------------------------------------------

task<std::optional<agent::file_stat_result>> stat_file(exchange& x, const actors::use_request& base, const raw_name& path,
                                                       bool hash) {
  // A named local: g++ 12 frees an aggregate made inside the co_await twice.
  agent::file_stat asked{path, true, hash};
  auto done = co_await run(x, with(base, "file.stat", json::to_value(asked), true));
  if (!done)
    co_return std::nullopt;
  auto stat = result_of<agent::file_stat_result>(x, done->result());
  if (!stat)
    co_return std::nullopt;
  if (stat->entry.type == "directory") {
    x.refuse("file.is_directory", "It is a directory; list it with fs/list.");
    co_return std::nullopt;
  }
  if (stat->entry.type != "file") {
    x.refuse("file.denied", "It is not a regular file.");
    co_return std::nullopt;
  }
  co_return std::move(*stat);
}

/// What the conditions and the range of a GET come to, once size and hash are known.
struct reading {
  std::uint64_t size = 0;
  std::string hash; // "": not known
  unsigned status = 200;
  span_of_bytes span;
};

/// False: answered already (304, 412, 416).
bool decide(exchange& x, reading& plan) {
  if (!plan.hash.empty())
    x.add_header("ETag", quoted(plan.hash));
  if (auto tags = x.header("If-Match"); !tags.empty() && !names_tag(tags, plan.hash, false))
    return x.refuse("file.changed", "The file has other content than If-Match names."), false;
  if (auto tags = x.header("If-None-Match"); !tags.empty() && names_tag(tags, plan.hash, true))
    return x.answer(304, "", ""), false;
  x.add_header("Accept-Ranges", "bytes");
  plan.span = {0, plan.size};
  auto range = x.header("Range");
  auto condition = x.header("If-Range");
  bool applies = !range.empty() && (condition.empty() || condition == quoted(plan.hash));
  if (!applies || x.method == verb::head)
    return true;
  auto kind = parse_range(range, plan.size, plan.span);
  if (kind == range_kind::outside) {
    x.add_header("Content-Range", "bytes */" + std::to_string(plan.size));
    return x.refuse("file.range", "The file has " + std::to_string(plan.size) + " bytes."), false;
  }
  if (kind == range_kind::none) {
    plan.span = {0, plan.size};
    return true;
  }
  plan.status = 206;
  x.add_header("Content-Range", "bytes " + std::to_string(plan.span.from) + "-" + std::to_string(plan.span.to - 1) + "/" +
                                  std::to_string(plan.size));
  return true;
}

/// A small file: read first, decided afterwards, so that hash and bytes are of one state.
task<> answer_small(exchange& x, actors::use_request base, raw_name path) {
  operation_plan plan;
  plan.in = operation_plan::intake::collect;
  plan.in_name = "body";
  plan.collect_limit = 2 * held_bytes;
  agent::file_read whole{path, 0, {}, {}};
  auto done = co_await run(x, with(std::move(base), "file.read", json::to_value(whole), true), plan);
  if (!done)
    co_return;
  auto result = result_of<agent::file_read_result>(x, done->result());
  if (!result)
    co_return;
  auto& body = done->collection().out;
  if (done->lost() || !done->collection().gaps.empty() || body.size() != result->size)
    co_return x.refuse("environment.unavailable", "The file changed or broke off while it was read; try again.");
  reading how{body.size(), result->sha256.value_or(sha256_hex(body)), 200, {}};
  if (!decide(x, how))
    co_return;
  x.answer(how.status, "application/octet-stream", body.substr(how.span.from, how.span.to - how.span.from));
}

/// A large one: from frame to socket, with credit as the client reads.
task<> answer_large(exchange& x, actors::use_request base, raw_name path, reading how) {
  auto length = how.span.to - how.span.from;
  if (x.method == verb::head || length == 0) {
    co_await x.begin(how.status, "application/octet-stream", length);
    co_await x.finish();
    co_return;
  }
  operation_plan plan;
  plan.in = operation_plan::intake::queue;
  plan.in_name = "body";
  plan.window = bulk_window;
  auto running = operation::start(
    x, with(std::move(base), "file.read", json::to_value(agent::file_read{path, how.span.from, length, {}}), true), plan);
  bool begun = false, there = true;
  std::uint64_t sent = 0;
  std::vector<piece> pieces;
  std::vector<asio::const_buffer> gather;
  while (there) {
    bool complete = running->complete();
    pieces.clear();
    running->take(pieces);
    if (!begun && (complete || !pieces.empty())) {
      if (complete && running->result().error)
        co_return refuse_use(x, *running->result().error);
      begun = true;
      there = co_await x.begin(how.status, "application/octet-stream", length);
    }
    constexpr std::size_t frames_a_call = 16;
    for (std::size_t first = 0; there && first < pieces.size(); first += frames_a_call) {
      gather.clear();
      auto last = std::min(pieces.size(), first + frames_a_call);
      for (auto i = first; there && i < last; ++i) {
        there = pieces[i].gap_to <= pieces[i].offset && sent + pieces[i].bytes.bytes.size() <= length;
        sent += pieces[i].bytes.bytes.size();
        gather.emplace_back(pieces[i].bytes.bytes.data(), pieces[i].bytes.bytes.size());
      }
      there = there && co_await x.write(gather);
      auto position = pieces[last - 1].end();
      for (auto i = first; i < last; ++i)
        pieces[i].bytes = {};
      running->consumed(position);
    }
    if (there && complete) {
      auto read = json::read<agent::file_read_result>(
        running->result().result ? *running->result().result : json::value{}, json::unknown_fields::ignore);
      bool whole = !running->result().error && !running->lost() && sent == length && read;
      // Changed meanwhile: what was sent is not what the ETag said.
      if (whole && !how.hash.empty() && how.status == 200 && read->sha256 && *read->sha256 != how.hash)
        whole = false;
      if (!whole)
        break;
      co_await x.finish();
      co_return;
    }
    if (!there)
      break;
    if (!pieces.empty())
      continue;
    co_await running->wait();
    if (x.broken())
      there = false;
  }
  running->cancel(); // nobody wants the rest of a read
  running->detach();
  x.cut();
}

task<> read_file(exchange& x) {
  auto path = path_of(x);
  auto base = path ? use_of(x) : std::nullopt;
  if (!base)
    co_return;
  bool wants_hash = x.method == verb::head || !x.header("If-Match").empty() || !x.header("If-None-Match").empty() ||
                    !x.header("If-Range").empty();
  auto stat = co_await stat_file(x, *base, *path, false);
  if (!stat)
    co_return;
  if (stat->entry.size <= held_bytes && x.method != verb::head)
    co_return co_await answer_small(x, std::move(*base), std::move(*path));
  if (wants_hash || stat->entry.size <= hashed_bytes) {
    stat = co_await stat_file(x, *base, *path, true);
    if (!stat)
      co_return;
  }
  reading how{stat->entry.size, stat->sha256.value_or(""), 200, {}};
  if (!decide(x, how))
    co_return;
  co_await answer_large(x, std::move(*base), std::move(*path), std::move(how));
}

// -- writing -----------------------------------------------------------------------------------------------------------

/// What a write's headers demand. False: refused, and answered.
bool take_conditions(exchange& x, std::optional<std::string>& if_match) {
  auto single = [](std::string_view tag) -> std::optional<std::string> {
    if (tag.size() != 66 || tag.front() != '"' || tag.back() != '"')
      return std::nullopt;
    return std::string{tag.substr(1, 64)};
  };
  if (auto none = x.header("If-None-Match"); !none.empty()) {
    if (none != "*")
      return x.refuse_field("/If-None-Match", "can only be * when writing: there must be no file"), false;
    if_match = "";
  }
  if (auto tag = x.header("If-Match"); !tag.empty()) {
    if (if_match)
      return x.refuse_field("/If-Match", "and If-None-Match can't both hold"), false;
    auto hash = single(tag);
    if (!hash)
      return x.refuse_field("/If-Match", "must be one ETag as GET answers it: \"<SHA-256 in hex>\""), false;
    if_match = *hash;
  }
  return true;
}

/// The SHA-256 that the body must have. False: refused, and answered.
bool take_digest(exchange& x, std::optional<std::string>& sha256) {
  std::string given{x.header("Content-SHA256")};
  if (!given.empty()) {
    std::transform(given.begin(), given.end(), given.begin(), [](unsigned char c) { return std::tolower(c); });
    auto raw = hex_decode(given);
    if (!raw || raw->size() != 32)
      return x.refuse_field("/Content-SHA256", "must be 64 hex digits"), false;
    sha256 = given;
    return true;
  }
  std::string_view digest = x.header("Digest");
  bool structured = digest.empty();
  if (structured)
    digest = x.header("Content-Digest"); // RFC 9530: sha-256=:…:
  std::string_view name = "sha-256=";
  if (digest.size() <= name.size())
    return true;
  std::string lowered{digest.substr(0, name.size())};
  std::transform(lowered.begin(), lowered.end(), lowered.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lowered != name)
    return true; // another algorithm: not ours to check
  digest.remove_prefix(name.size());
  if (structured && digest.size() > 2 && digest.front() == ':' && digest.back() == ':')
    digest = digest.substr(1, digest.size() - 2);
  auto raw = base64_decode(digest);
  if (!raw || raw->size() != 32)
    return x.refuse_field("/Digest", "must be sha-256= and padded base64 of 32 bytes"), false;
  sha256 = hex_encode(*raw);
  return true;
}

/// Not zero-filled: that would cost as much as the copy.
std::shared_ptr<char> piece_of_memory() {
  return {new char[upload_piece], std::default_delete<char[]>{}};
}

actors::shared_bytes shared_piece(const std::shared_ptr<char>& memory, std::size_t size) {
  return {memory, std::as_bytes(std::span{memory.get(), size})};
}

/// The request's body into the operation, piece by piece: one is on its way while the next is read.
/// False: the client broke off; the write must not happen.
task<bool> upload(exchange& x, operation& running) {
  std::uint64_t total = 0;
  auto limit = x.core().settings.max_file_bytes;
  // Two buffers in turn: the channel is done with one before it is filled again.
  std::vector<std::shared_ptr<char>> memory(2);
  for (std::size_t turn = 0; !running.complete(); turn ^= 1) {
    if (!memory[turn])
      memory[turn] = piece_of_memory();
    std::size_t filled = 0;
    bool ended = false;
    while (filled < upload_piece && !ended) {
      auto got = co_await x.read_some(memory[turn].get() + filled, upload_piece - filled);
      if (got < 0)
        co_return false;
      ended = got == 0;
      filled += static_cast<std::size_t>(got);
    }
    total += filled;
    if (total > limit) {
      running.cancel();
      x.refuse("file.too_large", "A file may have at most " + std::to_string(limit) + " bytes.");
      co_return false;
    }
    // A named local: g++ 12 can't compile a braced one inside co_await.
    auto piece = shared_piece(memory[turn], filled);
    bool sent = co_await running.send(std::move(piece), ended);
    if (!sent)
      co_return true; // the operation ended first: its result says why
    if (ended)
      co_return true;
  }
  co_return true;
}

/// False: refused, and answered.
bool take_mode(exchange& x, std::optional<std::uint32_t>& mode) {
  query_values query{x.query};
  auto* given = query.find("mode");
  if (given == nullptr)
    return true;
  unsigned bits = 0;
  auto [end, error] = std::from_chars(given->data(), given->data() + given->size(), bits, 8);
  if (error != std::errc{} || end != given->data() + given->size() || bits > 0777)
    return x.refuse_field("/query/mode", "must be permission bits in octal, as 0644"), false;
  mode = bits;
  return true;
}

task<> write_file(exchange& x) {
  auto path = path_of(x);
  auto base = path ? use_of(x) : std::nullopt;
  if (!base)
    co_return;
  agent::file_write what;
  what.path = *path;
  if (!take_conditions(x, what.if_match) || !take_digest(x, what.sha256))
    co_return;
  auto op_id = chosen_op_id(x, std::nullopt);
  if (!op_id)
    co_return;
  what.size = x.content_length();
  if (what.size && *what.size > x.core().settings.max_file_bytes)
    co_return x.refuse("file.too_large",
                       "A file may have at most " + std::to_string(x.core().settings.max_file_bytes) + " bytes.");
  if (!take_mode(x, what.mode))
    co_return;
  auto request = with(std::move(*base), "file.write", json::to_value(what), false);
  request.op_id = *op_id;
  request.caller_chose_id = !op_id->empty();
  operation_plan plan;
  plan.out_name = "body";
  auto running = operation::start(x, std::move(request), std::move(plan));
  while (!running->accepted() && !running->complete()) {
    co_await running->wait();
    if (x.broken()) {
      running->cancel();
      running->detach();
      co_return x.cut();
    }
  }
  // A write that was known already has its bytes.
  bool sends = running->accepted() && !running->acceptance().attached;
  bool whole = true;
  if (sends)
    whole = co_await upload(x, *running);
  if (!whole) {
    // Not all of it came: the agent must not take what it has for the file.
    running->cancel();
    running->detach();
    if (!x.answered())
      x.refuse("request.invalid", "The body broke off, or did not arrive in time; the file is as it was.");
    co_return;
  }
  if (!co_await wait_complete(x, *running))
    co_return;
  if (running->result().error)
    co_return refuse_use(x, *running->result().error);
  auto result = result_of<agent::file_write_result>(x, running->result());
  if (!result)
    co_return;
  x.add_header("ETag", quoted(result->sha256));
  x.answer_json(result->created ? 201 : 200, api::write_view{result->size, result->sha256, result->created});
}

task<> remove_file(exchange& x) {
  query_values query{x.query};
  auto recursive = flag(x, query, "recursive");
  auto path = recursive ? path_of(x) : std::nullopt;
  auto base = path ? use_of(x) : std::nullopt;
  if (!base)
    co_return;
  agent::file_remove what{*path, *recursive, {}};
  if (!take_conditions(x, what.if_match))
    co_return;
  auto op_id = chosen_op_id(x, std::nullopt);
  if (!op_id)
    co_return;
  auto request = with(std::move(*base), "file.remove", json::to_value(what), false);
  request.op_id = *op_id;
  request.caller_chose_id = !op_id->empty();
  if (co_await run(x, std::move(request)))
    x.answer(204, "", "");
}

// -- …/fs/ -------------------------------------------------------------------------------------------------------------

/// The body's records, one JSON text a line. False: refused, and answered.
template <class Record, class Take>
bool take_records(exchange& x, operation& done, Take take) {
  auto& got = done.collection();
  if (done.lost() || !got.gaps.empty() || got.out.size() != got.out_bytes)
    return x.refuse("environment.unavailable", "The answer broke off on its way, or is too long; ask for less."), false;
  std::string_view text = got.out;
  while (!text.empty()) {
    auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty())
      continue;
    auto record = json::read_text<Record>(line, json::unknown_fields::ignore);
    if (!record)
      return x.refuse("agent.failed", "The agent's answer is not what was asked for."), false;
    take(std::move(*record));
  }
  return true;
}

/// As they come, for long answers: the agent's own records, and a last line {"done": …}.
task<> stream_records(exchange& x, actors::use_request request) {
  operation_plan plan;
  plan.in = operation_plan::intake::queue;
  plan.in_name = "body";
  plan.window = event_window;
  auto running = operation::start(x, std::move(request), std::move(plan));
  bool begun = false, there = true;
  std::vector<piece> pieces;
  while (there) {
    bool complete = running->complete();
    pieces.clear();
    running->take(pieces);
    if (!begun && (complete || !pieces.empty())) {
      if (complete && running->result().error)
        co_return refuse_use(x, *running->result().error);
      begun = true;
      there = co_await x.begin(200, "application/x-ndjson", std::nullopt);
    }
    for (auto& one : pieces) {
      asio::const_buffer bytes{one.bytes.bytes.data(), one.bytes.bytes.size()};
      there = there && one.gap_to <= one.offset && co_await x.write({&bytes, 1});
    }
    if (there && complete) {
      auto& result = running->result();
      if (running->lost())
        break;
      json::object last;
      if (result.error)
        last["error"] = json::to_value(make_problem(result.error->code, result.error->message, result.error->details));
      else
        last["done"] = result.result ? *result.result : json::value{json::object{}};
      auto line = json::write_text(last) + "\n";
      asio::const_buffer bytes{line.data(), line.size()};
      if (co_await x.write({&bytes, 1}))
        co_await x.finish();
      co_return;
    }
    if (!there)
      break;
    if (!pieces.empty()) {
      running->consumed(pieces.back().end());
      continue;
    }
    co_await running->wait();
    if (x.broken())
      there = false;
  }
  running->cancel();
  running->detach();
  x.cut();
}

constexpr std::string_view ndjson = "application/x-ndjson";

operation_plan collecting() {
  operation_plan plan;
  plan.in = operation_plan::intake::collect;
  plan.in_name = "body";
  plan.collect_limit = max_records_bytes;
  return plan;
}

task<> answer_entries(exchange& x, actors::use_request request) {
  if (x.accepts(ndjson))
    co_return co_await stream_records(x, std::move(request));
  auto done = co_await run(x, std::move(request), collecting());
  if (!done)
    co_return;
  auto result = result_of<agent::list_result>(x, done->result());
  if (!result)
    co_return;
  api::entry_list out;
  out.truncated = result->truncated;
  if (take_records<agent::file_entry>(x, *done, [&](agent::file_entry entry) { out.items.push_back(view_of_entry(entry)); }))
    x.answer_json(200, out);
}

task<> list(exchange& x) {
  auto asked = co_await x.read_json<api::list_request>();
  auto base = asked ? use_of(x) : std::nullopt;
  if (!base)
    co_return;
  agent::file_list what{asked->path, asked->recursive, asked->limit};
  co_await answer_entries(x, with(std::move(*base), "file.list", json::to_value(what), true));
}

task<> glob(exchange& x) {
  auto asked = co_await x.read_json<api::glob_request>();
  auto base = asked ? use_of(x) : std::nullopt;
  if (!base)
    co_return;
  agent::search_glob what{asked->pattern, asked->path, asked->ignore, asked->hidden, asked->order, asked->limit};
  co_await answer_entries(x, with(std::move(*base), "search.glob", json::to_value(what), true));
}

task<> grep(exchange& x) {
  auto asked = co_await x.read_json<api::grep_request>();
  auto base = asked ? use_of(x) : std::nullopt;
  if (!base)
    co_return;
  agent::search_grep what{asked->pattern, asked->literal, asked->ignore_case, asked->multiline, asked->path,
                          asked->globs,   asked->ignore,  asked->hidden,      asked->output,    asked->before,
                          asked->after,   asked->limit,   asked->max_line_bytes};
  auto request = with(std::move(*base), "search.grep", json::to_value(what), true);
  if (x.accepts(ndjson))
    co_return co_await stream_records(x, std::move(request));
  auto done = co_await run(x, std::move(request), collecting());
  if (!done)
    co_return;
  auto result = result_of<agent::grep_result>(x, done->result());
  if (!result)
    co_return;
  api::grep_view out;
  out.matches = result->matches;
  out.files_searched = result->files_searched;
  out.files_matched = result->files_matched;
  out.truncated = result->truncated;
  bool good = take_records<agent::grep_record>(x, *done, [&](agent::grep_record one) {
    out.items.push_back({std::move(one.path), std::move(one.type), one.line, one.column, std::move(one.text), one.cut,
                         one.count, std::move(one.reason)});
  });
  if (good)
    x.answer_json(200, out);
}

task<> stat(exchange& x) {
  auto asked = co_await x.read_json<api::stat_request>();
  auto base = asked ? use_of(x) : std::nullopt;
  if (!base)
    co_return;
  agent::file_stat what{asked->path, asked->follow, asked->hash};
  auto done = co_await run(x, with(std::move(*base), "file.stat", json::to_value(what), true));
  if (!done)
    co_return;
  if (auto result = result_of<agent::file_stat_result>(x, done->result()))
    x.answer_json(200, view_of_stat(*result));
}

/// What changes files carries the caller's id, if there is one.
task<> change(exchange& x, std::string name, json::value arguments) {
  auto base = use_of(x);
  auto op_id = base ? chosen_op_id(x, std::nullopt) : std::nullopt;
  if (!op_id)
    co_return;
  auto request = with(std::move(*base), std::move(name), std::move(arguments), false);
  request.op_id = *op_id;
  request.caller_chose_id = !op_id->empty();
  auto done = co_await run(x, std::move(request));
  if (!done)
    co_return;
  if (auto result = result_of<agent::file_stat_result>(x, done->result()))
    x.answer_json(200, view_of_stat(*result));
}

task<> make_directory(exchange& x) {
  auto asked = co_await x.read_json<api::mkdir_request>();
  if (asked) {
    agent::file_mkdir arguments{asked->path, asked->parents, asked->mode};
    co_await change(x, "file.mkdir", json::to_value(arguments));
  }
}

task<> move(exchange& x) {
  auto asked = co_await x.read_json<api::move_request>();
  if (asked) {
    agent::file_move arguments{asked->from, asked->to, asked->replace};
    co_await change(x, "file.move", json::to_value(arguments));
  }
}

task<> edit(exchange& x) {
  auto asked = co_await x.read_json<api::edit_request>();
  auto base = asked ? use_of(x) : std::nullopt;
  auto op_id = base ? chosen_op_id(x, asked->op_id) : std::nullopt;
  if (!op_id)
    co_return;
  agent::file_edit what{asked->path, {}, asked->if_match};
  for (auto& one : asked->edits)
    what.edits.push_back({std::move(one.old_text), std::move(one.new_text), one.all});
  auto request = with(std::move(*base), "file.edit", json::to_value(what), false);
  request.op_id = *op_id;
  request.caller_chose_id = !op_id->empty();
  auto done = co_await run(x, std::move(request));
  if (!done)
    co_return;
  auto result = result_of<agent::file_edit_result>(x, done->result());
  if (!result)
    co_return;
  x.add_header("ETag", quoted(result->sha256));
  x.answer_json(200, api::edit_view{result->replacements, result->size, result->sha256});
}

task<> watch(exchange& x) {
  query_values query{x.query};
  auto* path = query.find("path");
  if (path == nullptr || path->empty() || path->find('\0') != std::string::npos)
    co_return x.refuse_field("/query/path", "must name a directory");
  auto base = use_of(x);
  if (!base)
    co_return;
  bool recursive = true;
  if (query.find("recursive")) {
    auto given = flag(x, query, "recursive");
    if (!given)
      co_return;
    recursive = *given;
  }
  operation_plan plan;
  plan.in = operation_plan::intake::queue;
  plan.in_name = "body";
  plan.window = event_window;
  auto running = operation::start(
    x, with(std::move(*base), "file.watch", json::to_value(agent::file_watch{{*path}, recursive}), true), std::move(plan));
  while (!running->accepted() && !running->complete()) {
    co_await running->wait();
    if (x.broken())
      break;
  }
  if (running->complete() && running->result().error)
    co_return refuse_use(x, *running->result().error);
  bool there = !x.broken() && co_await x.begin(200, sse_content_type, std::nullopt);
  x.watch_client();
  std::string line, text;
  append_sse_comment(text, "watching");
  std::vector<piece> pieces;
  while (there) {
    bool complete = running->complete();
    pieces.clear();
    running->take(pieces);
    for (auto& one : pieces) {
      if (one.gap_to > one.offset) {
        line.clear();
        append_sse(text, "overflow", "{\"event\":\"overflow\"}");
        continue;
      }
      line += one.text();
      for (auto end = line.find('\n'); end != std::string::npos; end = line.find('\n')) {
        auto event = json::read_text<agent::watch_event>(std::string_view{line}.substr(0, end), json::unknown_fields::ignore);
        if (event)
          append_sse(text, event->event, json::write(*event));
        line.erase(0, end + 1);
      }
    }
    if (complete)
      append_sse(text, "end", running->result().error
                                ? write_problem(make_problem(running->result().error->code, running->result().error->message))
                                : "{}");
    if (!text.empty()) {
      asio::const_buffer bytes{text.data(), text.size()};
      there = co_await x.write({&bytes, 1});
      text.clear();
    }
    if (complete) {
      co_await x.finish();
      co_return;
    }
    if (!pieces.empty()) {
      running->consumed(pieces.back().end());
      continue;
    }
    auto wake_at = clock::now() + x.core().settings.heartbeat;
    co_await running->wait(wake_at);
    if (clock::now() >= wake_at)
      append_sse_comment(text, "still here");
    if (x.broken() || x.client_left() || x.stopping())
      there = false;
  }
  running->cancel(); // a watch is for its client alone
  running->detach();
  x.cut();
}

std::vector<std::string> file_errors(std::vector<std::string> more) {
  std::vector<std::string> out{"environment.not_found",  "environment.busy",    "environment.files_lost",
                               "environment.unavailable", "sandbox.unavailable", "file.not_found",
                               "file.denied",             "file.outside_roots",  "file.invalid_path"};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

void add_fs(route_table& table, const char* name, const char* id, const char* summary, media_doc body,
            std::vector<media_doc> answer, std::vector<std::string> errors, handler run) {
  table.add({.doc = {.method = "POST",
                     .path = std::string{"/v1/environments/{id}/fs/"} + name,
                     .id = id,
                     .tag = "files",
                     .summary = summary,
                     .request = {std::move(body)},
                     .responses = {{200, "Done.", std::move(answer)}},
                     .errors = file_errors(std::move(errors))},
             .run = run,
             .scopes = scope_use});
}

} // namespace

void add_file_routes(route_table& table) {
  constexpr const char* path = "/v1/environments/{id}/files/{path}";
  parameter_doc where{.name = "path",
                      .in = "path",
                      .doc = "The absolute path without its leading slash, slashes as they are, other bytes percent-encoded.",
                      .required = true};
  parameter_doc tag{.name = "ETag", .doc = "SHA-256 of the file, quoted. Above 16 MiB only when a condition or HEAD asks."};
  std::vector<parameter_doc> conditions{
    where, {.name = "If-Match", .in = "header"}, {.name = "If-None-Match", .in = "header"}};
  auto reading = conditions;
  reading.push_back({.name = "Range", .in = "header", .doc = "One range of bytes."});
  reading.push_back({.name = "If-Range", .in = "header"});
  table.add({.doc = {.method = "GET", .path = path, .id = "read_file", .tag = "files", .summary = "Bytes of a file",
                     .parameters = reading,
                     .responses = {{200, "All of it.", {{"application/octet-stream", bytes_schema}}, {tag}},
                                   {206, "The range.", {{"application/octet-stream", bytes_schema}}, {tag}},
                                   {304, "Not changed."}},
                     .errors = file_errors({"file.is_directory", "file.changed", "file.range"})},
             .run = read_file,
             .scopes = scope_use,
             .head_too = false});
  table.add({.doc = {.method = "HEAD", .path = path, .id = "stat_file", .tag = "files", .summary = "Size and hash of a file",
                     .parameters = conditions,
                     .responses = {{200, "In the header.", {}, {tag}}, {304, "Not changed."}},
                     .errors = file_errors({"file.is_directory", "file.changed"})},
             .run = read_file,
             .scopes = scope_use});
  auto writing = conditions;
  writing.push_back({.name = "Content-SHA256", .in = "header", .doc = "In hex; also `Digest: sha-256=` or `Content-Digest`. Verified."});
  writing.push_back({.name = "mode", .doc = "Permission bits of a new file, octal."});
  writing.push_back({.name = "Idempotency-Key", .in = "header"});
  table.add({.doc = {.method = "PUT", .path = path, .id = "write_file", .tag = "files", .summary = "Write a file, whole or not at all",
                     .doc = "The body streams into a file beside it, is verified, and replaces it. `If-None-Match: *`: only if there is none.",
                     .parameters = writing,
                     .request = {{"application/octet-stream", bytes_schema}},
                     .request_required = false,
                     .responses = {{200, "Replaced.", {json_answer<api::write_view>()}, {tag}},
                                   {201, "Made.", {json_answer<api::write_view>()}, {tag}}},
                     .errors = file_errors({"file.is_directory", "file.changed", "file.read_only", "file.exists", "file.too_large",
                                            "storage.full", "storage.quota", "operation.conflict", "operation.outcome_unknown"})},
             .run = write_file,
             .scopes = scope_use});
  auto removing = conditions;
  removing.push_back({.name = "recursive", .doc = "A directory with all in it.", .schema = boolean_schema});
  table.add({.doc = {.method = "DELETE", .path = path, .id = "remove_file", .tag = "files", .summary = "Remove a file or directory",
                     .parameters = removing,
                     .responses = {{204, "Gone."}},
                     .errors = file_errors({"file.not_empty", "file.read_only", "file.changed"})},
             .run = remove_file,
             .scopes = scope_use});

  media_doc lines{std::string{ndjson}, text_schema};
  add_fs(table, "list", "list_directory", "Entries of a directory", json_body<api::list_request>(),
         {json_answer<api::entry_list>(), lines}, {"file.not_directory"}, list);
  add_fs(table, "stat", "stat", "What is at a path", json_body<api::stat_request>(), {json_answer<api::stat_view>()}, {}, stat);
  add_fs(table, "mkdir", "make_directory", "Make a directory", json_body<api::mkdir_request>(), {json_answer<api::stat_view>()},
         {"file.exists", "file.not_directory", "file.read_only", "storage.full"}, make_directory);
  add_fs(table, "move", "move", "Move or rename", json_body<api::move_request>(), {json_answer<api::stat_view>()},
         {"file.exists", "file.not_directory", "file.is_directory", "file.not_empty", "file.read_only"}, move);
  add_fs(table, "glob", "glob", "Find files by name", json_body<api::glob_request>(), {json_answer<api::entry_list>(), lines},
         {"search.invalid_pattern", "file.not_directory"}, glob);
  add_fs(table, "grep", "grep", "Find text in files", json_body<api::grep_request>(), {json_answer<api::grep_view>(), lines},
         {"search.invalid_pattern"}, grep);
  add_fs(table, "edit", "edit_file", "Replace text in a file, all edits or none", json_body<api::edit_request>(),
         {json_answer<api::edit_view>()},
         {"edit.no_match", "edit.several_matches", "file.changed", "file.is_directory", "file.read_only", "operation.conflict",
          "operation.outcome_unknown"},
         edit);
  table.add({.doc = {.method = "GET", .path = "/v1/environments/{id}/fs/watch", .id = "watch", .tag = "files",
                     .summary = "Follow changes below a directory",
                     .doc = "Events `created`, `modified`, `removed`, `moved`, `overflow`.",
                     .parameters = {{.name = "path", .required = true}, {.name = "recursive", .schema = boolean_schema}},
                     .responses = {{200, "Events.", {{std::string{sse_content_type}, text_schema}}}},
                     .errors = file_errors({"file.not_directory"})},
             .run = watch,
             .scopes = scope_use,
             .head_too = false});
}

} // namespace holt::runtime::http
