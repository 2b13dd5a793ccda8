#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include "benefactor/drain/drain_paths.h"
#include "benefactor/drain/file_drainer.h"
#include "core/base/units.h"
#include "tests/support/catch.h"
#include "tests/unit/benefactor/support.h"

namespace stdchk::benefactor {
namespace {

/// An arena in a vector, a drain directory, and a drainer between them.
struct Fixture {
  explicit Fixture(std::uint64_t rate = 0, std::string directory = {}, Duration* paused = nullptr)
      : arena(4 * limits::kMiB),
        stop(paused != nullptr ? std::function<void(Duration)>([this, paused](Duration by) {
          *paused += by;
          clock.advance(by);
        })
                               : std::function<void(Duration)>([](Duration) {})),
        drainer(arena, directory.empty() ? folder.path() : directory, rate, clock, stop) {}

  PlacedChunk put(std::uint64_t offset, std::size_t length, unsigned seed) {
    return place_chunk(arena, offset, content_of(length, seed));
  }
  static msg::DrainPiece piece(const PlacedChunk& chunk, std::uint64_t file_offset) {
    return {file_offset, chunk.length, 0, chunk.extent_offset, chunk.length, chunk.crc, chunk.name};
  }
  msg::DrainFinish finish_of(const std::string& path, std::uint64_t size) const {
    msg::DrainFinish finish;
    finish.file = FileId{7};
    finish.number = 3;
    finish.path = path;
    finish.size_bytes = size;
    finish.mode = 0640;
    finish.uid = ::getuid();
    finish.gid = ::getgid();
    finish.mtime_ns = 1'700'000'000'123'456'789;
    return finish;
  }
  Outcome<msg::DrainPieces::Reply> write(std::vector<msg::DrainPiece> pieces) {
    return drainer.write_pieces({FileId{7}, 3, "", std::move(pieces)}, Time::max());
  }
  Outcome<msg::DrainFinish::Reply> finish(const msg::DrainFinish& request) {
    return drainer.finish(request, Time::max());
  }
  std::string temporary() const { return folder / ".stdchk-drain/7.3"; }

  TemporaryFolder folder;
  ManualClock clock;
  std::vector<std::byte> arena;
  Stop stop;
  FileDrainer drainer;
};

std::string text(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("M6: a drained file appears whole under its name, with its attributes") {
  Fixture f;
  const PlacedChunk a = f.put(0, 100'000, 1), b = f.put(200'000 / 64 * 64, 70'001, 2);
  REQUIRE(f.write({f.piece(a, 0)}));
  REQUIRE(f.write({f.piece(b, a.length)}));
  CHECK_FALSE(path_exists(f.folder / "app/deep/heat.N1.T2"));
  const auto finish = f.finish_of("app/deep/heat.N1.T2", a.length + b.length);
  REQUIRE(f.finish(finish));

  const std::string path = f.folder / "app/deep/heat.N1.T2";
  CHECK(read_file(path) == text(content_of(100'000, 1)) + text(content_of(70'001, 2)));
  struct stat there {};
  REQUIRE(::stat(path.c_str(), &there) == 0);
  CHECK((there.st_mode & 07777) == 0640);
  CHECK(there.st_mtim.tv_sec == 1'700'000'000);
  CHECK(there.st_mtim.tv_nsec == 123'456'789);
  CHECK_FALSE(path_exists(f.temporary()));
}

TEST_CASE("a drained file is found as it was left, and missed when it was removed or changed") {
  Fixture f;
  REQUIRE(f.write({f.piece(f.put(0, 1000, 1), 0)}));
  const auto finish = f.finish_of("app/image", 1000);
  REQUIRE(f.finish(finish));
  const std::string path = f.folder / "app/image";
  const auto is_found = [&](std::int64_t mtime_ns) {
    const auto reply = f.drainer.find({{{finish.path, finish.size_bytes, mtime_ns}}}, Time::max());
    REQUIRE(reply);
    return reply->missing.empty();
  };
  CHECK(is_found(finish.mtime_ns));
  // Some file systems store times in steps of one or two seconds.
  CHECK(is_found(finish.mtime_ns + 1'900'000'000));
  CHECK_FALSE(is_found(finish.mtime_ns + 2'000'000'000));
  CHECK_FALSE(is_found(finish.mtime_ns - 1));
  SECTION("changed in its place") {
    std::ofstream(path, std::ios::in) << "x";
    CHECK(std::filesystem::file_size(path) == 1000);
  }
  SECTION("cut") { std::filesystem::resize_file(path, 999); }
  SECTION("removed") { std::filesystem::remove(path); }
  SECTION("removed with its folder") { std::filesystem::remove_all(f.folder / "app"); }
  SECTION("another file in its folder's place") {
    std::filesystem::remove_all(f.folder / "app");
    std::ofstream(f.folder / "app") << "x";
  }
  SECTION("a link in its place") {
    std::filesystem::rename(path, f.folder / "elsewhere");
    std::filesystem::create_symlink(f.folder / "elsewhere", path);
  }
  CHECK_FALSE(is_found(finish.mtime_ns));
}

TEST_CASE("an attempt of number 0 compares a drained file with its checksums, and writes nothing") {
  Fixture f;
  const PlacedChunk a = f.put(0, 1000, 1), b = f.put(2048, 500, 2);
  REQUIRE(f.write({f.piece(a, 0), f.piece(b, 1000)}));
  const auto finish = f.finish_of("app/image", 1500);
  REQUIRE(f.finish(finish));
  std::vector<msg::DrainPiece> pieces{f.piece(a, 0), f.piece(b, 1000)};
  for (msg::DrainPiece& piece : pieces) piece.extent_offset = msg::kNoExtent;
  const msg::DrainPieces request{finish.file, 0, finish.path, pieces};
  const auto same = f.drainer.write_pieces(request, Time::max());
  REQUIRE(same);
  CHECK(same->corrupt.empty());
  std::ofstream(f.folder / "app/image", std::ios::in | std::ios::out).seekp(1200) << "other";
  const auto other = f.drainer.write_pieces(request, Time::max());
  REQUIRE(other);
  CHECK(other->corrupt == std::vector<std::uint32_t>{1});
  CHECK(std::filesystem::is_empty(f.folder / ".stdchk-drain"));
  std::filesystem::remove(f.folder / "app/image");
  CHECK_FALSE(f.drainer.write_pieces(request, Time::max()));
}

TEST_CASE("nothing is missed in a directory that nobody has drained to: it may not be mounted") {
  Fixture f;
  const msg::FindDrained wanted{{{"image", 1000, 0}}};
  const auto refused = f.drainer.find(wanted, Time::max());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().error.code == Code::kDrainFailed);
  CHECK(refused.error().text.find("Mount its file system") != std::string::npos);
  std::filesystem::create_directory(f.folder / ".stdchk-drain");
  const auto missed = f.drainer.find(wanted, Time::max());
  REQUIRE(missed);
  CHECK(missed->missing.size() == 1);
  std::filesystem::remove_all(f.folder.path());
  CHECK_FALSE(f.drainer.find(wanted, Time::max()));
}

TEST_CASE("a look at the drain directory ends at its deadline") {
  Fixture f;
  CHECK(f.drainer.find({{{"image", 1000, 0}}}, f.clock.now()).error().error.code ==
        Code::kDeadline);
}

TEST_CASE("holes stay holes and parts of a chunk go to their place") {
  Fixture f;
  const PlacedChunk chunk = f.put(64, 8192, 1);
  msg::DrainPiece part = f.piece(chunk, 1 * limits::kMiB);
  part.chunk_offset = 100;
  part.length = 4096;
  REQUIRE(f.write({part}));
  REQUIRE(f.finish(f.finish_of("sparse", 3 * limits::kMiB)));
  const std::string bytes = read_file(f.folder / "sparse");
  REQUIRE(bytes.size() == 3 * limits::kMiB);
  CHECK(bytes.substr(0, limits::kMiB) == std::string(limits::kMiB, '\0'));
  CHECK(bytes.substr(limits::kMiB, 4096) == text(content_of(8192, 1)).substr(100, 4096));
  CHECK(bytes.substr(limits::kMiB + 4096) == std::string(2 * limits::kMiB - 4096, '\0'));
  struct stat there {};
  REQUIRE(::stat((f.folder / "sparse").c_str(), &there) == 0);
  CHECK(static_cast<std::uint64_t>(there.st_blocks) * 512 < limits::kMiB);
}

TEST_CASE("a chunk that fails its checksum is reported and not written") {
  Fixture f;
  const PlacedChunk good = f.put(0, 1000, 1), flipped = f.put(4096, 1000, 2);
  const PlacedChunk replaced = f.put(8192, 1000, 3);
  f.arena[4096 + 64 + 500] ^= std::byte{1};
  f.put(8192, 1000, 4);  // a valid header and a whole chunk, but another chunk
  const auto reply = f.write({f.piece(flipped, 0), f.piece(good, 1000), f.piece(replaced, 2000)});
  REQUIRE(reply);
  CHECK(reply->corrupt == std::vector<std::uint32_t>{0, 2});
  const std::string bytes = read_file(f.temporary());
  CHECK(bytes == std::string(1000, '\0') + text(content_of(1000, 1)));
}

TEST_CASE("a chunk with the right checksum and another name is corrupt") {
  Fixture f;
  PlacedChunk chunk = f.put(0, 1000, 1);
  chunk.name.bytes[5] ^= std::byte{1};
  const auto reply = f.write({f.piece(chunk, 0)});
  REQUIRE(reply);
  CHECK(reply->corrupt == std::vector<std::uint32_t>{0});
  chunk.name = {};
  CHECK(f.write({f.piece(chunk, 0)})->corrupt.empty());
}

TEST_CASE("pieces outside the arena or their chunk are refused") {
  Fixture f;
  const PlacedChunk chunk = f.put(0, 1000, 1);
  const auto refused = [&](auto change) {
    msg::DrainPiece piece = f.piece(chunk, 0);
    change(piece);
    const auto reply = f.write({piece});
    return !reply && reply.error().error.code == Code::kInvalidArgument;
  };
  CHECK(refused([](auto& p) { p.extent_offset = 4 * limits::kMiB; }));
  CHECK(refused([](auto& p) { p.extent_offset = ~std::uint64_t{63}; }));
  CHECK(refused([](auto& p) { p.extent_offset = 8; }));
  CHECK(refused([](auto& p) { p.chunk_offset = 1; }));
  CHECK(refused([](auto& p) { p.length = 0; }));
  CHECK(refused([](auto& p) { p.chunk_length = limits::kChunkBytesMax + 1; }));
  CHECK(refused([](auto& p) { p.file_offset = ~std::uint64_t{0}; }));
}

TEST_CASE("paths that leave the drain directory are refused") {
  Fixture f;
  for (const char* path : {"", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "./a", "..",
                           ".stdchk-drain/7.3", ".stdchk-drain"}) {
    CAPTURE(path);
    CHECK_FALSE(split_path(path));
    CHECK(f.finish(f.finish_of(path, 0)).error().error.code == Code::kInvalidArgument);
    msg::MirrorChange change;
    change.kind = msg::MirrorKind::kUnlink;
    change.path = path;
    CHECK(f.drainer.mirror(change, Time::max()).error().error.code == Code::kInvalidArgument);
  }
  CHECK_FALSE(split_path(std::string(256, 'a')));
  CHECK_FALSE(split_path(std::string("a\0b", 3)));
  CHECK(split_path("a/b.N1.T2")->size() == 2);
}

TEST_CASE("a symbolic link on the way does not lead out of the drain directory") {
  Fixture f;
  const TemporaryFolder outside;
  std::filesystem::create_directory_symlink(outside.path(), f.folder / "out");
  std::filesystem::create_symlink(outside / "victim", f.folder / "leaf");
  write_file(outside / "victim", "precious");

  REQUIRE(f.write({f.piece(f.put(0, 10, 1), 0)}));
  CHECK_FALSE(f.finish(f.finish_of("out/file", 10)));
  CHECK_FALSE(path_exists(outside / "file"));
  msg::MirrorChange change;
  change.kind = msg::MirrorKind::kUnlink;
  change.path = "out/victim";
  CHECK_FALSE(f.drainer.mirror(change, Time::max()));
  change.kind = msg::MirrorKind::kAttributes;
  change.path = "leaf";
  change.mode = 0;
  CHECK(f.drainer.mirror(change, Time::max()));
  struct stat there {};
  REQUIRE(::stat((outside / "victim").c_str(), &there) == 0);
  CHECK((there.st_mode & 0777) != 0);
  // The drain replaces a link under the file's name, and does not follow the link.
  REQUIRE(f.finish(f.finish_of("leaf", 10)));
  CHECK(read_file(outside / "victim") == "precious");
  CHECK(read_file(f.folder / "leaf").size() == 10);
}

TEST_CASE("a drain that ends between steps leaves only temporary files and can be repeated") {
  Fixture f;
  const PlacedChunk a = f.put(0, 1000, 1), b = f.put(4096, 1000, 2);
  REQUIRE(f.write({f.piece(a, 0)}));
  f.stop.request();
  CHECK(f.write({f.piece(b, 1000)}).error().error.code == Code::kCancelled);
  std::size_t named = 0;
  for (const auto& entry : std::filesystem::directory_iterator(f.folder.path())) {
    if (entry.path().filename() != ".stdchk-drain") ++named;
  }
  CHECK(named == 0);

  Stop stop;
  FileDrainer later(f.arena, f.folder.path(), 0, f.clock, stop);
  REQUIRE(later.write_pieces({FileId{7}, 3, "", {f.piece(a, 0), f.piece(b, 1000)}}, Time::max()));
  REQUIRE(later.finish(f.finish_of("file", 2000), Time::max()));
  CHECK(read_file(f.folder / "file") == text(content_of(1000, 1)) + text(content_of(1000, 2)));
}

TEST_CASE("a finish that is repeated succeeds and one without pieces never makes a file of zeros") {
  Fixture f;
  CHECK(f.finish(f.finish_of("file", 1000)).error().error.code == Code::kDrainFailed);
  CHECK_FALSE(path_exists(f.folder / "file"));
  REQUIRE(f.write({f.piece(f.put(0, 1000, 1), 0)}));
  REQUIRE(f.finish(f.finish_of("file", 1000)));
  CHECK(f.finish(f.finish_of("file", 1000)));
  CHECK_FALSE(f.finish(f.finish_of("file", 1001)));
  CHECK(read_file(f.folder / "file") == text(content_of(1000, 1)));
}

TEST_CASE("pieces that are not in memory any more come from the version drained before") {
  Fixture f;
  const PlacedChunk chunk = f.put(0, 1000, 1);
  REQUIRE(f.write({f.piece(chunk, 0)}));
  REQUIRE(f.finish(f.finish_of("file", 1000)));

  msg::DrainPieces next{FileId{7}, 4, "file", {f.piece(chunk, 0), f.piece(chunk, 0)}};
  next.pieces[0].extent_offset = msg::kNoExtent;
  next.pieces[1] = f.piece(f.put(4096, 500, 2), 1000);
  const auto reply = f.drainer.write_pieces(next, Time::max());
  REQUIRE(reply);
  CHECK(reply->corrupt.empty());
  CHECK(read_file(f.folder / ".stdchk-drain/7.4") ==
        text(content_of(1000, 1)) + text(content_of(500, 2)));

  next.pieces[0].crc ^= 1;
  CHECK(f.drainer.write_pieces(next, Time::max())->corrupt == std::vector<std::uint32_t>{0});
  next.base_path = "";
  CHECK(f.drainer.write_pieces(next, Time::max()).error().error.code == Code::kInvalidArgument);
  next.base_path = "../file";
  CHECK(f.drainer.write_pieces(next, Time::max()).error().error.code == Code::kInvalidArgument);
  next.base_path = "missing";
  CHECK(f.drainer.write_pieces(next, Time::max()).error().error.os_errno == ENOENT);
}

TEST_CASE("a file of another owner in the place of the version drained before gives no bytes") {
  if (::geteuid() != 0) return;  // only root gives files to other users
  Fixture f;
  const PlacedChunk chunk = f.put(0, 1000, 1);
  REQUIRE(f.write({f.piece(chunk, 0)}));
  REQUIRE(f.finish(f.finish_of("file", 1000)));
  REQUIRE(::chown((f.folder / "file").c_str(), 4242, static_cast<gid_t>(-1)) == 0);

  msg::DrainPieces next{FileId{7}, 4, "file", {f.piece(chunk, 0)}, 4243};
  next.pieces[0].extent_offset = msg::kNoExtent;
  const auto refused = [&] {
    const auto reply = f.drainer.write_pieces(next, Time::max());
    return !reply && reply.error().error.os_errno == EPERM;
  };
  CHECK(refused());
  next.number = 0;  // a comparison
  CHECK(refused());
  next.base_uid = 4242;
  CHECK(f.drainer.write_pieces(next, Time::max()));
}

TEST_CASE("a finish or a change that comes after its deadline changes no name") {
  Fixture f;
  REQUIRE(f.write({f.piece(f.put(0, 1000, 1), 0)}));
  write_file(f.folder / "other", "precious");
  f.clock.advance(std::chrono::seconds(5));
  const Time before = f.clock.now() - std::chrono::seconds(1);
  CHECK(f.drainer.finish(f.finish_of("other", 1000), before).error().error.code == Code::kDeadline);
  msg::MirrorChange change;
  change.kind = msg::MirrorKind::kUnlink;
  change.path = "other";
  CHECK(f.drainer.mirror(change, before).error().error.code == Code::kDeadline);
  CHECK(read_file(f.folder / "other") == "precious");
}

TEST_CASE("a file without bytes is drained by a request without pieces") {
  Fixture f;
  REQUIRE(f.write({}));
  REQUIRE(f.finish(f.finish_of("empty", 0)));
  CHECK(path_exists(f.folder / "empty"));
}

TEST_CASE("the rate of a drain is limited and a deadline ends the waiting") {
  Duration paused{};
  Fixture f(1'000'000, {}, &paused);
  std::vector<msg::DrainPiece> pieces;
  for (unsigned i = 0; i < 10; ++i) {
    pieces.push_back(f.piece(f.put(i * 131072, 100'000, i), i * 100'000));
  }
  REQUIRE(f.write(pieces));
  CHECK(paused >= std::chrono::milliseconds(890));
  CHECK(paused <= std::chrono::milliseconds(1000));
  const auto late = f.drainer.write_pieces({FileId{7}, 3, "", pieces},
                                           f.clock.now() + std::chrono::milliseconds(250));
  CHECK(late.error().error.code == Code::kDeadline);
}

TEST_CASE("a missing drain directory is an error with a remedy") {
  Fixture f(0, "/nonexistent/drain");
  const auto reply = f.write({f.piece(f.put(0, 10, 1), 0)});
  REQUIRE_FALSE(reply);
  CHECK(reply.error().error.code == Code::kDrainFailed);
  CHECK(reply.error().error.os_errno == ENOENT);
  CHECK(reply.error().text.find("make the drain directory") != std::string::npos);
}

TEST_CASE("a full file system is kDrainFailed with ENOSPC and names no file") {
  const TemporaryFolder mount_point;
  if (::mount("tmpfs", mount_point.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    WARN("SKIPPED: a tmpfs cannot be mounted here (not root)");
    return;
  }
  {
    Fixture f(0, mount_point.path());
    const PlacedChunk chunk = f.put(0, 1'000'000, 1);
    const auto reply = f.write({f.piece(chunk, 0)});
    REQUIRE_FALSE(reply);
    CHECK(reply.error().error.code == Code::kDrainFailed);
    CHECK(reply.error().error.os_errno == ENOSPC);
    CHECK(reply.error().text.find("make room") != std::string::npos);
    // Dropping the temporary file makes room again.
    msg::MirrorChange drop;
    drop.kind = msg::MirrorKind::kDropTemporary;
    drop.file = FileId{7};
    drop.number = 3;
    CHECK(f.drainer.mirror(drop, Time::max()));
    CHECK(f.write({f.piece(f.put(0, 100'000, 1), 0)}));
    CHECK(f.finish(f.finish_of("small", 100'000)));
  }
  ::umount(mount_point.path().c_str());
}

}  // namespace stdchk::benefactor
