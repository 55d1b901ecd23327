#include "tests/agent/files/temporary_tree.hpp"

#include <deque>
#include <thread>

#include <sys/resource.h>
#include <sys/stat.h>

#include "agent/files/file_operations.hpp"
#include "agent/files/file_reader.hpp"
#include "agent/files/file_writer.hpp"

namespace holt::tests {
namespace {

using namespace agent::files;
namespace wire = protocols::agent;

class memory_sink : public agent::body_sink {
public:
  bool write(std::string_view bytes) override {
    received += bytes;
    return received.size() < give_up_after;
  }
  std::span<char> prepare() override {
    return {buffer, sizeof(buffer)};
  }
  bool commit(std::size_t bytes) override {
    return write({buffer, bytes});
  }
  bool cancelled() const override {
    return false;
  }
  std::string received;
  std::size_t give_up_after = static_cast<std::size_t>(-1);
  char buffer[1000];
};

class memory_source : public agent::body_source {
public:
  explicit memory_source(std::deque<std::string> pieces, bool complete = true)
      : pieces_(std::move(pieces)), complete_(complete) {
  }
  std::optional<std::string_view> next() override {
    if (pieces_.empty())
      return complete_ ? std::optional<std::string_view>(std::string_view()) : std::nullopt;
    current_ = std::move(pieces_.front());
    pieces_.pop_front();
    return current_;
  }
  bool cancelled() const override {
    return false;
  }

private:
  std::deque<std::string> pieces_;
  std::string current_;
  bool complete_;
};

class transfer_test : public temporary_tree {
protected:
  result<wire::file_write_result> write(const std::string& path, const std::string& content,
                                        std::function<void(wire::file_write&)> change = {}) {
    wire::file_write arguments;
    arguments.path.bytes = path;
    if (change)
      change(arguments);
    memory_source body({content});
    if (content.empty())
      body = memory_source({});
    return write_file(*roots, locks, arguments, body);
  }
  std::string code_of_write(const std::string& path, const std::string& content,
                            std::function<void(wire::file_write&)> change = {}) {
    auto done = write(path, content, std::move(change));
    return done ? "" : done.error().code;
  }
  mode_t mode(const std::string& name) {
    struct stat status {};
    EXPECT_EQ(::lstat((workspace + "/" + name).c_str(), &status), 0);
    return status.st_mode;
  }
};

TEST_F(transfer_test, upload_is_verified) {
  std::string content(20 * 1024, 'x');
  auto hash = sha256::of(content);
  auto done = write("a", content, [&](auto& a) {
    a.size = content.size();
    a.sha256 = hash;
  });
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->size, content.size());
  EXPECT_EQ(done->sha256, hash);
  EXPECT_TRUE(done->created);
  EXPECT_EQ(get(workspace + "/a"), content);

  EXPECT_EQ(code_of_write("b", content, [&](auto& a) { a.size = content.size() + 1; }), "file.mismatch");
  EXPECT_EQ(code_of_write("b", content, [&](auto& a) { a.size = content.size() - 1; }), "file.mismatch");
  EXPECT_EQ(code_of_write("b", content + "y", [&](auto& a) { a.sha256 = hash; }), "file.mismatch");
  EXPECT_EQ(code_of_write("a", content + "y", [&](auto& a) { a.sha256 = hash; }), "file.mismatch");
  EXPECT_EQ(names(workspace), std::vector<std::string>{"a"});
  EXPECT_EQ(get(workspace + "/a"), content);
}

TEST_F(transfer_test, large_write_streams) {
  // Far more than the writer may hold: its memory is what it is given at a time.
  wire::file_write arguments;
  arguments.path.bytes = "large";
  arguments.size = 64ull * 1024 * 1024;
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  auto writer = file_writer::begin(*roots, locks, arguments);
  ASSERT_TRUE(writer);
  std::string piece(64 * 1024, 'x');
  for (int i = 0; i < 1024; ++i)
    ASSERT_TRUE(writer->append(piece));
  EXPECT_TRUE(names(workspace).empty()) << "nothing shows before it is complete";
  auto done = writer->commit();
  ASSERT_TRUE(done) << done.error().message;
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_EQ(done->size, *arguments.size);
  EXPECT_EQ(std::filesystem::file_size(workspace + "/large"), *arguments.size);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 8 * 1024) << "KiB";

  wire::file_read read;
  read.path.bytes = "large";
  auto reader = file_reader::open(*roots, read);
  ASSERT_TRUE(reader);
  std::uint64_t total = 0;
  while (auto count = reader->read(piece).value())
    total += count;
  EXPECT_EQ(total, *arguments.size);
  EXPECT_EQ(reader->finish().sha256, done->sha256);
}

TEST_F(transfer_test, an_empty_file_is_a_file) {
  ASSERT_TRUE(write("empty", ""));
  EXPECT_EQ(std::filesystem::file_size(workspace + "/empty"), 0u);
}

TEST_F(transfer_test, a_body_that_ends_early_changes_nothing_and_leaves_nothing) {
  put(workspace + "/a", "old");
  wire::file_write arguments;
  arguments.path.bytes = "a";
  memory_source body({"half"}, false);
  auto done = write_file(*roots, locks, arguments, body);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, "file.cancelled");
  EXPECT_EQ(get(workspace + "/a"), "old");
  EXPECT_EQ(names(workspace), std::vector<std::string>{"a"});
}

TEST_F(transfer_test, replacing_keeps_the_mode_and_a_new_file_gets_the_one_asked_for) {
  put(workspace + "/script", "old");
  ::chmod((workspace + "/script").c_str(), 0751);
  auto done = write("script", "new", [](auto& a) { a.mode = 0600; });
  ASSERT_TRUE(done);
  EXPECT_FALSE(done->created);
  EXPECT_EQ(mode("script") & 07777, 0751u);
  ASSERT_TRUE(write("plain", "x"));
  EXPECT_EQ(mode("plain") & 07777, 0644u);
  ASSERT_TRUE(write("tool", "x", [](auto& a) { a.mode = 0755; }));
  EXPECT_EQ(mode("tool") & 07777, 0755u);
}

TEST_F(transfer_test, replacing_as_root_keeps_the_owner) {
  if (::geteuid() != 0)
    return; // nobody else can give files away
  put(workspace + "/theirs", "old");
  ASSERT_EQ(::chown((workspace + "/theirs").c_str(), 12345, 12346), 0);
  ASSERT_TRUE(write("theirs", "new"));
  struct stat status {};
  ::stat((workspace + "/theirs").c_str(), &status);
  EXPECT_EQ(status.st_uid, 12345u);
  EXPECT_EQ(status.st_gid, 12346u);
}

TEST_F(transfer_test, writing_through_a_link_replaces_its_target_and_keeps_the_link) {
  directory("real");
  put(workspace + "/real/file", "old");
  link("real/file", "relative");
  link(workspace + "/real/file", "absolute");
  link("real/none", "dangling");
  ASSERT_TRUE(write("relative", "1"));
  EXPECT_EQ(get(workspace + "/real/file"), "1");
  ASSERT_TRUE(write("absolute", "2"));
  EXPECT_EQ(get(workspace + "/real/file"), "2");
  ASSERT_TRUE(write("dangling", "3"));
  EXPECT_EQ(get(workspace + "/real/none"), "3");
  for (auto name : {"relative", "absolute", "dangling"})
    EXPECT_TRUE(S_ISLNK(mode(name))) << name;
}

TEST_F(transfer_test, missing_directories_are_made_when_asked) {
  ASSERT_TRUE(write("a/b/c", "1"));
  EXPECT_EQ(get(workspace + "/a/b/c"), "1");
  EXPECT_EQ(code_of_write("x/y", "1", [](auto& a) { a.parents = false; }), "file.not_found");
  EXPECT_EQ(code_of_write("a/b/c/d", "1"), "file.not_directory");
}

TEST_F(transfer_test, a_directory_is_not_written_over) {
  directory("a");
  EXPECT_EQ(code_of_write("a", "1"), "file.is_directory");
  EXPECT_EQ(code_of_write("new/", "1"), "file.is_directory");
  EXPECT_EQ(code_of_write(".", "1"), "file.is_directory");
}

TEST_F(transfer_test, skills_are_read_only) {
  EXPECT_EQ(code_of_write(base + "/skills/x", "1"), "file.read_only");
  EXPECT_EQ(code_of_write(base + "/skills/x/y", "1"), "file.read_only");
  EXPECT_TRUE(names(base + "/skills").empty());
}

TEST_F(transfer_test, compare_and_set_by_content) {
  put(workspace + "/a", "one");
  auto is = [](std::string content) { return [content](auto& a) { a.if_match = sha256::of(content); }; };
  auto is_new = [](auto& a) { a.if_match = ""; };
  EXPECT_EQ(code_of_write("a", "two", is("other")), "file.changed");
  EXPECT_EQ(code_of_write("a", "two", is_new), "file.changed");
  EXPECT_EQ(get(workspace + "/a"), "one");
  EXPECT_EQ(code_of_write("a", "two", is("one")), "");
  EXPECT_EQ(get(workspace + "/a"), "two");
  EXPECT_EQ(code_of_write("none", "x", is("one")), "file.changed");
  EXPECT_EQ(code_of_write("new", "x", is_new), "");
  EXPECT_EQ(names(workspace), (std::vector<std::string>{"a", "new"}));
}

TEST_F(transfer_test, of_two_that_make_the_same_new_file_one_is_told) {
  wire::file_write arguments;
  arguments.path.bytes = "new";
  arguments.if_match = "";
  auto a = file_writer::begin(*roots, locks, arguments);
  auto b = file_writer::begin(*roots, locks, arguments);
  ASSERT_TRUE(a && b);
  ASSERT_TRUE(a->append("a") && b->append("b"));
  EXPECT_TRUE(a->commit());
  auto second = b->commit();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, "file.changed");
  EXPECT_EQ(get(workspace + "/new"), "a");
}

TEST_F(transfer_test, a_full_disk_says_so) {
  // A file size limit of the process is the one shortage that needs no other file system: it arrives as EFBIG.
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = 1000;
  ::setrlimit(RLIMIT_FSIZE, &small);
  auto code = code_of_write("a", std::string(2000, 'x'));
  ::setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_EQ(code, "file.too_large");
  EXPECT_TRUE(names(workspace).empty());
  EXPECT_EQ(failure_of(ENOSPC, "a").value().code, "storage.full");
  EXPECT_EQ(failure_of(EDQUOT, "a").value().code, "storage.full");
}

TEST_F(transfer_test, a_range_is_read_and_only_a_whole_read_has_a_hash) {
  put(workspace + "/a", "0123456789");
  wire::file_read arguments;
  arguments.path.bytes = "a";
  memory_sink whole;
  auto all = read_file(*roots, arguments, whole);
  ASSERT_TRUE(all);
  EXPECT_EQ(whole.received, "0123456789");
  EXPECT_EQ(all->size, 10u);
  EXPECT_EQ(all->length, 10u);
  EXPECT_EQ(all->sha256, sha256::of("0123456789"));

  arguments.offset = 3;
  arguments.length = 4;
  memory_sink part;
  auto some = read_file(*roots, arguments, part);
  ASSERT_TRUE(some);
  EXPECT_EQ(part.received, "3456");
  EXPECT_EQ(some->offset, 3u);
  EXPECT_EQ(some->length, 4u);
  EXPECT_FALSE(some->sha256);

  arguments.offset = 100;
  memory_sink none;
  auto behind = read_file(*roots, arguments, none);
  ASSERT_TRUE(behind);
  EXPECT_EQ(behind->length, 0u);
  EXPECT_EQ(behind->size, 10u);
}

TEST_F(transfer_test, reading_ends_when_the_receiver_is_gone) {
  put(workspace + "/a", std::string(100'000, 'x'));
  wire::file_read arguments;
  arguments.path.bytes = "a";
  memory_sink body;
  body.give_up_after = 5000;
  auto done = read_file(*roots, arguments, body);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, "file.cancelled");
  EXPECT_LT(body.received.size(), 10'000u);
}

TEST_F(transfer_test, reading_with_if_match_refuses_another_content) {
  put(workspace + "/a", "one");
  wire::file_read arguments;
  arguments.path.bytes = "a";
  arguments.if_match = sha256::of("two");
  memory_sink body;
  auto done = read_file(*roots, arguments, body);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, "file.changed");
  EXPECT_TRUE(body.received.empty());
}

} // namespace
} // namespace holt::tests
