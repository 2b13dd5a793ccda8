#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "benefactor/file_drainer.h"
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
    return drainer.mirror(change);
  }
  /// Every change may come twice: the answer to the first may have been lost.
  bool twice(msg::MirrorKind kind, const std::string& path, const std::string& other = {}) {
    return change(kind, path, other).has_value() && change(kind, path, other).has_value();
  }

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
  CHECK(f.change(Kind::kExchange, "nowhere", "else"));
  CHECK(f.change(Kind::kDropTemporary, ""));
  CHECK_FALSE(path_exists(f.folder / "else"));
}

TEST_CASE("an exchange swaps two files, and moves one whose other side was not drained yet") {
  Fixture f;
  write_file(f.folder / "a", "A");
  write_file(f.folder / "b", "B");
  REQUIRE(f.change(Kind::kExchange, "a", "b"));
  CHECK(read_file(f.folder / "a") == "B");
  CHECK(read_file(f.folder / "b") == "A");
  CHECK(f.twice(Kind::kExchange, "a", "c"));
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

}  // namespace stdchk::benefactor
