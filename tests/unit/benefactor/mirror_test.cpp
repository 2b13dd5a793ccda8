#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "benefactor/drain/drain_attributes.h"
#include "benefactor/drain/file_drainer.h"
#include "core/files/drain_manifest.h"
#include "tests/support/catch.h"
#include "tests/unit/benefactor/support.h"

namespace stdchk::benefactor {
namespace {

struct Fixture {
  Fixture() : drainer({}, folder.path(), 0, clock, stop) {}

  Outcome<msg::MirrorChange::Reply> change(msg::MirrorKind kind, const std::string& path,
                                           const std::string& other = {}) {
    msg::MirrorChange change;
    change.kind = kind;
    change.path = path;
    change.other_path = other;
    change.mode = 0751;
    change.uid = ::getuid();
    change.gid = ::getgid();
    change.mtime_ns = 5'000'000'007;
    change.file = FileId{7};
    change.number = number;
    return drainer.mirror(change, Time::max());
  }
  /// Every change may come twice: the answer to the first may have been lost.
  bool twice(msg::MirrorKind kind, const std::string& path, const std::string& other = {}) {
    return change(kind, path, other).has_value() && change(kind, path, other).has_value();
  }

  std::uint64_t number = 1;
  TemporaryFolder folder;
  ManualClock clock;
  Stop stop;
  FileDrainer drainer;
};

using Kind = msg::MirrorKind;

}  // namespace

TEST_CASE("a folder is made with its attributes and removed again") {
  Fixture f;
  CHECK(f.twice(Kind::kMakeDirectory, "a/b"));
  struct stat there {};
  REQUIRE(::stat((f.folder / "a/b").c_str(), &there) == 0);
  CHECK((there.st_mode & 07777) == 0751);
  CHECK(there.st_mtim.tv_nsec == 7);
  CHECK(f.twice(Kind::kRemoveDirectory, "a/b"));
  CHECK_FALSE(path_exists(f.folder / "a/b"));
}

TEST_CASE("a folder that holds other files is not removed") {
  Fixture f;
  REQUIRE(f.change(Kind::kMakeDirectory, "a"));
  write_file(f.folder / "a/mine", "x");
  const auto reply = f.change(Kind::kRemoveDirectory, "a");
  REQUIRE_FALSE(reply);
  CHECK(reply.error().error.os_errno == ENOTEMPTY);
}

TEST_CASE("a folder goes with the manifest that is left in it, and only then") {
  Fixture f;
  const std::string manifest = f.folder / "a/" + kManifestName;
  REQUIRE(f.change(Kind::kMakeDirectory, "a"));
  write_file(manifest, "{}");
  write_file(f.folder / "a/mine", "x");
  CHECK_FALSE(f.change(Kind::kRemoveDirectory, "a"));
  CHECK(path_exists(manifest));
  ::unlink((f.folder / "a/mine").c_str());
  CHECK(f.twice(Kind::kRemoveDirectory, "a"));
  CHECK_FALSE(path_exists(f.folder / "a"));
}

TEST_CASE("a rename moves a file over another one and a folder with what is in it") {
  Fixture f;
  write_file(f.folder / "new", "new");
  write_file(f.folder / "old", "old");
  CHECK(f.twice(Kind::kRename, "new", "old"));
  CHECK(read_file(f.folder / "old") == "new");
  CHECK_FALSE(path_exists(f.folder / "new"));
  REQUIRE(f.change(Kind::kMakeDirectory, "d"));
  write_file(f.folder / "d/file", "1");
  CHECK(f.twice(Kind::kRename, "d", "e/d"));
  CHECK(read_file(f.folder / "e/d/file") == "1");
}

TEST_CASE("changes of files that were not drained yet do nothing") {
  Fixture f;
  CHECK(f.change(Kind::kRename, "no/where", "else"));
  CHECK(f.change(Kind::kUnlink, "no/where"));
  CHECK(f.change(Kind::kAttributes, "nowhere"));
  CHECK(f.change(Kind::kDropTemporary, ""));
  CHECK_FALSE(path_exists(f.folder / "else"));
}

TEST_CASE("another user's file is not kept under the number of a change") {
  if (::geteuid() != 0) return;  // only root makes files of other users
  Fixture f;
  write_file(f.folder / "a", "A");
  REQUIRE(::chown((f.folder / "a").c_str(), 1234, 1234) == 0);
  CHECK(f.change(Kind::kRename, "a", ""));
  CHECK(read_file(f.folder / "a") == "A");
}

TEST_CASE("an exchange is three renames, each of which may be repeated") {
  Fixture f;
  write_file(f.folder / "a", "A");
  write_file(f.folder / "b", "B");
  CHECK(f.twice(Kind::kRename, "a", ""));
  CHECK(f.twice(Kind::kRename, "b", "a"));
  CHECK(f.twice(Kind::kRename, "", "b"));
  CHECK(read_file(f.folder / "a") == "B");
  CHECK(read_file(f.folder / "b") == "A");
}

TEST_CASE("what was set aside is there when its name goes to another file") {
  Fixture f;
  write_file(f.folder / "a", "A");
  CHECK(f.twice(Kind::kSetAside, "a"));
  write_file(f.folder / "b", "B");
  CHECK(f.change(Kind::kRename, "b", "a"));
  // A late repeat changes nothing.
  CHECK(f.change(Kind::kSetAside, "a"));
  CHECK(read_file(f.folder / ".stdchk-drain/7.1") == "A");
  CHECK(f.twice(Kind::kDropTemporary, ""));
  CHECK_FALSE(path_exists(f.folder / ".stdchk-drain/7.1"));
  CHECK(f.change(Kind::kSetAside, "nowhere"));
}

TEST_CASE("a new manager drops the temporary files of earlier ones, and no others") {
  Fixture f;
  constexpr std::uint64_t kEpoch = std::uint64_t{1} << 40;
  const std::vector<std::uint64_t> old{3, 9, kEpoch + 5, 2 * kEpoch + 1};
  const std::vector<std::uint64_t> used{10, 11, 3 * kEpoch + 1};
  const auto path = [&](std::uint64_t number) {
    return f.folder / (".stdchk-drain/7." + std::to_string(number));
  };
  std::filesystem::create_directory(f.folder / ".stdchk-drain");
  for (const auto* list : {&old, &used}) {
    for (const std::uint64_t number : *list) write_file(path(number), "x");
  }
  write_file(f.folder / ".stdchk-drain/notes", "mine");
  msg::MirrorChange change;
  change.kind = Kind::kDropTemporary;
  change.number = 3 * kEpoch | 10;
  REQUIRE(f.drainer.mirror(change, Time::max()));
  for (const std::uint64_t number : old) CHECK_FALSE(path_exists(path(number)));
  for (const std::uint64_t number : used) CHECK(path_exists(path(number)));
  CHECK(path_exists(f.folder / ".stdchk-drain/notes"));
}

TEST_CASE("a file is removed and its attributes are set") {
  Fixture f;
  write_file(f.folder / "a", "A");
  CHECK(f.twice(Kind::kAttributes, "a"));
  struct stat there {};
  REQUIRE(::stat((f.folder / "a").c_str(), &there) == 0);
  CHECK((there.st_mode & 07777) == 0751);
  CHECK(there.st_mtim.tv_sec == 5);
  CHECK(f.twice(Kind::kUnlink, "a"));
  CHECK_FALSE(path_exists(f.folder / "a"));
}

TEST_CASE("a symbolic link is made and replaced with any target") {
  Fixture f;
  CHECK(f.twice(Kind::kSymlink, "d/link", "../../anywhere"));
  CHECK(std::filesystem::read_symlink(f.folder / "d/link") == "../../anywhere");
  CHECK(f.twice(Kind::kSymlink, "d/link", "other"));
  CHECK(std::filesystem::read_symlink(f.folder / "d/link") == "other");
  CHECK_FALSE(f.change(Kind::kSymlink, "d/link2", ""));
}

TEST_CASE("an unknown kind of change is refused") {
  Fixture f;
  const auto reply = f.change(static_cast<Kind>(99), "a");
  REQUIRE_FALSE(reply);
  CHECK(reply.error().error.code == Code::kInvalidArgument);
}

TEST_CASE("nobody may do more with a drained file than with the pool's") {
  // Checks all combinations: whether owner and group of the drained file are those of the pool's
  // file.
  for (std::uint32_t mode = 0; mode < 010000; ++mode) {
    CHECK(mode_without_widening(mode, true, true) == mode);
    for (const bool uid_is_right : {false, true}) {
      for (const bool gid_is_right : {false, true}) {
        if (uid_is_right && gid_is_right) continue;
        const std::uint32_t now = mode_without_widening(mode, uid_is_right, gid_is_right);
        const std::uint32_t user = mode >> 6 & 7, group = mode >> 3 & 7, other = mode & 7;
        const std::uint32_t group_now = now >> 3 & 7, other_now = now & 7;
        bool good = (now & ~mode & (S_ISVTX | S_ISUID | S_ISGID)) == 0 && (now >> 6 & 7) == user;
        good = good && (uid_is_right || (now & S_ISUID) == 0);
        good = good && (gid_is_right || (now & S_ISGID) == 0);
        // The pool's owner may belong to the drained file's group or to its others.
        if (!uid_is_right) good = good && (group_now & ~user) == 0 && (other_now & ~user) == 0;
        if (!gid_is_right) {
          good = good && (group_now & ~(group & other)) == 0 && (other_now & ~(group & other)) == 0;
        }
        good = good && (group_now & ~group) == 0 && (other_now & ~other) == 0;
        if (!good) FAIL("mode " << std::oct << mode << " became " << now);
      }
    }
  }
}

TEST_CASE("who cannot give a file to its owner gives it no privilege") {
  if (::geteuid() != 0) {
    WARN("only root becomes another user");
    return;
  }
  Fixture f;
  REQUIRE(::chmod(f.folder.path().c_str(), 0777) == 0);
  constexpr uid_t kDrains = 23101;
  REQUIRE(::setegid(kDrains) == 0);
  REQUIRE(::seteuid(kDrains) == 0);
  msg::DrainPieces pieces;
  pieces.file = FileId{7};
  pieces.number = 3;
  const bool written = f.drainer.write_pieces(pieces, Time::max()).has_value();
  msg::DrainFinish finish;
  finish.file = FileId{7};
  finish.number = 3;
  finish.path = "program";
  finish.mode = 06755;
  finish.uid = 23102;
  finish.gid = 23102;
  const bool finished = f.drainer.finish(finish, Time::max()).has_value();
  REQUIRE(::seteuid(0) == 0);
  REQUIRE(::setegid(0) == 0);
  REQUIRE(written);
  REQUIRE(finished);
  struct stat there {};
  REQUIRE(::stat((f.folder / "program").c_str(), &there) == 0);
  CHECK(there.st_uid == kDrains);
  CHECK((there.st_mode & 07777) == 0755);
  // As root, the drainer gives the file to its owner and keeps its mode.
  finish.number = pieces.number = 4;
  finish.path = "own";
  REQUIRE(::chown((f.folder / ".stdchk-drain").c_str(), 0, 0) == 0);
  REQUIRE(f.drainer.write_pieces(pieces, Time::max()));
  REQUIRE(f.drainer.finish(finish, Time::max()));
  REQUIRE(::stat((f.folder / "own").c_str(), &there) == 0);
  CHECK(there.st_uid == 23102);
  CHECK((there.st_mode & 07777) == 06755);
}

TEST_CASE("a folder of temporary files that others may write to is not used") {
  if (::geteuid() != 0) {
    WARN("only root makes files of another user");
    return;
  }
  Fixture f;
  msg::DrainPieces pieces;
  pieces.file = FileId{7};
  pieces.number = 3;
  const std::string folder = f.folder / ".stdchk-drain";
  REQUIRE(::mkdir(folder.c_str(), 0711) == 0);
  REQUIRE(::chown(folder.c_str(), 23102, 23102) == 0);
  CHECK(f.drainer.write_pieces(pieces, Time::max()).error().error.os_errno == EPERM);
  REQUIRE(::chown(folder.c_str(), 0, 0) == 0);
  REQUIRE(::chmod(folder.c_str(), 0777) == 0);
  CHECK(f.drainer.write_pieces(pieces, Time::max()).error().error.os_errno == EPERM);
  // In a sticky folder others may put files first; these are not taken for temporary files.
  REQUIRE(::chmod(folder.c_str(), 01777) == 0);
  write_file(folder + "/7.3", "mine");
  REQUIRE(::chown((folder + "/7.3").c_str(), 23102, 23102) == 0);
  CHECK(f.drainer.write_pieces(pieces, Time::max()).error().error.os_errno == EPERM);
  REQUIRE(::unlink((folder + "/7.3").c_str()) == 0);
  REQUIRE(::mkfifo((folder + "/7.3").c_str(), 0600) == 0);
  CHECK_FALSE(f.drainer.write_pieces(pieces, Time::max()));
  REQUIRE(::unlink((folder + "/7.3").c_str()) == 0);
  write_file(f.folder / "victim", "precious");
  REQUIRE(::link((f.folder / "victim").c_str(), (folder + "/7.3").c_str()) == 0);
  CHECK(f.drainer.write_pieces(pieces, Time::max()).error().error.os_errno == EMLINK);
  CHECK(read_file(f.folder / "victim") == "precious");
  REQUIRE(::unlink((folder + "/7.3").c_str()) == 0);
  CHECK(f.drainer.write_pieces(pieces, Time::max()));
}

TEST_CASE("attributes go to the file of the owner before or after the change, and to no other") {
  if (::geteuid() != 0) {
    WARN("only root makes files of another user");
    return;
  }
  Fixture f;
  REQUIRE(::mkdir((f.folder / ".stdchk-drain").c_str(), 0711) == 0);
  write_file(f.folder / "file", "of root");
  REQUIRE(::chmod((f.folder / "file").c_str(), 0600) == 0);
  const auto change = [&](std::uint32_t before, std::uint32_t after) {
    msg::MirrorChange one;
    one.kind = Kind::kAttributes;
    one.path = "file";
    one.mode = 0644;
    one.uid = after;
    one.uid_before = before;
    REQUIRE(f.drainer.mirror(one, Time::max()));
    struct stat there {};
    REQUIRE(::stat((f.folder / "file").c_str(), &there) == 0);
    return std::pair(there.st_uid, there.st_mode & 07777U);
  };
  CHECK(change(23102, 23102) == std::pair(0U, 0600U));
  CHECK(change(23102, 23103) == std::pair(0U, 0600U));
  CHECK(change(0, 23102) == std::pair(23102U, 0644U));
  CHECK(change(23102, 23103) == std::pair(23103U, 0644U));
  CHECK(change(msg::kUnknownUid, 23104) == std::pair(23104U, 0644U));
}

TEST_CASE("links, FIFOs and sockets have their times, and what a link leads to keeps its own") {
  Fixture f;
  write_file(f.folder / "victim", "precious");
  struct stat victim {};
  REQUIRE(::stat((f.folder / "victim").c_str(), &victim) == 0);
  msg::MirrorChange one;
  one.path = "link";
  one.other_path = "victim";
  one.uid = ::getuid();
  one.gid = ::getgid();
  one.file = FileId{7};
  one.mtime_ns = 5'000'000'007;
  const auto mtime_ns = [&](const std::string& name) {
    struct stat there {};
    REQUIRE(::lstat((f.folder / name).c_str(), &there) == 0);
    return there.st_mtim.tv_sec * 1'000'000'000 + there.st_mtim.tv_nsec;
  };
  const auto carry_out = [&](Kind kind, const std::string& path, std::uint32_t mode) {
    one.kind = kind;
    one.path = path;
    one.mode = mode;
    ++one.number;
    REQUIRE(f.drainer.mirror(one, Time::max()));
  };
  carry_out(Kind::kSymlink, "link", 0777);
  carry_out(Kind::kSpecial, "fifo", S_IFIFO | 0640);
  carry_out(Kind::kSpecial, "socket", S_IFSOCK | 0640);
  for (const std::string name : {"link", "fifo", "socket"}) CHECK(mtime_ns(name) == 5'000'000'007);
  one.mtime_ns = -1;
  for (const std::string name : {"link", "fifo", "socket"}) {
    carry_out(Kind::kAttributes, name, 0640);
    CHECK(mtime_ns(name) == -1);
  }
  struct stat now {};
  REQUIRE(::stat((f.folder / "victim").c_str(), &now) == 0);
  CHECK(now.st_mode == victim.st_mode);
  CHECK(now.st_mtim.tv_nsec == victim.st_mtim.tv_nsec);
  REQUIRE(::lstat((f.folder / "fifo").c_str(), &now) == 0);
  CHECK(now.st_mode == (S_IFIFO | 0640));
}

TEST_CASE("a link gets its owner, and a link that somebody else has planted keeps his") {
  if (::geteuid() != 0) {
    WARN("only root makes files of another user");
    return;
  }
  Fixture f;
  write_file(f.folder / "victim", "precious");
  msg::MirrorChange one;
  one.kind = Kind::kSymlink;
  one.path = "link";
  one.other_path = "victim";
  one.uid = one.gid = 23102;
  one.file = FileId{7};
  one.number = 1;
  one.mtime_ns = 5;
  REQUIRE(f.drainer.mirror(one, Time::max()));
  const auto owner_of = [&](const std::string& name) {
    struct stat there {};
    REQUIRE(::lstat((f.folder / name).c_str(), &there) == 0);
    return there.st_uid;
  };
  CHECK(owner_of("link") == 23102);
  one.kind = Kind::kAttributes;
  one.uid_before = std::exchange(one.uid, 23103);
  REQUIRE(f.drainer.mirror(one, Time::max()));
  CHECK(owner_of("link") == 23103);
  REQUIRE(::unlink((f.folder / "link").c_str()) == 0);
  std::filesystem::create_symlink("victim", f.folder / "link");
  REQUIRE(::lchown((f.folder / "link").c_str(), 23104, 23104) == 0);
  REQUIRE(f.drainer.mirror(one, Time::max()));
  CHECK(owner_of("link") == 23104);
  CHECK(owner_of("victim") == 0);
}

}  // namespace stdchk::benefactor
