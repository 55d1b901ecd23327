#include "agent/search/grep.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>

#include "agent/search/line_matcher.hpp"
#include "agent/search/search_base.hpp"
#include "agent/search/walk.hpp"
#include "protocols/utf8.hpp"

namespace holt::agent::search {
namespace {

namespace wire = protocols::agent;

constexpr std::size_t first_buffer_bytes = 256 * 1024;
/// A line-by-line search never needs a larger buffer than its longest line, and cuts lines at this.
constexpr std::size_t longest_line_bytes = 8 * 1024 * 1024;
constexpr std::size_t piece_overlap_bytes = 64 * 1024;
/// A search across lines holds the whole of a file up to this size, and windows of it that overlap beyond.
constexpr std::size_t window_bytes = 16 * 1024 * 1024;
constexpr std::size_t window_overlap_bytes = 1024 * 1024;
constexpr std::size_t binary_look_bytes = 64 * 1024;
constexpr std::uint32_t most_context_lines = 1000;
constexpr std::size_t most_held_records = 256;
constexpr std::size_t most_held_bytes = 256 * 1024;

/// Memory that goes back to the system when released, whatever the heap looks like: the agent is small between searches.
class mapped_buffer {
public:
  mapped_buffer() = default;
  mapped_buffer(const mapped_buffer&) = delete;
  mapped_buffer& operator=(const mapped_buffer&) = delete;
  ~mapped_buffer() {
    if (data_ != nullptr)
      ::munmap(data_, size_);
  }

  /// Keeps the content. False: no memory.
  bool grow(std::size_t size) {
    void* next = data_ == nullptr
                     ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                     : ::mremap(data_, size_, size, MREMAP_MAYMOVE);
    if (next == MAP_FAILED)
      return false;
    data_ = static_cast<char*>(next);
    size_ = size;
    return true;
  }
  /// What an unusually large file took.
  void shrink(std::size_t size) {
    if (size_ > size && ::mremap(data_, size_, size, 0) != MAP_FAILED)
      size_ = size;
  }
  char* data() const {
    return data_;
  }
  std::size_t size() const {
    return size_;
  }

private:
  char* data_ = nullptr;
  std::size_t size_ = 0;
};

std::uint64_t count_lines(const char* from, const char* to) {
  std::uint64_t count = 0;
  while (from < to) {
    // In blocks whose counters fit a byte each, which the compiler turns into vector additions.
    auto end = std::min(to, from + 4096);
    unsigned block = 0;
    for (; from < end; ++from)
      block += *from == '\n';
    count += block;
  }
  return count;
}

/// What all threads of one search share: the sink, and how much it may still get.
class output {
public:
  output(const grep_sink& sink, std::uint64_t limit) : sink_(sink), limit_(limit) {
  }

  /// Serialises files: the holder's records are handed over together.
  std::mutex& mutex() {
    return mutex_;
  }
  /// REQUIRES: mutex() held. False: no more is wanted.
  bool put(wire::grep_record&& record) {
    if (ended_)
      return false;
    if (count_ == limit_) {
      truncated_ = true;
      ended_ = true;
    } else {
      ++count_;
      if (!sink_(std::move(record)))
        ended_ = refused_ = true;
    }
    return !ended_;
  }
  bool truncated() const {
    return truncated_;
  }
  bool refused() const {
    return refused_;
  }

private:
  const grep_sink& sink_;
  const std::uint64_t limit_;
  std::mutex mutex_;
  std::uint64_t count_ = 0;
  bool ended_ = false;
  bool truncated_ = false;
  bool refused_ = false;
};

struct totals {
  std::uint64_t matches = 0;
  std::uint64_t searched = 0;
  std::uint64_t matched = 0;
};

/// What one search is, ready for all threads. Immutable.
struct plan {
  const wire::search_grep& arguments;
  line_matcher matcher;
  rule_list globs;
  search_base base;
  enum class mode { content, files, count } output_mode = mode::content;
  std::uint32_t before = 0;
  std::uint32_t after = 0;
  std::size_t max_line = 0;
};

/// Searches one file after the other, in windows of a buffer that it keeps.
class file_searcher {
public:
  file_searcher(const plan& what, output& out, std::stop_token stop) : plan_(what), out_(out), stop_(std::move(stop)) {
  }

  /// False: the search is over (limit, cancelled, sink gone).
  bool search(int fd, std::string path, totals& sum) {
    path_ = std::move(path);
    line_ = 1;
    counted_ = 0;
    from_ = 0;
    printed_ = 0;
    after_left_ = 0;
    matches_ = 0;
    in_line_ = 0;
    line_done_ = false;
    binary_ = binary::unknown;
    over_ = false;
    int error = scan(fd);
    if (matches_ != 0 && !over_ && plan_.output_mode == plan::mode::count && binary_ != binary::yes) {
      auto record = make("count");
      record.count = matches_;
      put(std::move(record));
    }
    if (error != 0 && !over_)
      skip(error);
    if (buffer_.size() > 4 * first_buffer_bytes)
      buffer_.shrink(first_buffer_bytes);
    ++sum.searched;
    sum.matches += matches_;
    sum.matched += matches_ != 0 ? 1 : 0;
    return finish_file();
  }

  bool skipped(std::string path, int error) {
    path_ = std::move(path);
    over_ = false;
    skip(error);
    return finish_file();
  }

private:
  enum class binary { unknown, no, yes };

  // -- reading ---------------------------------------------------------------------------------------------------------

  int scan(int fd) {
    if (buffer_.size() == 0 && !buffer_.grow(first_buffer_bytes))
      return ENOMEM;
    const bool multiline = plan_.arguments.multiline;
    std::size_t filled = 0;
    bool first = true;
    for (;;) {
      bool end = false;
      while (filled < buffer_.size() && !end) {
        auto count = files::read_some(fd, buffer_.data() + filled, buffer_.size() - filled);
        if (count < 0)
          return errno;
        end = count == 0;
        filled += static_cast<std::size_t>(count);
        if (multiline && filled == buffer_.size() && buffer_.size() < window_bytes && !buffer_.grow(buffer_.size() * 2))
          return ENOMEM;
      }
      if (filled == 0)
        return 0;
      if (first && !end)
        look_for_binary(filled);
      first = false;
      if (stop_.stop_requested()) {
        over_ = true;
        return 0;
      }

      // How far matches may begin: whole lines, and for those that span lines, with enough behind them.
      std::size_t accept = filled;
      if (!end) {
        std::size_t last = multiline ? filled - std::min(filled, window_overlap_bytes) : filled;
        auto line_end = static_cast<const char*>(::memrchr(buffer_.data() + from_, '\n', last > from_ ? last - from_ : 0));
        accept = line_end == nullptr ? from_ : static_cast<std::size_t>(line_end - buffer_.data()) + 1;
      }
      if (accept == from_ && !end) {
        // Not one whole line, though the buffer is full.
        if (from_ == 0 && buffer_.size() >= (multiline ? window_bytes : longest_line_bytes)) {
          if (!search_piece(filled))
            return 0;
          continue_after_piece(filled);
          continue;
        }
        if (from_ == 0 && !buffer_.grow(buffer_.size() * 2))
          return ENOMEM;
      } else {
        if (in_line_ != 0) {
          if (!end_long_line(filled, end))
            return 0;
          if (end && from_ >= filled)
            return 0;
          if (!end)
            accept = std::max(accept, from_);
        }
        if (!search_lines(accept, multiline ? filled : accept, end))
          return 0;
        if (end)
          return 0;
        from_ = std::max(from_, accept);
      }
      filled = shift(filled);
    }
  }

  /// Drops what was searched, but for lines that may still be wanted as context.
  std::size_t shift(std::size_t filled) {
    from_ = std::min(from_, filled);
    std::size_t keep = from_;
    for (std::uint32_t i = 0; i < plan_.before && keep > printed_; ++i) {
      auto line_end = keep < 2 ? nullptr : static_cast<const char*>(::memrchr(buffer_.data(), '\n', keep - 1));
      auto start = line_end == nullptr ? 0 : static_cast<std::size_t>(line_end - buffer_.data()) + 1;
      if (from_ - start > longest_line_bytes / 2)
        break;
      keep = start;
    }
    if (filled - keep == buffer_.size()) {
      // No room for the next line behind its context. Growing has an end, and then the line goes first.
      if (buffer_.size() >= window_bytes || !buffer_.grow(buffer_.size() * 2))
        keep = from_;
    } else if (filled - keep > buffer_.size() / 2 && buffer_.size() < longest_line_bytes) {
      buffer_.grow(buffer_.size() * 2);
    }
    if (plan_.output_mode == plan::mode::content)
      count_to(keep);
    else
      counted_ = keep;
    std::memmove(buffer_.data(), buffer_.data() + keep, filled - keep);
    from_ -= keep;
    counted_ -= keep;
    printed_ = printed_ > keep ? printed_ - keep : 0;
    return filled - keep;
  }

  void look_for_binary(std::size_t filled) {
    binary_ = std::memchr(buffer_.data(), 0, std::min(filled, binary_look_bytes)) != nullptr ? binary::yes : binary::no;
  }

  // -- lines -----------------------------------------------------------------------------------------------------------

  /// Finds matches that begin in [from_, accept); `visible` is where the text ends that they may reach into. False: done.
  bool search_lines(std::size_t accept, std::size_t visible, bool end) {
    std::string_view text(buffer_.data(), visible);
    // "$" matches behind the last byte, which is a place on the last line unless that has an end.
    const std::size_t behind = end && !text.ends_with('\n') ? accept + 1 : accept;
    line_matcher::match match;
    while (from_ < accept) {
      if (!plan_.matcher.find(text, from_, match) || match.at >= behind)
        break;
      if (binary_ == binary::unknown)
        look_for_binary(visible);
      auto begin = line_begin(match.at);
      // An empty match behind the last line end is on no line.
      auto last = match.size == 0 ? match.at : match.at + match.size - 1;
      auto stop = line_end(text, std::max(last, match.at));
      if (!found(text, begin, stop, match.at))
        return false;
      from_ = stop + 1;
      if ((matches_ & 255) == 0 && stop_.stop_requested()) {
        over_ = true;
        return false;
      }
    }
    if (plan_.output_mode == plan::mode::content && after_left_ != 0)
      print_context_until(text, std::max(printed_, std::min(accept, text.size())));
    return !over_;
  }

  std::size_t line_begin(std::size_t at) const {
    auto before = static_cast<const char*>(::memrchr(buffer_.data(), '\n', at));
    return before == nullptr ? 0 : static_cast<std::size_t>(before - buffer_.data()) + 1;
  }

  static std::size_t line_end(std::string_view text, std::size_t at) {
    auto end = text.find('\n', at);
    return end == text.npos ? text.size() : end;
  }

  /// One match, on the lines [begin, stop). False: the file is done.
  bool found(std::string_view text, std::size_t begin, std::size_t stop, std::size_t at) {
    ++matches_;
    if (binary_ == binary::yes) {
      put(make("binary"));
      return false;
    }
    switch (plan_.output_mode) {
    case plan::mode::count:
      return true;
    case plan::mode::files:
      put(make("file"));
      return false;
    case plan::mode::content:
      break;
    }
    print_context_until(text, begin);
    // Lines before, as far as they weren't printed yet.
    auto context = begin;
    for (std::uint32_t i = 0; i < plan_.before && context > printed_; ++i)
      context = line_begin(context - 1);
    context = std::max(context, std::min(printed_, begin));
    while (context < begin && !over_) {
      auto next = line_end(text, context);
      print(text, context, next, "context", text.npos);
      context = next + 1;
    }
    for (auto line = begin; line <= stop && !over_;) {
      auto next = std::min(line_end(text, line), stop);
      print(text, line, next, "match", line == begin ? at : text.npos);
      line = next + 1;
      if (next == stop)
        break;
    }
    printed_ = stop + 1;
    after_left_ = plan_.after;
    return !over_;
  }

  void print_context_until(std::string_view text, std::size_t until) {
    while (after_left_ != 0 && printed_ < until && !over_) {
      auto next = line_end(text, printed_);
      print(text, printed_, next, "context", text.npos);
      printed_ = next + 1;
      --after_left_;
    }
  }

  void count_to(std::size_t at) {
    if (at <= counted_)
      return;
    line_ += count_lines(buffer_.data() + counted_, buffer_.data() + at);
    counted_ = at;
  }

  void print(std::string_view text, std::size_t begin, std::size_t end, const char* type, std::size_t match_at) {
    auto record = make(type);
    // Context before a match is behind what was counted last.
    if (begin < counted_) {
      line_ -= count_lines(buffer_.data() + begin, buffer_.data() + counted_);
      counted_ = begin;
    } else {
      count_to(begin);
    }
    record.line = line_;
    if (match_at != text.npos)
      record.column = match_at - begin + 1;
    fill_text(record, text.substr(begin, end - begin), match_at == text.npos ? 0 : match_at - begin);
    put(std::move(record));
  }

  /// The line, or of a longer one the part that has the match.
  void fill_text(wire::grep_record& record, std::string_view line, std::size_t match_at) const {
    if (line.ends_with('\r'))
      line.remove_suffix(1);
    if (line.size() > plan_.max_line) {
      record.cut = true;
      std::size_t from = 0;
      if (match_at > plan_.max_line / 2) {
        from = std::min(match_at - plan_.max_line / 4, line.size() - plan_.max_line);
        // Not inside of a character.
        for (int i = 0; i < 3 && from < line.size() && (static_cast<unsigned char>(line[from]) & 0xc0) == 0x80; ++i)
          ++from;
      }
      line = line.substr(from, plan_.max_line);
      line = line.substr(0, protocols::utf8::complete_prefix(line));
    }
    record.text.emplace();
    protocols::utf8::append_repaired(*record.text, line);
  }

  // -- lines longer than the buffer ------------------------------------------------------------------------------------

  /// Searches the buffer, which is all one line's. False: the file is done.
  bool search_piece(std::size_t filled) {
    if (binary_ == binary::unknown)
      look_for_binary(filled);
    if (line_done_)
      return true;
    std::string_view text(buffer_.data(), filled);
    line_matcher::match match;
    if (!plan_.matcher.find_in_piece(text, in_line_ == 0 ? 0 : 1, filled - 1, match))
      return true;
    line_done_ = true;
    return found_in_long_line(text, match.at);
  }

  bool found_in_long_line(std::string_view text, std::size_t at) {
    ++matches_;
    if (binary_ == binary::yes) {
      put(make("binary"));
      return false;
    }
    if (plan_.output_mode == plan::mode::count)
      return true;
    if (plan_.output_mode == plan::mode::files) {
      put(make("file"));
      return false;
    }
    auto record = make("match");
    count_to(0);
    record.line = line_;
    record.column = in_line_ + at + 1;
    fill_text(record, text, at);
    record.cut = true;
    put(std::move(record));
    after_left_ = plan_.after;
    return !over_;
  }

  void continue_after_piece(std::size_t& filled) {
    auto keep = std::min(filled, piece_overlap_bytes);
    in_line_ += filled - keep;
    std::memmove(buffer_.data(), buffer_.data() + filled - keep, keep);
    filled = keep;
    printed_ = counted_ = from_ = 0;
  }

  /// The rest of a line that was searched in pieces. False: the file is done.
  bool end_long_line(std::size_t filled, bool end) {
    std::string_view text(buffer_.data(), filled);
    auto stop = line_end(text, 0);
    if (stop == filled && !end)
      return true;
    line_matcher::match match;
    if (!line_done_ && plan_.matcher.find_in_piece(text, std::min<std::size_t>(1, stop), stop, match) &&
        !found_in_long_line(text.substr(0, stop), match.at))
      return false;
    from_ = std::min(stop + 1, filled);
    printed_ = from_;
    in_line_ = 0;
    line_done_ = false;
    return true;
  }

  // -- records ---------------------------------------------------------------------------------------------------------

  wire::grep_record make(const char* type) const {
    wire::grep_record record;
    record.path.bytes = path_;
    record.type = type;
    return record;
  }

  void skip(int error) {
    auto record = make("skipped");
    record.reason = error == EACCES || error == EPERM ? "permission denied"
                    : error == ENAMETOOLONG           ? "too deep"
                                                      : std::strerror(error);
    put(std::move(record));
  }

  /// Holds records back until the file is done, so that files don't mix; a file with many takes the output for itself.
  void put(wire::grep_record&& record) {
    held_bytes_ += record.path.bytes.size() + (record.text ? record.text->size() : 0) + sizeof(record);
    held_.push_back(std::move(record));
    if (lock_.owns_lock() || held_.size() >= most_held_records || held_bytes_ >= most_held_bytes)
      hand_over();
  }

  void hand_over() {
    if (!lock_.owns_lock())
      lock_ = std::unique_lock(out_.mutex());
    for (auto& record : held_)
      if (!out_.put(std::move(record))) {
        over_ = true;
        break;
      }
    held_.clear();
    held_bytes_ = 0;
  }

  bool finish_file() {
    if (!held_.empty())
      hand_over();
    if (lock_.owns_lock())
      lock_.unlock();
    return !over_;
  }

  const plan& plan_;
  output& out_;
  std::stop_token stop_;
  mapped_buffer buffer_;
  std::string path_;

  // Of the file being searched. Positions are in the buffer.
  std::uint64_t line_ = 1;      // of the byte at counted_
  std::size_t counted_ = 0;     // a line's beginning
  std::size_t from_ = 0;        // what was not searched yet, a line's beginning
  std::size_t printed_ = 0;     // what was not printed yet, a line's beginning
  std::uint32_t after_left_ = 0; // lines of context still to print
  std::uint64_t matches_ = 0;
  std::uint64_t in_line_ = 0;   // bytes of the present line that are no longer in the buffer
  bool line_done_ = false;      // its match was told
  binary binary_ = binary::unknown;
  bool over_ = false;           // nothing more is wanted

  std::vector<wire::grep_record> held_;
  std::size_t held_bytes_ = 0;
  std::unique_lock<std::mutex> lock_;
};

class grep_worker : public walk_worker {
public:
  grep_worker(const plan& what, output& out, walk*& walker, std::mutex& sum_mutex, totals& sum, std::stop_token stop)
      : plan_(what), searcher_(what, out, std::move(stop)), walk_(walker), sum_mutex_(sum_mutex), sum_(sum) {
  }
  ~grep_worker() override {
    std::lock_guard lock(sum_mutex_);
    sum_.matches += mine_.matches;
    sum_.searched += mine_.searched;
    sum_.matched += mine_.matched;
  }

  bool enter(std::string_view directory, std::string_view name) override {
    return plan_.globs.empty() || plan_.globs.of(plan_.base.below(directory), name, true) != verdict::ignored;
  }

  void file(int fd, std::string_view directory, const char* name, unsigned char type) override {
    if (type != DT_REG)
      return;
    if (!plan_.globs.empty() && plan_.globs.of(plan_.base.below(directory), name, false) == verdict::ignored)
      return;
    // O_NONBLOCK: it may have become a pipe since its type was read. Reading that fails or ends at once.
    files::descriptor file(::openat(fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    bool more = true;
    if (file)
      more = searcher_.search(file.get(), plan_.base.absolute(directory, name), mine_);
    else if (errno != ENOENT && errno != ELOOP && errno != ENXIO)
      more = searcher_.skipped(plan_.base.absolute(directory, name), errno);
    if (!more)
      walk_->stop();
  }

  void unreadable(std::string_view path, int error) override {
    if (!searcher_.skipped(plan_.base.absolute(path, ""), error))
      walk_->stop();
  }

private:
  const plan& plan_;
  file_searcher searcher_;
  walk*& walk_;
  std::mutex& sum_mutex_;
  totals& sum_;
  totals mine_;
};

} // namespace

result<wire::grep_result> grep(const files::root_table& roots, const wire::search_grep& arguments,
                               const grep_sink& sink, std::stop_token stop) {
  auto matcher = line_matcher::compile(arguments);
  if (!matcher)
    return tl::unexpected(std::move(matcher.error()));
  auto globs = rule_list::of_globs(arguments.globs.value_or(std::vector<std::string>()));
  if (!globs)
    return tl::unexpected(std::move(globs.error()));
  std::string path = arguments.path ? arguments.path->bytes : std::string(".");
  auto base = open_base(roots, path);
  if (!base)
    return tl::unexpected(std::move(base.error()));
  plan what{arguments, std::move(*matcher), std::move(*globs), std::move(*base)};
  if (arguments.output == "files")
    what.output_mode = plan::mode::files;
  else if (arguments.output == "count")
    what.output_mode = plan::mode::count;
  else if (arguments.output != "content")
    return files::failure("search.invalid_pattern", "output must be \"content\", \"files\" or \"count\"", "after_change");
  if (what.output_mode == plan::mode::content) {
    what.before = std::min(arguments.before, most_context_lines);
    what.after = std::min(arguments.after, most_context_lines);
  }
  what.max_line = std::clamp<std::size_t>(arguments.max_line_bytes, 16, 1024 * 1024);

  struct stat status {};
  if (::fstat(what.base.opened.fd.get(), &status) != 0)
    return files::failure_of(errno, path);
  output out(sink, arguments.limit);
  totals sum;
  if (S_ISDIR(status.st_mode)) {
    walk::options how;
    how.hidden = arguments.hidden;
    how.ignore = arguments.ignore;
    how.threads = walk::default_threads();
    std::mutex sum_mutex;
    walk* self = nullptr;
    walk walker(
        how, [&] { return std::make_unique<grep_worker>(what, out, self, sum_mutex, sum, stop); }, stop);
    self = &walker;
    auto levels = arguments.ignore ? levels_above(roots, what.base) : nullptr;
    files::descriptor directory(::fcntl(what.base.opened.fd.get(), F_DUPFD_CLOEXEC, 3));
    if (!directory)
      return files::failure_of(errno, path);
    walker.run(std::move(directory), what.base.relative, std::move(levels));
  } else if (S_ISREG(status.st_mode)) {
    file_searcher(what, out, stop).search(what.base.opened.fd.get(), what.base.absolute(what.base.relative, ""), sum);
  } else {
    return files::failure_of(ENXIO, path);
  }
  if (stop.stop_requested() || out.refused())
    return files::failure("file.cancelled", "the search was cancelled");

  wire::grep_result done;
  done.matches = sum.matches;
  done.files_searched = sum.searched;
  done.files_matched = sum.matched;
  done.truncated = out.truncated();
  return done;
}

} // namespace holt::agent::search
