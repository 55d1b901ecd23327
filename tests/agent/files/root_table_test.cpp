#include "tests/agent/files/temporary_tree.hpp"

#include <atomic>
#include <thread>

#include <linux/fs.h>
#include <sys/stat.h>

#include "agent/files/file_operations.hpp"
#include "agent/files/file_reader.hpp"
#include "agent/files/file_writer.hpp"

namespace holt::tests {
namespace {

using namespace agent::files;
namespace wire = protocols::agent;

class root_table_test : public temporary_tree {
protected:
  std::string code_of_open(const std::string& path, int flags = O_RDONLY) {
    auto file = roots->open(path, flags, last_link::follow);
    return file ? "" : file.error().code;
  }
  std::string read(const std::string& path) {
    auto file = open_regular(*roots, path);
    if (!file)
      return file.error().code;
    char buffer[256];
    auto count = ::read(file->fd.get(), buffer, sizeof(buffer));
    return {buffer, static_cast<std::size_t>(std::max<long>(count, 0))};
  }
};

TEST_F(root_table_test, a_path_is_absolute_in_a_root_or_relative_to_the_workspace) {
  put(workspace + "/a", "1");
  put(base + "/tmp/b", "2");
  EXPECT_EQ(read("a"), "1");
  EXPECT_EQ(read("./a"), "1");
  EXPECT_EQ(read(workspace + "//./a"), "1");
  EXPECT_EQ(read(base + "/tmp/b"), "2");
  EXPECT_EQ(read("nothing"), "file.not_found");
}

TEST_F(root_table_test, a_path_outside_of_every_root_is_refused_and_the_roots_are_named) {
  auto file = roots->open("/etc/passwd", O_RDONLY, last_link::follow);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, "file.outside_roots");
  EXPECT_NE(file.error().message.find(workspace), std::string::npos);
  EXPECT_EQ(code_of_open(workspace + "2"), "file.outside_roots");
  EXPECT_EQ(code_of_open(outside + "/secret"), "file.outside_roots");
}

TEST_F(root_table_test, symlink_escape_is_refused) {
  link(outside, "absolute");
  link("../outside", "relative");
  link(outside + "/secret", "file");
  link("/proc/self/root", "magic");
  directory("deep/er");
  link("../../../outside", "deep/er/up");
  link("absolute", "twice");
  link(workspace + "/../outside", "through_the_root");
  link("/workspace/../etc", "foreign");
  for (auto path : {"absolute/secret", "relative/secret", "file", "magic/etc/passwd", "deep/er/up/secret", "twice/secret",
                    "through_the_root/secret", "../outside/secret", "deep/../../outside/secret", "foreign/passwd"}) {
    EXPECT_EQ(read(path), "file.outside_roots") << path;
    wire::file_write write;
    write.path.bytes = path;
    auto writer = file_writer::begin(*roots, locks, write);
    ASSERT_FALSE(writer) << path;
    EXPECT_EQ(writer.error().code, "file.outside_roots") << path;
  }
  // A new name behind a link that leaves is no better than an old one.
  wire::file_write write;
  write.path.bytes = "relative/new";
  EXPECT_FALSE(file_writer::begin(*roots, locks, write));
  wire::file_mkdir make;
  make.path.bytes = "absolute/made/deeper";
  EXPECT_FALSE(make_directory(*roots, make));
  wire::file_list list;
  list.path.bytes = "absolute";
  EXPECT_FALSE(list_directory(*roots, list, [](auto&&) { return true; }));
  EXPECT_EQ(names(outside), std::vector<std::string>{"secret"});
  EXPECT_EQ(get(outside + "/secret"), "secret");
}

TEST_F(root_table_test, path_with_dotdot_prefix_is_valid) {
  put(workspace + "/..foo", "1");
  directory("..bar/...");
  put(workspace + "/..bar/.../x..", "2");
  EXPECT_EQ(read("..foo"), "1");
  EXPECT_EQ(read(workspace + "/..foo"), "1");
  EXPECT_EQ(read("..bar/.../x.."), "2");
  link(workspace + "/..bar", "..by_steps");
  EXPECT_EQ(read("..by_steps/.../x.."), "2");
  wire::file_write write;
  write.path.bytes = "..by_steps/..new";
  auto writer = file_writer::begin(*roots, locks, write);
  ASSERT_TRUE(writer) << writer.error().message;
  ASSERT_TRUE(writer->commit());
  EXPECT_EQ(names(workspace + "/..bar"), (std::vector<std::string>{"...", "..new"}));
}

TEST_F(root_table_test, steps_up_that_stay_inside_are_fine) {
  directory("a/b");
  put(workspace + "/a/x", "1");
  EXPECT_EQ(read("a/b/../x"), "1");
  EXPECT_EQ(read("a/b/../../a/x"), "1");
  EXPECT_EQ(code_of_open("a/b/../../.."), "file.outside_roots");
}

TEST_F(root_table_test, links_are_followed_while_they_stay_inside) {
  directory("a");
  put(workspace + "/a/x", "1");
  put(base + "/tmp/t", "2");
  link("a", "relative");
  link(workspace + "/a", "absolute");
  link(base + "/tmp", "to_tmp");
  link("absolute/../a/x", "mixed");
  link("mixed", "again");
  EXPECT_EQ(read("relative/x"), "1");
  EXPECT_EQ(read("absolute/x"), "1");
  EXPECT_EQ(read("to_tmp/t"), "2");
  EXPECT_EQ(read("mixed"), "1");
  EXPECT_EQ(read("again"), "1");
}

TEST_F(root_table_test, a_link_into_the_skills_is_as_read_only_as_they_are) {
  link(base + "/skills", "skills");
  wire::file_write write;
  write.path.bytes = "skills/x";
  auto writer = file_writer::begin(*roots, locks, write);
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code, "file.read_only");
}

TEST_F(root_table_test, links_that_go_in_circles_end) {
  link("b", "a");
  link("a", "b");
  link(workspace + "/d", "c");
  link(workspace + "/c", "d");
  EXPECT_EQ(code_of_open("a"), "file.too_many_links");
  EXPECT_EQ(code_of_open("c"), "file.too_many_links");
  EXPECT_FALSE(roots->locate("c", last_link::follow));
}

TEST_F(root_table_test, forty_absolute_links_are_followed_and_more_are_not) {
  put(workspace + "/l0", "end");
  for (int i = 1; i <= 41; ++i)
    link(workspace + "/l" + std::to_string(i - 1), "l" + std::to_string(i));
  EXPECT_EQ(read("l40"), "end");
  EXPECT_EQ(read("l41"), "file.too_many_links");
}

TEST_F(root_table_test, a_path_that_can_be_no_path_is_refused) {
  EXPECT_EQ(code_of_open(""), "file.invalid_path");
  EXPECT_EQ(code_of_open(std::string("a\0b", 3)), "file.invalid_path");
  EXPECT_EQ(code_of_open(std::string(256, 'a')), "file.invalid_path");
  EXPECT_EQ(code_of_open(std::string(255, 'a')), "file.not_found");
  std::string longest;
  while (longest.size() < 4100)
    longest += "a/";
  EXPECT_EQ(code_of_open(longest), "file.invalid_path");
}

TEST_F(root_table_test, a_name_may_hold_any_bytes) {
  std::string name = "caf\xe9 \n\x01";
  put(workspace + "/" + name, "1");
  EXPECT_EQ(read(name), "1");
}

TEST_F(root_table_test, opening_a_pipe_socket_or_device_is_refused_and_never_blocks) {
  ASSERT_EQ(::mkfifo((workspace + "/pipe").c_str(), 0644), 0);
  EXPECT_EQ(read("pipe"), "file.not_regular");
  link("pipe", "link");
  EXPECT_EQ(read("link"), "file.not_regular");
  wire::file_write write;
  write.path.bytes = "pipe";
  auto writer = file_writer::begin(*roots, locks, write);
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code, "file.not_regular");
  EXPECT_EQ(read("."), "file.is_directory");
}

/// A directory that is inside at one moment and a link to the outside at the next (spec 46).
TEST_F(root_table_test, a_tree_that_is_changed_meanwhile_never_leads_outside) {
  directory("swap");
  directory("sub");
  put(workspace + "/swap/file", "inside");
  put(outside + "/file", "outside");
  link(outside, "evil");
  link(workspace + "/sub/../swap", "way");

  std::atomic<bool> over{false};
  std::thread attacker([&] {
    auto a = workspace + "/swap";
    auto b = workspace + "/evil";
    while (!over)
      ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
  });
  int reads = 0;
  int writes = 0;
  for (int i = 0; i < 4000; ++i) {
    for (auto path : {"swap/file", "way/file", "sub/../swap/file"}) {
      auto content = read(path);
      EXPECT_NE(content, "outside");
      reads += content == "inside" ? 1 : 0;
    }
    wire::file_write write;
    write.path.bytes = i % 2 == 0 ? "swap/new" : "way/new";
    if (i % 8 < 2) {
      auto writer = file_writer::begin(*roots, locks, write);
      if (writer && writer->append("new") && writer->commit())
        ++writes;
    }
    if (i % 8 == 2) {
      wire::file_remove remove;
      remove.path.bytes = "swap/new";
      (void)remove_path(*roots, locks, remove);
    }
    if (i % 8 == 3) {
      wire::file_edit edit;
      edit.path.bytes = "swap/file";
      edit.edits.push_back({"inside", "inside", false});
      (void)edit_file(*roots, locks, edit);
    }
    if (i % 8 == 4) {
      wire::file_mkdir make;
      make.path.bytes = "swap/made";
      (void)make_directory(*roots, make);
    }
  }
  over = true;
  attacker.join();
  EXPECT_GT(reads, 0);
  EXPECT_GT(writes, 0);
  EXPECT_EQ(names(outside), (std::vector<std::string>{"file", "secret"}));
  EXPECT_EQ(get(outside + "/file"), "outside");
}

} // namespace
} // namespace holt::tests
