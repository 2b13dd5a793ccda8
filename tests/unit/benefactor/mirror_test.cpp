#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "benefactor/file_drainer.h"
#include "core/drain_manifest.h"
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
  // Late, again: it stays what it was.
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

}  // namespace stdchk::benefactor
