#include "core/files/drain_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/files/drain_directory.h"
#include "core/files/drain_manifest.h"
#include "core/messages/messages.h"
#include "tests/support/catch.h"

namespace stdchk {
namespace {

namespace fs = std::filesystem;

/// A folder with a drain directory, and a secret beside that.
struct Scene {
  explicit Scene(DrainFolder::Walk how = DrainFolder::Walk::kByKernel)
      : walk(how), top(::mkdtemp(name.data())), drain(top / "drain") {
    fs::create_directories(drain / "a/b");
    put(drain / "a/b/file", "content");
    put(top / "secret", "precious");
    fs::create_directory(top / "outside");
    put(top / "outside/file", "precious");
  }
  ~Scene() { fs::remove_all(top); }

  static void put(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  DrainFolder open() const {
    auto root = DrainDirectory(drain.string(), walk).open();
    REQUIRE(root);
    return std::move(*root);
  }

  const DrainFolder::Walk walk;
  std::string name = "/tmp/stdchk-drain-folder-XXXXXX";
  const fs::path top;
  const fs::path drain;
};

std::string text_of(const Outcome<OpenedFile>& file) {
  REQUIRE(file);
  char text[64] = {};
  REQUIRE(::pread(file->file.get(), text, sizeof(text) - 1, 0) >= 0);
  return text;
}

template <class T>
int errno_of(const Outcome<T>& refused) {
  REQUIRE_FALSE(refused);
  CHECK_FALSE(refused.error().text.empty());
  return refused.error().error.os_errno;
}

}  // namespace

TEST_CASE("a plain file is read, and no component of its path may be a link") {
  const Scene scene(GENERATE(DrainFolder::Walk::kByKernel, DrainFolder::Walk::kByHand));
  const DrainFolder root = scene.open();
  CHECK(text_of(root.open("a/b/file", Access::kRead)) == "content");
  // Each component in turn leads to the same name outside, or to the folder itself.
  fs::create_symlink(scene.top / "secret", scene.drain / "leaf");
  fs::create_directory_symlink(scene.top / "outside", scene.drain / "out");
  fs::create_directory_symlink("a", scene.drain / "inside");
  fs::create_directory_symlink("b", scene.drain / "a/also");
  CHECK(errno_of(root.open("leaf", Access::kRead)) == ELOOP);
  for (const char* path : {"out/file", "inside/b/file", "a/also/file"}) {
    CAPTURE(path);
    const int number = errno_of(root.open(path, Access::kRead));
    CHECK((number == ELOOP || number == ENOTDIR));
    CHECK_FALSE(root.status(path));
    CHECK_FALSE(root.parent_of(path));
  }
  CHECK_FALSE(root.folder("out"));
  CHECK(root.folder("a/b"));
  CHECK(*root.link_target("leaf") == (scene.top / "secret").string());
  CHECK(S_ISLNK(root.status("leaf")->st_mode));
}

TEST_CASE("paths that lead out of the folder are none") {
  const Scene scene(GENERATE(DrainFolder::Walk::kByKernel, DrainFolder::Walk::kByHand));
  const DrainFolder root = scene.open();
  for (const std::string path :
       {"..", "../secret", "a/../../secret", "/etc/passwd", "a//b/file", "./a", "a/.", "", "a/"}) {
    CAPTURE(path);
    CHECK(errno_of(root.open(path, Access::kRead)) == EINVAL);
    CHECK(errno_of(root.status(path)) == EINVAL);
    CHECK(errno_of(root.create(path)) == EINVAL);
  }
  CHECK(errno_of(root.open(std::string("a\0b", 3), Access::kRead)) == EINVAL);
}

TEST_CASE("FIFOs, devices, sockets and folders are refused at once") {
  const Scene scene(GENERATE(DrainFolder::Walk::kByKernel, DrainFolder::Walk::kByHand));
  const DrainFolder root = scene.open();
  REQUIRE(::mkfifo((scene.drain / "fifo").c_str(), 0600) == 0);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{AF_UNIX, {}};
  (scene.drain / "socket").string().copy(address.sun_path, sizeof(address.sun_path) - 1);
  REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  for (const char* name : {"fifo", "socket"}) {
    CHECK(errno_of(root.open(name, Access::kRead)) == EINVAL);
    CHECK(errno_of(root.open(name, Access::kReadWrite)) == EINVAL);
  }
  CHECK(errno_of(root.open("a", Access::kRead)) == EISDIR);
  if (::mknod((scene.drain / "zero").c_str(), S_IFCHR | 0600, makedev(1, 5)) == 0) {
    CHECK(errno_of(root.open("zero", Access::kRead)) == EINVAL);
  }
  ::close(socket);
}

TEST_CASE("a file on which another process holds a lease is refused at once") {
  const Scene scene;
  const std::string path = scene.drain / "a/b/file";
  const pid_t holder = ::fork();
  if (holder == 0) {
    const int fd = ::open(path.c_str(), O_RDWR);
    ::signal(SIGIO, SIG_IGN);
    ::_exit(::fcntl(fd, F_SETLEASE, F_WRLCK) == 0 ? ::pause() : 3);
  }
  const auto began = std::chrono::steady_clock::now();
  bool leased = false;
  for (int i = 0; i < 200 && !leased; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::ifstream locks("/proc/locks");
    for (std::string line; std::getline(locks, line);) {
      leased |= line.find("LEASE") != std::string::npos &&
                line.find(" " + std::to_string(holder) + " ") != std::string::npos;
    }
  }
  if (leased) CHECK(errno_of(scene.open().open("a/b/file", Access::kRead)) == EAGAIN);
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(10));
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  if (!leased) WARN("this file system gives no leases");
}

TEST_CASE("a file with another owner, inode, size or name than expected is refused") {
  const Scene scene;
  const DrainFolder root = scene.open();
  const struct stat there = *root.status("a/b/file");
  ExpectedFile right{there.st_ino, 7, {there.st_uid + 1, there.st_uid}, true};
  CHECK(root.open("a/b/file", Access::kRead, right));
  const auto refused = [&](auto change) {
    ExpectedFile wrong = right;
    change(wrong);
    return errno_of(root.open("a/b/file", Access::kRead, wrong));
  };
  CHECK(refused([&](auto& wrong) { wrong.owners = {there.st_uid + 1}; }) == EPERM);
  CHECK(refused([&](auto& wrong) { wrong.inode = there.st_ino + 1; }) == ESTALE);
  CHECK(refused([&](auto& wrong) { wrong.size_bytes = 8; }) == ESTALE);
  fs::create_hard_link(scene.drain / "a/b/file", scene.drain / "other");
  CHECK(refused([](auto&) {}) == EMLINK);
}

TEST_CASE("what is created was not there, not even as a link") {
  const Scene scene(GENERATE(DrainFolder::Walk::kByKernel, DrainFolder::Walk::kByHand));
  const DrainFolder root = scene.open();
  fs::create_symlink(scene.top / "made", scene.drain / "link");
  CHECK(errno_of(root.create("link")) == EEXIST);
  CHECK_FALSE(fs::exists(scene.top / "made"));
  CHECK(errno_of(root.folder("a/b")->create("file")) == EEXIST);
  const auto made = root.create("new");
  REQUIRE(made);
  CHECK((made->status.st_mode & 07777) == 0600);
}

TEST_CASE("a name that changes between a file and a link never leads to the link's target") {
  const Scene scene(GENERATE(DrainFolder::Walk::kByKernel, DrainFolder::Walk::kByHand));
  const DrainFolder root = scene.open();
  // The folder "a" takes turns with a link to a folder where the same names hold the secret.
  fs::create_directories(scene.top / "twin/b");
  Scene::put(scene.top / "twin/b/file", "precious");
  fs::create_directory_symlink(scene.top / "twin", scene.drain / "bait");
  std::atomic<bool> over{false};
  std::thread attacker([&] {
    const std::string a = scene.drain / "a", bait = scene.drain / "bait";
    while (!over) {
      (void)::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, bait.c_str(), RENAME_EXCHANGE);
    }
  });
  std::size_t opened = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto file = root.open("a/b/file", Access::kRead);
    if (!file) continue;
    ++opened;
    if (text_of(file) != "content") FAIL("the link was followed");
  }
  over = true;
  attacker.join();
  CHECK(opened > 0);
}

TEST_CASE("a policy link that changes between two owners never gives the other user's text") {
  if (::geteuid() != 0) {
    WARN("only root makes links of another user");
    return;
  }
  const Scene scene(GENERATE(DrainFolder::Walk::kByKernel, DrainFolder::Walk::kByHand));
  const DrainFolder root = scene.open();
  const std::string link = scene.drain / kPolicyLinkName, bait = scene.drain / "bait";
  fs::create_symlink("keep=9", bait);
  fs::create_symlink("keep=1", link);
  REQUIRE(::lchown(link.c_str(), 12345, 12345) == 0);
  CHECK(errno_of(read_policy_text(root)) == EPERM);
  std::atomic<bool> over{false};
  std::thread attacker([&] {
    while (!over) {
      (void)::renameat2(AT_FDCWD, link.c_str(), AT_FDCWD, bait.c_str(), RENAME_EXCHANGE);
    }
  });
  std::size_t read = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto text = read_policy_text(root);
    if (!text) continue;
    ++read;
    if (*text != "keep=9") FAIL("the other user's link was read");
  }
  over = true;
  attacker.join();
  CHECK(read > 0);
}

TEST_CASE("links to the drain directory are followed, and those of others lead where they led") {
  if (::geteuid() != 0) {
    WARN("only root makes links of another user");
    return;
  }
  const Scene scene;
  const std::string link = scene.top / "link";
  fs::create_directory_symlink("drain", link);
  const DrainDirectory own(link);
  REQUIRE(own.open());
  // Root's link may change: an administrator moves a file system.
  fs::create_directories(scene.top / "outside/a/b");
  fs::remove(link);
  fs::create_directory_symlink(scene.top / "outside", link);
  CHECK(own.open()->status("a/b"));
  // Another user's may not.
  REQUIRE(::lchown(link.c_str(), 12345, 12345) == 0);
  CHECK(errno_of(own.open()) == ELOOP);
  const DrainDirectory given(link);
  REQUIRE(given.open());
  REQUIRE(given.open());
  fs::remove(link);
  fs::create_directory_symlink("drain", link);
  REQUIRE(::lchown(link.c_str(), 12345, 12345) == 0);
  CHECK(errno_of(given.open()) == ELOOP);
}

TEST_CASE("a drain directory that is gone and comes back is used again") {
  const Scene scene;
  const DrainDirectory directory(scene.drain.string());
  REQUIRE(directory.open());
  fs::rename(scene.drain, scene.top / "away");
  CHECK(errno_of(directory.open()) == ENOENT);
  fs::rename(scene.top / "away", scene.drain);
  CHECK(text_of(directory.open()->open("a/b/file", Access::kRead)) == "content");
}

TEST_CASE("a file of another user is not the drained one, unless nobody can give files away") {
  if (::geteuid() != 0) {
    WARN("only root gives files away");
    return;
  }
  const Scene scene;
  const DrainDirectory directory(scene.drain.string());
  const DrainFolder root = scene.open();
  fs::create_directory(scene.drain / msg::kTemporaryFolder);
  struct stat there = *root.status("a/b/file");
  REQUIRE(there.st_uid == 0);
  REQUIRE(directory.file_maker(root));
  CHECK(directory.file_maker(root)->gives_files);
  CHECK(directory.may_belong(root, there, 0));
  CHECK(directory.may_belong(root, there, msg::kUnknownUid));
  CHECK_FALSE(directory.may_belong(root, there, 12345));
  there.st_uid = 12345;
  CHECK(directory.may_belong(root, there, 12345));
  CHECK_FALSE(directory.may_belong(root, there, 54321));
}

TEST_CASE("a folder tells its names, and its file without a name leaves none") {
  const Scene scene;
  const DrainFolder root = scene.open();
  CHECK(root.create_unnamed());
  Scene::put(scene.drain / "z", "");
  CHECK(*root.names() == std::vector<std::string>{"a", "z"});
  CHECK(*root.names() == std::vector<std::string>{"a", "z"});
}

}  // namespace stdchk
