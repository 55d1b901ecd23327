#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include "protocols/base64.hpp"
#include "protocols/json.hpp"
#include "tests/runtime/cli/cli_process.hpp"
#include "tests/runtime/cli/scripted_server.hpp"

using namespace holt::test;
namespace fs = std::filesystem;
namespace json = holt::protocols::json;

namespace {

std::string sha256(const std::string& bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr);
  return holt::protocols::hex_encode({reinterpret_cast<char*>(digest), size});
}

/// The files of one environment, in memory.
struct remote_files {
  struct node {
    std::string type = "file";
    std::string bytes;
    std::string mode = "0644";
  };
  std::map<std::string, node> nodes{{"/workspace", {"directory", "", "0755"}}};
  std::mutex mutex;
  bool lie_about_hash = false;
  std::string extra_name; // a name that the sandbox made up, in every list

  void operator()(const seen_request& request, reply_channel& reply) {
    std::lock_guard lock(mutex);
    const std::string base = "/v1/environments/env_1/";
    auto call = request.target.substr(std::min(base.size(), request.target.size()));
    if (call.starts_with("files/")) {
      auto query = call.find('?');
      auto path = call.substr(5, query == std::string::npos ? query : query - 5);
      if (request.method == "PUT") {
        bool executable = query != std::string::npos && call.find("mode=0755", query) != std::string::npos;
        nodes[path] = {"file", request.body, executable ? "0755" : "0644"};
        auto hash = lie_about_hash ? std::string(64, '0') : sha256(request.body);
        return reply.answer(201, R"({"size":)" + std::to_string(request.body.size()) + R"(,"sha256":")" + hash
                                     + R"(","created":true})");
      }
      if (!nodes.contains(path))
        return reply.problem(404, "file.not_found", "There is no such file.");
      auto hash = lie_about_hash ? std::string(64, '0') : sha256(nodes[path].bytes);
      return reply.answer(200, nodes[path].bytes, "application/octet-stream", "ETag: \"" + hash + "\"\r\n");
    }
    auto body = json::parse_text(request.body);
    auto path = body ? std::string(body->at("path").as_string()) : "";
    if (call == "fs/mkdir") {
      nodes[path] = {"directory", "", "0755"};
      return reply.answer(200, "{}");
    }
    if (call == "fs/stat") {
      if (!nodes.contains(path))
        return reply.problem(404, "file.not_found", "There is no such file.");
      const auto& node = nodes[path];
      return reply.answer(200, json::write_text(json::object{{"path", path},
                                                             {"name", path.substr(path.rfind('/') + 1)},
                                                             {"type", node.type},
                                                             {"size", node.bytes.size()},
                                                             {"mode", node.mode}}));
    }
    json::array items;
    for (const auto& [name, node] : nodes)
      if (name.starts_with(path + '/') && name.find('/', path.size() + 1) == std::string::npos)
        items.push_back(json::object{{"name", name.substr(path.size() + 1)},
                                     {"type", node.type},
                                     {"size", node.bytes.size()},
                                     {"mode", node.mode}});
    if (!extra_name.empty())
      items.push_back(json::object{{"name", extra_name}, {"type", "file"}, {"size", 1}, {"mode", "0644"}});
    reply.answer(200, json::write_text(json::object{{"items", items}, {"truncated", false}}));
  }
};

class cli_copy : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "holt-copy-XXXXXX";
    folder = ::mkdtemp(pattern.data());
  }
  void TearDown() override {
    fs::remove_all(folder);
  }
  int run(std::vector<std::string> args) {
    cli_process holt(std::move(args), {{"HOLT_URL", server.url()}, {"HOLT_KEY", "k"}});
    int code = holt.wait();
    out = holt.out();
    err = holt.err();
    return code;
  }
  void put(const std::string& name, const std::string& bytes) {
    fs::create_directories(fs::path(folder + '/' + name).parent_path());
    std::ofstream(folder + '/' + name, std::ios::binary) << bytes;
  }
  std::string get(const std::string& name) {
    std::ostringstream text;
    text << std::ifstream(folder + '/' + name, std::ios::binary).rdbuf();
    return text.str();
  }

  std::string folder;
  std::string out;
  std::string err;
  remote_files remote;
  scripted_server server{[this](const seen_request& request, reply_channel& reply) { remote(request, reply); }};
};

} // namespace

TEST_F(cli_copy, a_file_goes_there_and_comes_back_the_same) {
  std::string bytes(3 * 1024 * 1024 + 17, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  put("big", bytes);
  ASSERT_EQ(run({"cp", folder + "/big", "env_1:/workspace/copy"}), 0) << err;
  EXPECT_EQ(remote.nodes.at("/workspace/copy").bytes, bytes);
  ASSERT_EQ(run({"cp", "env_1:/workspace/copy", folder + "/back"}), 0) << err;
  EXPECT_EQ(get("back"), bytes);
  EXPECT_EQ(err, "") << "no progress where stderr is no terminal";
}

TEST_F(cli_copy, a_tree_goes_both_ways_with_executable_bits_and_empty_directories) {
  put("tree/a.txt", "a");
  put("tree/deep/er/tool", "#!/bin/sh\n");
  put("tree/zero", "");
  fs::create_directories(folder + "/tree/empty");
  ::chmod((folder + "/tree/deep/er/tool").c_str(), 0755);
  ASSERT_EQ(run({"cp", "--json", folder + "/tree", "env_1:/workspace"}), 0) << err;
  EXPECT_EQ(out, R"({"files":3,"directories":4,"bytes":11,"left_out":0})"
                 "\n");
  EXPECT_EQ(remote.nodes.at("/workspace/tree/deep/er/tool").mode, "0755");
  EXPECT_EQ(remote.nodes.at("/workspace/tree/a.txt").mode, "0644");
  EXPECT_EQ(remote.nodes.at("/workspace/tree/empty").type, "directory");
  ASSERT_EQ(run({"cp", "env_1:/workspace/tree", folder + "/out"}), 0) << err;
  EXPECT_EQ(get("out/a.txt"), "a");
  EXPECT_TRUE(fs::is_directory(folder + "/out/empty"));
  EXPECT_EQ(fs::status(folder + "/out/deep/er/tool").permissions() & fs::perms::owner_exec, fs::perms::owner_exec);
  EXPECT_EQ(fs::status(folder + "/out/a.txt").permissions() & fs::perms::owner_exec, fs::perms::none);
}

TEST_F(cli_copy, links_are_named_and_left_out_with_an_exit_code) {
  put("tree/a", "a");
  fs::create_symlink("/etc/passwd", folder + "/tree/link");
  EXPECT_EQ(run({"cp", folder + "/tree", "env_1:/workspace/tree"}), 77);
  EXPECT_TRUE(remote.nodes.contains("/workspace/tree/a"));
  EXPECT_FALSE(remote.nodes.contains("/workspace/tree/link"));
  EXPECT_NE(err.find("tree/link (a symbolic link)"), std::string::npos) << err;
}

TEST_F(cli_copy, a_hostile_name_can_not_leave_the_destination) {
  remote.nodes["/workspace/tree"] = {"directory", "", "0755"};
  remote.nodes["/workspace/tree/ok"] = {"file", "fine", "0644"};
  fs::create_directories(folder + "/here");
  for (auto name : {"../escaped", "..", "/etc/escaped"}) {
    remote.extra_name = name;
    EXPECT_EQ(run({"cp", "env_1:/workspace/tree", folder + "/here/tree"}), 77) << name;
    EXPECT_EQ(get("here/tree/ok"), "fine");
    EXPECT_FALSE(fs::exists(folder + "/here/escaped"));
  }
}

TEST_F(cli_copy, a_link_in_the_way_is_not_followed) {
  remote.nodes["/workspace/tree"] = {"directory", "", "0755"};
  remote.nodes["/workspace/tree/f"] = {"file", "new", "0644"};
  put("outside", "old");
  fs::create_directories(folder + "/dst");
  fs::create_symlink(folder + "/outside", folder + "/dst/f");
  EXPECT_EQ(run({"cp", "env_1:/workspace/tree/.", folder + "/dst"}), 77);
  EXPECT_EQ(get("outside"), "old");
}

TEST_F(cli_copy, what_arrives_otherwise_than_it_was_sent_is_no_success_and_no_file) {
  put("a", "bytes");
  remote.lie_about_hash = true;
  EXPECT_EQ(run({"cp", folder + "/a", "env_1:/workspace/a"}), 69);
  EXPECT_NE(err.find("another hash"), std::string::npos) << err;
  EXPECT_EQ(run({"cp", "env_1:/workspace/a", folder + "/b"}), 69);
  EXPECT_FALSE(fs::exists(folder + "/b"));
  std::size_t files = 0;
  for ([[maybe_unused]] auto& entry : fs::directory_iterator(folder))
    ++files;
  EXPECT_EQ(files, 1u) << "nothing half-written stays";
}

TEST_F(cli_copy, a_missing_source_is_said_before_anything_is_touched) {
  EXPECT_EQ(run({"cp", folder + "/nothing", "env_1:/workspace/a"}), 64);
  EXPECT_EQ(run({"cp", "env_1:/workspace/nothing", folder + "/a"}), 64);
  EXPECT_EQ(server.count("PUT", ""), 0u);
}

TEST_F(cli_copy, a_device_file_here_is_never_replaced) {
  remote.nodes["/workspace/f"] = {"file", "x", "0644"};
  EXPECT_EQ(run({"cp", "env_1:/workspace/f", "/dev/null"}), 77);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}
