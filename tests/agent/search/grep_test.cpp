#include "tests/agent/files/temporary_tree.hpp"

#include <atomic>
#include <map>
#include <thread>

#include <linux/fs.h>
#include <sys/stat.h>

#include "agent/search/grep.hpp"

namespace holt::tests {
namespace {

namespace wire = protocols::agent;
using change_t = std::function<void(wire::search_grep&)>;

class grep_test : public temporary_tree {
protected:
  std::vector<wire::grep_record> records(const std::string& pattern, const change_t& change = {}) {
    wire::search_grep arguments;
    arguments.pattern = pattern;
    if (change)
      change(arguments);
    std::vector<wire::grep_record> out;
    auto done = agent::search::grep(*roots, arguments, [&](wire::grep_record&& record) {
      out.push_back(std::move(record));
      return true;
    });
    code = done ? "" : done.error().code;
    message = done ? "" : done.error().message;
    sum = done.value_or(wire::grep_result());
    // Files come in any order, the records of one together.
    std::stable_sort(out.begin(), out.end(), [](auto& a, auto& b) { return a.path.bytes < b.path.bytes; });
    return out;
  }
  /// As grep would print it: "a:2:text", context with dashes.
  std::string grep(const std::string& pattern, const change_t& change = {}) {
    std::string out;
    for (const auto& record : records(pattern, change)) {
      auto path = record.path.bytes.substr(std::min(record.path.bytes.size(), workspace.size() + 1));
      out += path;
      if (record.type == "match")
        out += ":" + std::to_string(*record.line) + ":" + *record.text;
      else if (record.type == "context")
        out += "-" + std::to_string(*record.line) + "-" + *record.text;
      else
        out += " " + record.type + (record.count ? " " + std::to_string(*record.count) : "") +
               (record.reason ? " " + *record.reason : "");
      out += "\n";
    }
    return out;
  }
  void file(const std::string& name, const std::string& content) {
    auto slash = name.rfind('/');
    if (slash != name.npos)
      directory(name.substr(0, slash));
    put(workspace + "/" + name, content);
  }

  std::string code;
  std::string message;
  wire::grep_result sum;
  change_t literal = [](auto& a) { a.literal = true; };
  change_t fold = [](auto& a) { a.ignore_case = true; };
  change_t multi = [](auto& a) { a.multiline = true; };
  change_t context = [](auto& a) { a.before = a.after = 1; };
};

TEST_F(grep_test, lines_are_told_with_number_column_and_text) {
  file("a", "one\ntwo words\nthree");
  auto found = records("w[ao]rds");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].path.bytes, workspace + "/a");
  EXPECT_EQ(found[0].line, 2u);
  EXPECT_EQ(found[0].column, 5u);
  EXPECT_EQ(found[0].text, "two words");
  EXPECT_FALSE(found[0].cut);
  EXPECT_EQ(sum.matches, 1u);
  EXPECT_EQ(sum.files_searched, 1u);
  EXPECT_EQ(sum.files_matched, 1u);
  EXPECT_EQ(grep("three$"), "a:3:three\n");
  EXPECT_EQ(grep("^t"), "a:2:two words\na:3:three\n");
  EXPECT_EQ(grep("$"), "a:1:one\na:2:two words\na:3:three\n");
  EXPECT_EQ(grep(""), "a:1:one\na:2:two words\na:3:three\n");
}

TEST_F(grep_test, a_match_stays_in_its_line) {
  file("a", "x\ny\n\nz\n");
  EXPECT_EQ(grep("x\\s*y"), "");
  EXPECT_EQ(grep("x[^a]y"), "");
  EXPECT_EQ(grep("^$"), "a:3:\n");
  EXPECT_EQ(grep("x.y"), "");
  EXPECT_EQ(grep("y\\s*"), "a:2:y\n");
  grep("x\\ny");
  EXPECT_EQ(code, "search.invalid_pattern");
  EXPECT_NE(message.find("multiline"), std::string::npos);
  EXPECT_EQ(grep("[^\\n]z"), "");
  EXPECT_EQ(code, "");
}

TEST_F(grep_test, literal_means_plain_bytes) {
  file("a", "a.b\nacb\na+b(\n");
  EXPECT_EQ(grep("a.b", literal), "a:1:a.b\n");
  EXPECT_EQ(grep("a+b(", literal), "a:3:a+b(\n");
  grep("b(");
  EXPECT_EQ(code, "search.invalid_pattern");
  EXPECT_NE(message.find("missing )"), std::string::npos) << message;
  grep("a)(b");
  EXPECT_EQ(code, "search.invalid_pattern");
}

TEST_F(grep_test, case_is_ignored_beyond_ascii_too) {
  file("a", "MASK\nmask\nMa\xc5\xbf\xe2\x84\xaa\n\xc3\x84pfel\n");
  auto both = [&](auto& a) { fold(a); literal(a); };
  // LONG S and KELVIN SIGN are the other cases of s and k.
  EXPECT_EQ(grep("mask", both), "a:1:MASK\na:2:mask\na:3:Ma\xc5\xbf\xe2\x84\xaa\n");
  EXPECT_EQ(grep("ma[s]k", fold), "a:1:MASK\na:2:mask\na:3:Ma\xc5\xbf\xe2\x84\xaa\n");
  EXPECT_EQ(grep("(?i)mask"), "a:1:MASK\na:2:mask\na:3:Ma\xc5\xbf\xe2\x84\xaa\n");
  EXPECT_EQ(grep("\xc3\xa4PFEL", both), "a:4:\xc3\x84pfel\n");
  EXPECT_EQ(grep("mask"), "a:2:mask\n");
}

TEST_F(grep_test, required_strings_lose_no_match) {
  file("a", "foo_init\nbar_exit\nfoo_exit\nFOO_init\nnothing\nab\n");
  EXPECT_EQ(grep("(foo|bar)_(init|exit)"), "a:1:foo_init\na:2:bar_exit\na:3:foo_exit\n");
  EXPECT_EQ(grep("foo_init|nothing|^ab$"), "a:1:foo_init\na:5:nothing\na:6:ab\n");
  EXPECT_EQ(grep("[a-z]+_init"), "a:1:foo_init\n");
  EXPECT_EQ(grep("(?:x|)ab"), "a:6:ab\n");
  EXPECT_EQ(grep("a|b_e"), "a:2:bar_exit\na:6:ab\n");
  EXPECT_EQ(grep("FOO_[a-z]*"), "a:4:FOO_init\n");
}

TEST_F(grep_test, context_is_merged) {
  file("a", "1\nx\n3\nx\n5\n6\n7\nx\n");
  EXPECT_EQ(grep("x", context), "a-1-1\na:2:x\na-3-3\na:4:x\na-5-5\na-7-7\na:8:x\n");
  EXPECT_EQ(grep("x", [](auto& a) { a.before = 10; a.after = 10; }),
            "a-1-1\na:2:x\na-3-3\na:4:x\na-5-5\na-6-6\na-7-7\na:8:x\n");
  EXPECT_EQ(grep("^1", [](auto& a) { a.after = 2; }), "a:1:1\na-2-x\na-3-3\n");
  EXPECT_EQ(grep("7", [](auto& a) { a.before = 2; }), "a-5-5\na-6-6\na:7:7\n");
}

TEST_F(grep_test, patterns_may_span_lines_when_asked) {
  file("a", "one {\n  two\n}\nthree {\n  four\n}\n");
  EXPECT_EQ(grep("\\{\\n\\s+two", multi), "a:1:one {\na:2:  two\n");
  EXPECT_EQ(sum.matches, 1u);
  EXPECT_EQ(grep("two\n}", [&](auto& a) { multi(a); literal(a); }), "a:2:  two\na:3:}\n");
  EXPECT_EQ(grep("one.*two", multi), "");
  EXPECT_EQ(grep("(?s)one.*?two", multi), "a:1:one {\na:2:  two\n");
  EXPECT_EQ(grep("^}$", multi), "a:3:}\na:6:}\n");
  EXPECT_EQ(grep("four\\n", [&](auto& a) { multi(a); context(a); }), "a-4-three {\na:5:  four\na-6-}\n");
}

TEST_F(grep_test, files_and_counts) {
  file("a", "x\nx x\ny\n");
  file("b", "y\n");
  file("c/d", "x\n");
  EXPECT_EQ(grep("x", [](auto& a) { a.output = "files"; }), "a file\nc/d file\n");
  EXPECT_EQ(grep("x", [](auto& a) { a.output = "count"; }), "a count 2\nc/d count 1\n");
  EXPECT_EQ(sum.matches, 3u);
  EXPECT_EQ(sum.files_searched, 3u);
  EXPECT_EQ(sum.files_matched, 2u);
  grep("x", [](auto& a) { a.output = "json"; });
  EXPECT_EQ(code, "search.invalid_pattern");
}

TEST_F(grep_test, a_binary_file_is_told_and_not_printed) {
  file("a", std::string("x\0y x\nx\n", 8));
  file("b", std::string("y\0\n", 3));
  EXPECT_EQ(grep("x"), "a binary\n");
  file("late", std::string(200'000, 'y') + "\n" + std::string(1, '\0') + "x\n");
  EXPECT_EQ(grep("^.?x"), "a binary\nlate:2:" + std::string(1, '\0') + "x\n");
}

TEST_F(grep_test, text_that_is_not_utf8_is_repaired) {
  file("a", "x \xff y\r\n");
  EXPECT_EQ(grep("x"), "a:1:x \xef\xbf\xbd y\n");
}

TEST_F(grep_test, filters_choose_files) {
  for (auto name : {"a.c", "b.h", "src/c.c", "src/d.txt", "build/e.c"})
    file(name, "x\n");
  auto with = [](std::vector<std::string> globs) {
    return [globs](wire::search_grep& a) { a.globs = globs; a.output = "files"; };
  };
  EXPECT_EQ(grep("x", with({"*.c"})), "a.c file\nbuild/e.c file\nsrc/c.c file\n");
  EXPECT_EQ(grep("x", with({"*.{c,h}", "!build"})), "a.c file\nb.h file\nsrc/c.c file\n");
  EXPECT_EQ(grep("x", with({"!*.c"})), "b.h file\nsrc/d.txt file\n");
  EXPECT_EQ(grep("x", with({"src/**"})), "src/c.c file\nsrc/d.txt file\n");
  file(".gitignore", "build\n");
  EXPECT_EQ(grep("x", [](auto& a) { a.ignore = true; a.output = "files"; a.globs = {"*.c"}; }), "a.c file\nsrc/c.c file\n");
  grep("x", with({"[a"}));
  EXPECT_EQ(code, "search.invalid_glob");
}

TEST_F(grep_test, one_file_may_be_searched) {
  file("d/a", "x\n");
  file("d/b", "x\n");
  EXPECT_EQ(grep("x", [](auto& a) { a.path = wire::raw_name{"d/a"}; }), "d/a:1:x\n");
  ASSERT_EQ(::mkfifo((workspace + "/pipe").c_str(), 0644), 0);
  grep("x", [](auto& a) { a.path = wire::raw_name{"pipe"}; });
  EXPECT_EQ(code, "file.not_regular");
  EXPECT_EQ(grep("x"), "d/a:1:x\nd/b:1:x\n") << "a pipe in a tree is passed over";
}

TEST_F(grep_test, the_limit_ends_the_search_and_is_told) {
  for (int i = 0; i < 20; ++i)
    file("f" + std::to_string(i), "x\nx\nx\n");
  EXPECT_EQ(records("x", [](auto& a) { a.limit = 7; }).size(), 7u);
  EXPECT_TRUE(sum.truncated);
  EXPECT_EQ(records("x", [](auto& a) { a.limit = 60; }).size(), 60u);
  EXPECT_FALSE(sum.truncated);
}

TEST_F(grep_test, what_cannot_be_read_is_told_and_fails_nothing) {
  if (::geteuid() == 0)
    return; // root reads everything
  file("a", "x\n");
  file("b", "x\n");
  ::chmod((workspace + "/a").c_str(), 0);
  EXPECT_EQ(grep("x"), "a skipped permission denied\nb:1:x\n");
}

TEST_F(grep_test, long_lines_are_cut_where_the_match_is) {
  file("a", std::string(5000, 'y') + "needle" + std::string(5000, 'z') + "\nneedle " + std::string(3000, 'w') + "\n");
  auto found = records("needle", [](auto& a) { a.max_line_bytes = 100; });
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].column, 5001u);
  EXPECT_EQ(found[0].cut, true);
  EXPECT_EQ(found[0].text->size(), 100u);
  EXPECT_NE(found[0].text->find("needle"), std::string::npos);
  EXPECT_EQ(found[1].column, 1u);
  EXPECT_EQ(found[1].text->substr(0, 8), "needle w");
  file("a", "needle" + std::string(40, ' ') + "\xc3\xa4\xc3\xa4");
  EXPECT_EQ(records("needle", [](auto& a) { a.max_line_bytes = 47; })[0].text, "needle" + std::string(40, ' '));
}

TEST_F(grep_test, huge_lines_are_searched_to_their_end) {
  // Longer than any buffer: in pieces.
  std::string huge = "first\n" + std::string(30'000'000, 'y') + "needle" + std::string(5'000'000, 'z') + "\nlast\n";
  file("a", huge);
  for (auto pattern : {"needle", "need[l]e", "yneedlez"}) {
    auto found = records(pattern);
    ASSERT_EQ(found.size(), 1u) << pattern;
    EXPECT_EQ(found[0].line, 2u);
    EXPECT_EQ(found[0].column, 30'000'001u - (pattern[0] == 'y' ? 1 : 0));
    EXPECT_LE(found[0].text->size(), 2000u);
    EXPECT_NE(found[0].text->find("needle"), std::string::npos);
  }
  EXPECT_EQ(grep("^last$"), "a:3:last\n");
  grep("^y*needle");
  EXPECT_EQ(code, "") << "a match longer than a piece may be missed, but fails nothing";
  EXPECT_EQ(grep("^needle"), "");
  EXPECT_EQ(grep("needle$"), "");
  EXPECT_EQ(grep("^first\\n|^last", multi), "a:1:first\na:3:last\n");
}

TEST_F(grep_test, large_files_are_searched_in_windows_without_losing_lines_or_context) {
  std::string content;
  std::string expected;
  for (int i = 1; content.size() < 3'000'000; ++i) {
    bool match = i % 7 == 0;
    content += (match ? "needle " : "line ") + std::to_string(i) + "\n";
    if (match)
      for (int k = i - 2; k <= i + 2; ++k)
        expected += (k == i ? "a:" : "a-") + std::to_string(k) + (k == i ? ":needle " : "-line ") + std::to_string(k) + "\n";
  }
  content += "line\nline\n";
  file("a", content);
  auto two = [](auto& a) { a.before = a.after = 2; a.limit = 1'000'000; };
  // Compared as wholes: a difference of megabytes takes longer to print than to find.
  EXPECT_TRUE(grep("needle", two) == expected);
  EXPECT_TRUE(grep("n[e]+dle \\d+", two) == expected);
  EXPECT_TRUE(grep("needle", [&](auto& a) { two(a); multi(a); }) == expected);
}

TEST_F(grep_test, files_of_over_64_mib_are_searched_right_also_across_lines) {
  // Nearly every place where a window could end is inside of a match's second line.
  const std::string pair = "begin\nend" + std::string(1000, '.') + "\n";
  const int pairs = 70'000;
  {
    std::ofstream out(workspace + "/a", std::ios::binary);
    for (int i = 0; i < pairs; ++i)
      out << pair;
    out << "begin\nlast\n";
  }
  EXPECT_GT(std::filesystem::file_size(workspace + "/a"), 64u * 1024 * 1024);
  auto count = [](auto& a) { a.output = "count"; };
  EXPECT_EQ(grep("begin\nend", [&](auto& a) { count(a); multi(a); }), "a count 70000\n");
  EXPECT_EQ(grep("be[g]in\nend\\.+\n", [&](auto& a) { count(a); multi(a); }), "a count 70000\n");
  EXPECT_EQ(grep("begin", count), "a count 70001\n");
  EXPECT_EQ(grep("^end", count), "a count 70000\n");
  EXPECT_EQ(grep("last"), "a:140002:last\n");
  EXPECT_EQ(grep("begin\nlast", multi), "a:140001:begin\na:140002:last\n");
}

TEST_F(grep_test, a_match_over_the_end_of_a_piece_is_found) {
  for (std::size_t piece : {256u * 1024, 8u * 1024 * 1024, 16u * 1024 * 1024}) {
    file("a", std::string(piece - 3, 'y') + "needle" + std::string(piece + 1000, 'z'));
    for (bool multiline : {false, true})
      for (auto pattern : {"needle", "ne[e]dle"}) {
        auto found = records(pattern, [&](auto& a) { a.multiline = multiline; });
        ASSERT_EQ(found.size(), 1u) << pattern << " " << piece << " " << multiline;
        EXPECT_EQ(found[0].column, piece - 2);
      }
  }
}

TEST_F(grep_test, a_tree_that_is_changed_meanwhile_never_leads_outside) {
  file("swap/file", "text inside\n");
  put(outside + "/file", "text outside\n");
  link(outside, "evil");
  link(outside + "/file", "evil_file");
  file("swap_file", "text inside\n");
  std::atomic<bool> over{false};
  std::thread attacker([&] {
    while (!over)
      for (std::string name : {"swap", "swap_file"})
        ::renameat2(AT_FDCWD, (workspace + "/" + name).c_str(), AT_FDCWD,
                    (workspace + (name == "swap" ? "/evil" : "/evil_file")).c_str(), RENAME_EXCHANGE);
  });
  bool escaped = false;
  for (int i = 0; i < 3000 && !escaped; ++i)
    for (const auto& record : records("text"))
      escaped |= record.text.value_or("") == "text outside";
  over = true;
  attacker.join();
  EXPECT_FALSE(escaped);
}

TEST_F(grep_test, many_files_and_many_records_stay_apart) {
  std::map<std::string, int> expected;
  for (int i = 0; i < 300; ++i) {
    auto name = "d" + std::to_string(i % 11) + "/f" + std::to_string(i);
    std::string content;
    for (int k = 0; k < i * 3; ++k)
      content += "x " + std::to_string(k) + "\n";
    file(name, content);
    if (i != 0)
      expected[workspace + "/" + name] = i * 3;
  }
  wire::search_grep arguments;
  arguments.pattern = "x";
  arguments.limit = 1'000'000;
  std::map<std::string, int> seen;
  std::string last;
  auto done = agent::search::grep(*roots, arguments, [&](wire::grep_record&& record) {
    if (record.path.bytes != last) {
      EXPECT_EQ(seen.count(record.path.bytes), 0u) << "the records of a file come together";
    }
    last = record.path.bytes;
    EXPECT_EQ(*record.line, static_cast<std::uint64_t>(++seen[last]));
    return true;
  });
  ASSERT_TRUE(done);
  EXPECT_EQ(seen, expected);
}

TEST_F(grep_test, a_receiver_that_is_gone_ends_the_search) {
  for (int i = 0; i < 100; ++i)
    file("f" + std::to_string(i), "x\n");
  wire::search_grep arguments;
  arguments.pattern = "x";
  int count = 0;
  auto done = agent::search::grep(*roots, arguments, [&](auto&&) { return ++count < 3; });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, "file.cancelled");
  EXPECT_EQ(count, 3);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(agent::search::grep(*roots, arguments, [](auto&&) { return true; }, stop.get_token()));
}

} // namespace
} // namespace holt::tests
