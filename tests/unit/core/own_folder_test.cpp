#include "core/files/own_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/base/host_port.h"
#include "core/files/mount_lock.h"
#include "core/files/mount_table.h"
#include "core/files/pool_files.h"
#include "tests/support/catch.h"

using namespace stdchk;
namespace fs = std::filesystem;

namespace {

constexpr FolderRules kPrivate{.what = "the test folder", .is_private = true, .safe_above = true};

/// A folder below /tmp, removed at the end.
class Scene {
 public:
  Scene() {
    char pattern[] = "/tmp/stdchk-own-XXXXXX";
    path_ = ::mkdtemp(pattern);
  }
  ~Scene() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string at(const std::string& name) const { return path_ + "/" + name; }
  std::string folder(const std::string& name, mode_t mode) const {
    fs::create_directory(at(name));
    ::chmod(at(name).c_str(), mode);
    return at(name);
  }

 private:
  std::string path_;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool is_refused(const std::string& path, const FolderRules& rules, const std::string& because) {
  const auto folder = OwnFolder::open(path, rules);
  if (folder) return false;
  INFO(folder.error().text);
  CHECK(folder.error().text.find(path) != std::string::npos);
  CHECK(folder.error().text.find(because) != std::string::npos);
  return true;
}

void give_away(const std::string& path) { REQUIRE(::lchown(path.c_str(), 4242, 4242) == 0); }

}  // namespace

TEST_CASE("an own folder is made with what is above it, and only its owner may enter it") {
  const Scene scene;
  const auto folder = OwnFolder::make(scene.at("a/b/c"), kPrivate);
  REQUIRE(folder);
  CHECK((fs::status(scene.at("a/b/c")).permissions() & fs::perms::all) == fs::perms::owner_all);
  CHECK(OwnFolder::make(scene.at("a/b/c"), kPrivate));
}

TEST_CASE("a folder that others may read or write is no private folder") {
  const Scene scene;
  CHECK(is_refused(scene.folder("read", 0755), kPrivate, "mode 0755"));
  CHECK(is_refused(scene.folder("write", 0777), kMountRules, "mode 0777"));
  CHECK(OwnFolder::open(scene.folder("shown", 0755), kMountRules));
}

TEST_CASE("a folder that somebody else could replace is refused with the part of the path") {
  const Scene scene;
  const std::string shared = scene.folder("shared", 0777);
  fs::create_directory(shared + "/own");
  ::chmod((shared + "/own").c_str(), 0700);
  CHECK(is_refused(shared + "/own", kPrivate, shared));
  ::chmod(shared.c_str(), 01777);  // as /tmp is
  CHECK(OwnFolder::open(shared + "/own", kPrivate));
  FolderRules lax = kPrivate;
  lax.safe_above = false;
  ::chmod(shared.c_str(), 0777);
  CHECK(OwnFolder::open(shared + "/own", lax));
}

TEST_CASE(
    "a link in the place of the folder is refused, and one of this user above it is followed") {
  const Scene scene;
  scene.folder("real", 0700);
  fs::create_directory(scene.at("real/inner"));
  ::chmod(scene.at("real/inner").c_str(), 0700);
  fs::create_symlink(scene.at("real"), scene.at("link"));
  CHECK(is_refused(scene.at("link"), kPrivate, "it is a link"));
  CHECK(OwnFolder::open(scene.at("link/inner"), kPrivate));
  fs::create_symlink("../" + fs::path(scene.at("")).parent_path().filename().string() + "/real",
                     scene.at("relative"));
  CHECK(OwnFolder::open(scene.at("relative/inner"), kPrivate));
  fs::create_symlink("round", scene.at("round"));
  CHECK(is_refused(scene.at("round/inner"), kPrivate, "too many links"));
}

TEST_CASE("another user's folder, and one below it, and one behind its link are refused") {
  if (::geteuid() != 0) return;  // only root can make them
  const Scene scene;
  give_away(scene.folder("theirs", 0700));
  CHECK(is_refused(scene.at("theirs"), kPrivate, "belongs to uid 4242"));
  fs::create_directory(scene.at("theirs/own"));
  ::chmod(scene.at("theirs/own").c_str(), 0700);
  CHECK(is_refused(scene.at("theirs/own"), kPrivate, scene.at("theirs") + " belongs to uid 4242"));
  scene.folder("real", 0700);
  fs::create_directory(scene.at("real/inner"));
  ::chmod(scene.at("real/inner").c_str(), 0700);
  fs::create_symlink(scene.at("real"), scene.at("link"));
  give_away(scene.at("link"));
  CHECK(is_refused(scene.at("link/inner"), kPrivate, "is a link of uid 4242"));
}

TEST_CASE("files are made anew, and a name that is planted there is not followed") {
  const Scene scene;
  const auto folder = OwnFolder::make(scene.at("own"), kPrivate);
  REQUIRE(folder);
  std::ofstream(scene.at("victim")) << "before";
  fs::create_symlink(scene.at("victim"), scene.at("own/planted"));
  const Status made = folder->write_new("planted", "after");
  REQUIRE(!made);
  CHECK(made.error().code == Code::kExists);
  CHECK(!folder->read("planted", 100));
  REQUIRE(folder->write_at_once("planted", "after"));
  CHECK(text_of(scene.at("victim")) == "before");
  CHECK(folder->read("planted", 100) == std::string("after"));
  REQUIRE(folder->write_new("new", "text"));
  struct stat facts {};
  REQUIRE(::stat(scene.at("own/new").c_str(), &facts) == 0);
  CHECK((facts.st_mode & 07777) == 0600);
  CHECK(folder->names().size() == 2);  // no temporary one is left
}

TEST_CASE("a FIFO, a folder and a long file are errors at once") {
  const Scene scene;
  const auto folder = OwnFolder::make(scene.at("own"), kPrivate);
  REQUIRE(folder);
  REQUIRE(::mkfifo(scene.at("own/fifo").c_str(), 0600) == 0);
  CHECK(!folder->read("fifo", 100));
  fs::create_directory(scene.at("own/folder"));
  CHECK(!folder->read("folder", 100));
  REQUIRE(folder->write_new("long", "12345"));
  const auto longer = folder->read("long", 4);
  REQUIRE(!longer);
  CHECK(longer.error().code == Code::kTooLarge);
  const auto absent = folder->read("absent", 4);
  REQUIRE(!absent);
  CHECK(absent.error().code == Code::kNotFound);
  for (const char* name : {"", ".", "..", "a/b", "../x"}) {
    CHECK(!folder->write_new(name, "x"));
    CHECK(!folder->read(name, 4));
  }
}

TEST_CASE("what is open stays the same folder when its name leads elsewhere") {
  const Scene scene;
  const auto folder = OwnFolder::make(scene.at("own"), kPrivate);
  REQUIRE(folder);
  fs::rename(scene.at("own"), scene.at("aside"));
  scene.folder("own", 0700);
  REQUIRE(folder->write_new("file", "x"));
  CHECK(fs::exists(scene.at("aside/file")));
  CHECK(fs::is_empty(scene.at("own")));
}

TEST_CASE("a ready file is not written through a link that is planted under its temporary name") {
  const Scene place;
  const std::string victim = place.at("victim"), ready = place.at("ready");
  std::ofstream(victim) << "before";
  const std::string temporary = ready + "." + std::to_string(::getpid());
  REQUIRE(::symlink(victim.c_str(), temporary.c_str()) == 0);
  REQUIRE(write_file_at_once(ready, "text"));
  CHECK(text_of(victim) == "before");
  CHECK(text_of(ready) == "text");
  CHECK_FALSE(fs::exists(fs::symlink_status(temporary)));
}

TEST_CASE("a report is added to this user's own file only") {
  const Scene scene;
  REQUIRE(append_to_own_file(scene.at("report"), "one\n"));
  REQUIRE(append_to_own_file(scene.at("report"), "two\n"));
  CHECK(text_of(scene.at("report")) == "one\ntwo\n");
  REQUIRE(::mkfifo(scene.at("fifo").c_str(), 0600) == 0);
  CHECK(!append_to_own_file(scene.at("fifo"), "x"));
  CHECK(append_to_own_file("/dev/null", "x"));
  fs::create_hard_link(scene.at("report"), scene.at("other-name"));
  CHECK(!append_to_own_file(scene.at("other-name"), "x"));
  fs::create_symlink(scene.at("target"), scene.at("link"));
  std::ofstream(scene.at("target")) << "";
  CHECK(append_to_own_file(scene.at("link"), "x"));
  if (::geteuid() != 0) return;
  give_away(scene.at("link"));
  CHECK(!append_to_own_file(scene.at("link"), "x"));
  CHECK(text_of(scene.at("target")) == "x");
}

TEST_CASE("one process at a time has a mount directory, whatever path leads to it") {
  const Scene scene;
  const std::string mount = scene.folder("mount", 0755);
  auto first = MountLock::take(mount, Duration(0));
  REQUIRE(first);
  auto second = MountLock::take(mount, Duration(0));
  REQUIRE(!second);
  CHECK(second.error().error.code == Code::kBusy);
  first = tl::unexpected(Problem{});
  CHECK(MountLock::take(mount, Duration(0)));
  std::ofstream(mount + "/file") << "x";
  const auto full = MountLock::take(mount, Duration(0));
  REQUIRE(!full);
  CHECK(full.error().error.code == Code::kRefused);
  CHECK(full.error().text.find("not empty") != std::string::npos);
  CHECK(!MountLock::take("/proc", Duration(0)));
  CHECK(!MountLock::take(scene.at("absent"), Duration(0)));
}

TEST_CASE("a mount directory is known by its own path, also through a link") {
  const Scene scene;
  const std::string mount = scene.folder("mount", 0755);
  fs::create_symlink("mount", scene.at("link"));
  fs::create_symlink(scene.at("link"), scene.at("second"));
  CHECK(real_mount_point(scene.at("second")) == mount);
  CHECK(real_mount_point(mount + "/") == mount);
  CHECK(real_mount_point(scene.at("absent")) == scene.at("absent"));
  CHECK(mount_id(mount) == mount_id(scene.at("")));
  CHECK(mount_id("/proc") != mount_id("/"));
  CHECK(mount_id(scene.at("absent")) == 0);
}

TEST_CASE("where a daemon listens may be an IPv6 address with and without brackets") {
  const auto check = [](std::string_view text, const std::string& host, std::uint16_t port) {
    INFO(std::string(text));
    const auto parsed = parse_host_port(text);
    REQUIRE(parsed.has_value());
    CHECK(parsed->host == host);
    CHECK(parsed->port == port);
  };
  check("::1", "::1", 0);
  check("::", "::", 0);
  check("[fd00::5]", "fd00::5", 0);
  check("[fd00::5]:7471", "fd00::5", 7471);
  check("fd00::5:7471", "fd00::5:7471", 0);
  check("10.0.0.1:7471", "10.0.0.1", 7471);
  check("node1", "node1", 0);
  for (const char* wrong : {"", ":7471", "node1:", "node1:x", "node1:70000", "[::1", "::1]",
                            "[::1]x", "[::1]:", "[]", "[]:1", "a[b]:1"}) {
    INFO(wrong);
    CHECK(!parse_host_port(wrong));
  }
}
