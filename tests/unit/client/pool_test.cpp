#include "tests/unit/client/pool.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "client/blocking/read_view.h"
#include "core/base/limits.h"

namespace stdchk::client::test {
namespace {

constexpr std::uint64_t kArena = 48 * limits::kMiB;

std::unique_ptr<File> create(Filesystem& filesystem, std::string_view name, bool truncate = false) {
  auto file = filesystem.create(kRootFile, name, writing(truncate), Owner{});
  INFO((file.has_value() ? std::string() : describe(file.error())));
  REQUIRE(file.has_value());
  return std::move(*file);
}

std::unique_ptr<File> open_reading(Filesystem& filesystem, std::string_view path) {
  const auto attributes = filesystem.lookup_fresh(kRootFile, path);
  REQUIRE(attributes.has_value());
  auto file = filesystem.open(attributes->id, reading());
  REQUIRE(file.has_value());
  return std::move(*file);
}

TEST_CASE("a sequential image is read back equal by the same and by another client") {
  const auto [naming, content_cuts] =
      GENERATE(std::pair(Naming::kOff, false), std::pair(Naming::kAuto, false),
               std::pair(Naming::kOn, false), std::pair(Naming::kOn, true));
  Pool pool(4, kArena, naming);
  Options options;
  options.content_cuts = content_cuts;
  auto one = pool.connect(options);
  auto two = pool.connect();
  const auto bytes = random_bytes(5 * limits::kMiB + 12345, 1);
  auto file = create(*one, "app.N0.T1");
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t step = std::min<std::size_t>(300000, bytes.size() - at);
    REQUIRE(file->write(at, ByteSpan(bytes).subspan(at, step)).has_value());
    at += step;
  }
  REQUIRE(two->lookup_fresh(kRootFile, "app.N0.T1").error().code == Code::kNotFound);
  REQUIRE(file->close().has_value());
  REQUIRE(file->figures().bytes_written == bytes.size());
  REQUIRE(file->figures().bytes_sent >= bytes.size());
  REQUIRE(read_all(*one, "app.N0.T1") == bytes);
  REQUIRE(read_all(*two, "app.N0.T1") == bytes);
}

TEST_CASE("writing goes on with a manager that was restarted") {
  const auto [naming, content_cuts] = GENERATE(
      std::pair(Naming::kOff, false), std::pair(Naming::kOn, false), std::pair(Naming::kOn, true));
  Pool pool(4, kArena, naming);
  Options options;
  options.content_cuts = content_cuts;
  auto one = pool.connect(options);
  const auto before = random_bytes(2 * limits::kMiB, 4);
  auto earlier = create(*one, "app.N0.T1");
  REQUIRE(earlier->write(0, before).has_value());
  REQUIRE(earlier->close().has_value());
  // The pool has a part of the content; the rest is stored, waits, and is committed after the
  // restart.
  auto bytes = random_bytes(6 * limits::kMiB + 12345, 5);
  std::memcpy(bytes.data(), before.data(), before.size());
  const std::size_t half = 3 * limits::kMiB + 100;
  auto file = create(*one, "app.N0.T2");
  REQUIRE(file->write(0, ByteSpan(bytes).first(half)).has_value());
  REQUIRE(file->sync().has_value());
  pool.restart_manager();
  REQUIRE(file->write(half, ByteSpan(bytes).subspan(half)).has_value());
  REQUIRE(file->close().has_value());
  REQUIRE(read_all(*one, "app.N0.T2") == bytes);
  auto two = pool.connect();
  REQUIRE(read_all(*two, "app.N0.T2") == bytes);
}

msg::SetAttributes owner_of(FileId file) {
  msg::SetAttributes change;
  change.file = file;
  change.mask = static_cast<std::uint32_t>(msg::SetMask::kMode) |
                static_cast<std::uint32_t>(msg::SetMask::kUid) |
                static_cast<std::uint32_t>(msg::SetMask::kGid) |
                static_cast<std::uint32_t>(msg::SetMask::kAtime);
  change.mode = 0640;
  change.uid = 7;
  change.gid = 8;
  change.atime_ns = 1000;
  return change;
}

TEST_CASE("a new file has its name and attributes after a restart, whenever it was given them") {
  Pool pool(2, kArena, Naming::kOff);
  auto one = pool.connect();
  const auto bytes = random_bytes(100000, 6);
  auto old = create(*one, "renamed");
  REQUIRE(old->write(0, ByteSpan(bytes).first(5)).has_value());
  REQUIRE(old->close().has_value());
  auto file = create(*one, "renamed.part");
  REQUIRE(file->write(0, ByteSpan(bytes).first(1000)).has_value());
  REQUIRE(file->attributes().version == 0);
  const FileId id = file->attributes().id;
  const msg::Rename rename{{}, kRootFile, "renamed.part", kRootFile, "renamed"};
  const auto change = [&] {
    return one->rename(rename).has_value() && one->set_attributes(owner_of(id)).has_value() &&
           one->set_xattr(msg::SetXattr{{}, id, "user.k", "v"}).has_value();
  };
  SECTION("before") {
    CHECK(change());
    pool.restart_manager();
    pool.restart_manager();
  }
  SECTION("while there is no manager") {
    std::future<bool> done;
    pool.restart_manager([&] {
      done = std::async(std::launch::async, change);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    });
    CHECK(done.get());
    pool.restart_manager();
  }
  SECTION("before the manager knows it again") {
    pool.restart_manager();
    CHECK(change());
    pool.restart_manager();
  }
  REQUIRE(file->write(1000, ByteSpan(bytes).subspan(1000)).has_value());
  REQUIRE(file->close().has_value());
  auto two = pool.connect();
  CHECK(read_all(*two, "renamed") == bytes);
  CHECK(two->lookup_fresh(kRootFile, "renamed.part").error().code == Code::kNotFound);
  const auto now = two->lookup_fresh(kRootFile, "renamed");
  REQUIRE(now.has_value());
  CHECK(now->id == id);
  CHECK(now->mode == 0640);
  CHECK(now->uid == 7);
  CHECK(now->gid == 8);
  CHECK(now->atime_ns == 1000);
  const auto xattrs = two->xattrs(id);
  REQUIRE(xattrs.has_value());
  CHECK(*xattrs == std::vector<std::pair<std::string, std::string>>{{"user.k", "v"}});
}

TEST_CASE("a new file that was removed, or replaced, has no name after a restart") {
  Pool pool(2, kArena, Naming::kOff);
  auto one = pool.connect();
  const auto bytes = random_bytes(1000, 7);
  auto file = create(*one, "gone");
  REQUIRE(file->write(0, bytes).has_value());
  const bool replaced = GENERATE(false, true);
  std::unique_ptr<File> other;
  if (replaced) {
    other = create(*one, "other");
    REQUIRE(other->write(0, ByteSpan(bytes).first(10)).has_value());
    REQUIRE(one->rename({{}, kRootFile, "other", kRootFile, "gone"}).has_value());
  } else {
    REQUIRE(one->remove(kRootFile, "gone", false).has_value());
  }
  pool.restart_manager();
  std::vector<std::byte> out(bytes.size());
  REQUIRE(file->read(0, out).has_value());
  CHECK(out == bytes);
  REQUIRE(file->close().has_value());
  auto two = pool.connect();
  CHECK(two->lookup_fresh(kRootFile, "gone").error().code == Code::kNotFound);
  if (!replaced) return;
  REQUIRE(other->close().has_value());
  CHECK(read_all(*two, "gone").size() == 10);
}

TEST_CASE("a change of names that a manager made before it ended is answered by the next one") {
  Pool pool(2, kArena, Naming::kOff);
  auto one = pool.connect();
  const auto bytes = random_bytes(1000, 8);
  auto old = create(*one, "old");
  REQUIRE(old->write(0, bytes).has_value());
  REQUIRE(old->close().has_value());
  auto file = create(*one, "new");
  REQUIRE(file->write(0, ByteSpan(bytes).first(10)).has_value());
  std::future<Status> changed;
  const auto change = [&](const std::function<Status()>& how) {
    pool.restart_manager_before_answer(
        [&] { changed = std::async(std::launch::async, [how] { return how(); }); });
    return changed.get().has_value();
  };
  SECTION("a folder is made") {
    CHECK(change([&]() -> Status {
      STDCHK_TRY(one->make_directory(kRootFile, "folder", {0755, 0, 0}));
      return {};
    }));
    CHECK(file->close().has_value());
    CHECK(one->lookup_fresh(kRootFile, "folder").has_value());
  }
  SECTION("a file takes the name of one that has no version yet") {
    CHECK(change([&]() -> Status {
      STDCHK_TRY(one->rename({{}, kRootFile, "old", kRootFile, "new"}));
      return {};
    }));
    (void)file->close();
    CHECK(one->lookup_fresh(kRootFile, "old").error().code == Code::kNotFound);
    CHECK(read_all(*one, "new") == bytes);
  }
  SECTION("a file goes that one without a version covers") {
    REQUIRE(one->rename({{}, kRootFile, "new", kRootFile, "old"}).has_value());
    CHECK(change([&]() -> Status {
      STDCHK_TRY(one->remove(kRootFile, "old", false));
      return {};
    }));
    CHECK(file->close().has_value());
    auto two = pool.connect();
    CHECK(two->lookup_fresh(kRootFile, "old").error().code == Code::kNotFound);
    CHECK(two->lookup_fresh(kRootFile, "new").error().code == Code::kNotFound);
  }
}

TEST_CASE("a writer does not wait for slots whose bytes were truncated") {
  Pool pool(1, kArena, Naming::kOff);
  auto client = pool.connect();
  auto file = create(*client, "f");
  const auto bytes = random_bytes(10, 9);
  const auto began = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < 100; ++i) {
    REQUIRE(file->write(i * kChunk, bytes).has_value());
    REQUIRE(file->truncate(0).has_value());
  }
  // The window has 16 slots. A wait without a signal takes 100 ms.
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(3));
}

TEST_CASE(
    "writes at random offsets, truncates and reads agree with a model, before and after commits") {
  const auto [naming, content_cuts] =
      GENERATE(std::pair(Naming::kOff, false), std::pair(Naming::kAuto, false),
               std::pair(Naming::kOn, false), std::pair(Naming::kAuto, true));
  Pool pool(3, kArena, naming);
  Options options;
  options.content_cuts = content_cuts;
  auto one = pool.connect(options);
  auto two = pool.connect();
  Prng random((content_cuts ? 55 : 5) + static_cast<std::uint64_t>(naming));
  std::vector<std::byte> model;
  auto file = create(*one, "random");
  const auto source = random_bytes(400000, 9);
  for (int step = 0; step < 400; ++step) {
    const std::uint64_t kind = random.below(20);
    if (kind < 12) {
      const std::size_t at = random.below(1500000);
      const std::size_t length = 1 + random.below(random.chance(1, 4) ? 300000 : 5000);
      const std::size_t from = random.below(source.size() - length);
      REQUIRE(file->write(at, ByteSpan(source).subspan(from, length)).has_value());
      if (model.size() < at + length) model.resize(at + length);
      std::memcpy(model.data() + at, source.data() + from, length);
    } else if (kind < 17) {
      const std::size_t at = random.below(model.size() + 1000);
      std::vector<std::byte> out(1 + random.below(200000));
      const auto count = file->read(at, out);
      REQUIRE(count.has_value());
      const std::size_t expected = at >= model.size() ? 0 : std::min(out.size(), model.size() - at);
      REQUIRE(*count == expected);
      REQUIRE(std::equal(out.begin(), out.begin() + static_cast<long>(expected),
                         model.begin() + static_cast<long>(std::min(at, model.size()))));
    } else if (kind == 17) {
      const std::size_t size = random.below(1600000);
      REQUIRE(file->truncate(size).has_value());
      model.resize(size);
    } else if (random.chance(1, 3)) {
      REQUIRE(file->commit().has_value());
      REQUIRE_FALSE(file->dirty());
      REQUIRE(read_all(*two, "random") == model);
    }
    REQUIRE(file->attributes().size_bytes == model.size());
  }
  REQUIRE(file->close().has_value());
  REQUIRE(read_all(*two, "random") == model);
}

TEST_CASE("a chunk that the pool had already is read back after it was moved in its arena") {
  constexpr std::size_t kFiles = 16;
  Pool pool(1, kFiles * (kChunk + limits::kExtentHeaderBytes) + 4096, Naming::kOn);
  auto one = pool.connect();
  const auto name = [](std::size_t i) { return "f" + std::to_string(i); };
  std::vector<std::byte> kept;
  for (std::size_t i = 0; i < kFiles; ++i) {
    const auto bytes = random_bytes(kChunk, 100 + i);
    auto file = create(*one, name(i));
    REQUIRE(file->write(0, bytes).has_value());
    REQUIRE(file->close().has_value());
    if (i % 2 == 0) kept.insert(kept.end(), bytes.begin(), bytes.end());
  }
  auto again = create(*one, "app.N9.T1");
  REQUIRE(again->write(0, kept).has_value());
  REQUIRE(again->sync().has_value());
  REQUIRE(again->figures().bytes_sent == 0);
  // Free space is in holes of one chunk each. A writer of longer chunks makes the pool compact.
  for (std::size_t i = 1; i < kFiles; i += 2) {
    REQUIRE(one->remove(kRootFile, name(i), false).has_value());
  }
  Options longer;
  longer.chunk_bytes = 2 * kChunk;
  auto two = pool.connect(longer);
  const auto large = random_bytes(4 * kChunk, 1);
  auto file = create(*two, "large");
  REQUIRE(file->write(0, large).has_value());
  REQUIRE(file->close().has_value());
  std::vector<std::byte> back(kept.size());
  REQUIRE(again->read(0, back).has_value());
  CHECK(back == kept);
  REQUIRE(again->close().has_value());
  CHECK(read_all(*two, "app.N9.T1") == kept);
  CHECK(read_all(*one, "large") == large);
}

TEST_CASE("two clients write disjoint parts of one file and both parts are there") {
  Pool pool(2, kArena, Naming::kOn);
  auto one = pool.connect();
  auto two = pool.connect();
  const auto bytes = random_bytes(1000000, 3);
  auto first = create(*one, "shared");
  auto second = create(*two, "shared");
  for (std::size_t at = 0, part = 0; at < bytes.size(); at += 10000, ++part) {
    File& file = part % 2 == 0 ? *first : *second;
    REQUIRE(file.write(at, ByteSpan(bytes).subspan(at, 10000)).has_value());
  }
  REQUIRE(first->close().has_value());
  REQUIRE(second->close().has_value());
  REQUIRE(read_all(*one, "shared") == bytes);
  REQUIRE(read_all(*two, "shared") == bytes);
}

TEST_CASE("who made a file and commits it last does not cut what others have committed") {
  Pool pool(2, kArena, Naming::kOn);
  auto one = pool.connect();
  auto two = pool.connect();
  const auto bytes = random_bytes(400000, 3);
  for (const bool truncate : {false, true}) {
    const std::string name = truncate ? "truncated" : "created";
    auto maker = create(*one, name, truncate);
    auto joiner = create(*two, name, truncate);
    REQUIRE(maker->write(0, ByteSpan(bytes).first(200000)).has_value());
    REQUIRE(joiner->write(200000, ByteSpan(bytes).subspan(200000)).has_value());
    REQUIRE(joiner->close().has_value());
    REQUIRE(maker->close().has_value());
    REQUIRE(read_all(*two, name) == bytes);
  }
}

TEST_CASE("an image equal to the one before sends no data") {
  Pool pool(2, kArena, Naming::kOn);
  auto one = pool.connect();
  const auto bytes = random_bytes(40 * kChunk, 4);
  for (const char* name : {"app.N1.T1", "app.N1.T2"}) {
    auto file = create(*one, name);
    REQUIRE(file->write(0, bytes).has_value());
    REQUIRE(file->close().has_value());
    if (std::string_view(name) == "app.N1.T2") {
      REQUIRE(file->figures().bytes_sent == 0);
      REQUIRE(file->figures().bytes_existing == bytes.size());
    }
  }
  REQUIRE(read_all(*one, "app.N1.T2") == bytes);
}

TEST_CASE("naming stops where nothing is found again, and comes back when something is") {
  constexpr std::uint64_t kImage = 80 * limits::kMiB;
  static_assert(kImage > client::SeriesNaming::kJudgedBytes);
  Pool pool(2, 3 * kImage, Naming::kAuto);
  auto one = pool.connect();
  int step = 0;
  const auto write = [&](std::uint64_t seed) {
    const std::string name = "app.N1.T" + std::to_string(++step);
    const auto bytes = random_bytes(kImage, seed);
    auto file = create(*one, name);
    REQUIRE(file->write(0, bytes).has_value());
    REQUIRE(file->close().has_value());
    REQUIRE(read_all(*one, name) == bytes);
    return file->figures();
  };
  CHECK(write(1).bytes_named == kImage);  // no earlier image to compare with
  const auto second = write(2);
  CHECK(second.bytes_named >= client::SeriesNaming::kJudgedBytes);
  CHECK(second.bytes_named < kImage);
  CHECK(write(3).bytes_named < kImage / 5);
  // samples match, so the client names every chunk from here on
  CHECK(write(3).bytes_existing > 0);
  CHECK(write(3).bytes_named == kImage);
  CHECK(write(3).bytes_existing == kImage);
}

TEST_CASE("rewriting one range over and over takes no more space than one session may hold") {
  Pool pool(1, 24 * limits::kMiB, Naming::kOff);
  auto one = pool.connect();
  auto file = create(*one, "again");
  std::vector<std::byte> bytes;
  for (std::uint64_t round = 0; round < 40; ++round) {
    bytes = random_bytes(40 * kChunk, round);
    REQUIRE(file->write(0, bytes).has_value());
  }
  REQUIRE(file->close().has_value());
  REQUIRE(read_all(*one, "again") == bytes);
}

TEST_CASE("a full pool is ENOSPC, in bounded time, and what was there stays") {
  Pool pool(2, 8 * limits::kMiB, Naming::kOff);
  auto one = pool.connect();
  const auto good = random_bytes(4 * limits::kMiB, 1);
  auto file = create(*one, "good");
  REQUIRE(file->write(0, good).has_value());
  REQUIRE(file->close().has_value());
  file = create(*one, "large");
  Status status;
  for (std::uint64_t at = 0; at < 64 && status.has_value(); ++at) {
    status = file->write(at * limits::kMiB, ByteSpan(good).first(limits::kMiB));
  }
  if (status.has_value()) status = file->close();
  REQUIRE_FALSE(status.has_value());
  REQUIRE(status.error().code == Code::kNoSpace);
  file.reset();
  REQUIRE(read_all(*one, "good") == good);
}

TEST_CASE("a benefactor that fills up in the middle of an image leaves the rest to the others") {
  Pool pool({4 * limits::kMiB, 16 * limits::kMiB, 16 * limits::kMiB}, Naming::kOff);
  auto one = pool.connect();
  auto two = pool.connect();
  const auto write = [&](File& file, ByteSpan bytes) {
    Status done;
    for (std::size_t at = 0; done.has_value() && at < bytes.size();) {
      const std::size_t step = std::min<std::size_t>(300000, bytes.size() - at);
      done = file.write(at, bytes.subspan(at, step));
      at += step;
    }
    const Status closed = file.close();
    return done.has_value() ? closed : done;
  };
  // An equal share would be three times the small benefactor's arena, and the file needs nearly all
  // of the pool.
  const auto bytes = random_bytes(34 * limits::kMiB, 7);
  const Status written = write(*create(*one, "app.N0.T1"), bytes);
  INFO((written.has_value() ? std::string() : describe(written.error())));
  REQUIRE(written.has_value());
  REQUIRE(read_all(*two, "app.N0.T1") == bytes);
  REQUIRE(one->stat_pool()->free_bytes < 2 * limits::kMiB);
  const auto map = one->map(one->lookup_fresh(kRootFile, "app.N0.T1")->id);
  REQUIRE(map.has_value());
  std::map<BenefactorId, std::uint64_t> places;
  for (const Chunk& chunk : map->second.chunks) {
    for (const Extent& at : chunk.copies) places[at.benefactor] += chunk.length;
  }
  REQUIRE(places.size() == 3);
  for (const auto& [id, stored] : places) REQUIRE(stored > 3 * limits::kMiB);
  // Only now the pool is full.
  const auto more = random_bytes(3 * limits::kMiB, 8);
  const Status refused = write(*create(*one, "app.N0.T2"), more);
  REQUIRE_FALSE(refused.has_value());
  REQUIRE(refused.error().code == Code::kNoSpace);
  REQUIRE(read_all(*two, "app.N0.T1") == bytes);
}

TEST_CASE("what is on its way to a benefactor that dies is written elsewhere") {
  Pool pool(4, kArena, Naming::kOff);
  StoppableClock clock;
  auto one = pool.connect_slowly({}, clock, std::chrono::milliseconds(1));
  constexpr std::size_t kChunks = 12;
  constexpr std::uint64_t kAll = kChunks * (kChunk + limits::kExtentHeaderBytes);
  const auto bytes = random_bytes(kChunks * kChunk, 7);
  // The first file brings the links up.
  for (const char* name : {"app.N0.T1", "app.N0.T2"}) {
    auto file = create(*one, name);
    const bool dies = std::string_view(name) == "app.N0.T2";
    if (dies) clock.stop();
    REQUIRE(file->write(0, bytes).has_value());
    if (dies) {
      while (file->figures().bytes_sent < kAll) std::this_thread::yield();
      pool.kill(2);
      // A write that completed before the loss would count as stored, so wait for the failure.
      for (int i = 0; i < 5000 && file->figures().bytes_sent == kAll; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      clock.go_on();
    }
    REQUIRE(file->close().has_value());
    CHECK((file->figures().bytes_sent > kAll) == dies);
  }
  CHECK(read_all(*one, "app.N0.T2") == bytes);
}

TEST_CASE("a file whose chunks a benefactor takes along can be written again") {
  Pool pool(4, kArena, Naming::kOff);
  auto one = pool.connect();
  const auto bytes = random_bytes(8 * limits::kMiB, 7);
  auto file = create(*one, "app.N0.T1");
  REQUIRE(file->write(0, ByteSpan(bytes).first(limits::kMiB)).has_value());
  REQUIRE(file->sync().has_value());
  pool.kill(2);
  // Chunks stored there are lost; the close waits until the manager is sure.
  REQUIRE(file->write(limits::kMiB, ByteSpan(bytes).subspan(limits::kMiB)).has_value());
  CHECK(file->close().error().code == Code::kDataLost);
  file = create(*one, "app.N0.T1", true);  // works even before the manager has noticed the loss
  REQUIRE(file->write(0, bytes).has_value());
  REQUIRE(file->close().has_value());
  CHECK(read_all(*one, "app.N0.T1") == bytes);
}

TEST_CASE("an image whose close waits for two copies survives a benefactor that dies meanwhile") {
  const Naming naming = GENERATE(Naming::kOff, Naming::kOn);
  Pool pool(4, kArena, naming);
  Options options;
  options.copies = 2;
  options.close_mode = CloseMode::kRedundant;
  auto one = pool.connect(options);
  const auto bytes = random_bytes(8 * limits::kMiB, 7);
  auto file = create(*one, "app.N0.T1");
  REQUIRE(file->write(0, ByteSpan(bytes).first(limits::kMiB)).has_value());
  REQUIRE(file->sync().has_value());
  CHECK(file->figures().bytes_sent >= 2 * limits::kMiB);
  pool.kill(2);
  REQUIRE(file->write(limits::kMiB, ByteSpan(bytes).subspan(limits::kMiB)).has_value());
  const Status closed = file->close();
  INFO((closed.has_value() ? std::string() : describe(closed.error())));
  REQUIRE(closed.has_value());
  CHECK(read_all(*one, "app.N0.T1") == bytes);
  CHECK(read_all(*pool.connect(), "app.N0.T1") == bytes);
}

TEST_CASE("a client that waits for copies has written them before its commit") {
  Pool pool(4, kArena, Naming::kOff);
  Options options;
  options.copies = 3;
  options.close_mode = CloseMode::kRedundant;
  auto one = pool.connect(options);
  const auto bytes = random_bytes(2 * limits::kMiB, 7);
  auto file = create(*one, "app.N0.T1");
  REQUIRE(file->write(0, bytes).has_value());
  REQUIRE(file->close().has_value());
  const auto map = one->map(one->lookup_fresh(kRootFile, "app.N0.T1")->id);
  REQUIRE(map.has_value());
  for (const Chunk& chunk : map->second.chunks) CHECK(chunk.copies.size() == 3);
  CHECK(one->stat_pool()->copies_made == 0);
}

TEST_CASE("a read-only open keeps the version it was opened at") {
  Pool pool(2, kArena, Naming::kOn);
  auto one = pool.connect();
  auto two = pool.connect();
  const auto old_bytes = random_bytes(300000, 1);
  const auto new_bytes = random_bytes(300000, 2);
  auto file = create(*one, "f");
  REQUIRE(file->write(0, old_bytes).has_value());
  REQUIRE(file->close().has_value());
  const auto id = two->resolve("f")->id;
  auto reader = std::move(*two->open(id, reading()));
  file = create(*one, "f", true);
  REQUIRE(file->write(0, new_bytes).has_value());
  REQUIRE(file->close().has_value());
  std::vector<std::byte> out(300000);
  REQUIRE(*reader->read(0, out) == out.size());
  REQUIRE(out == old_bytes);
  REQUIRE(reader->close().has_value());
  REQUIRE(read_all(*two, "f") == new_bytes);
}

TEST_CASE("an aborted file is not there, and the name is free again") {
  Pool pool(1, kArena, Naming::kOn);
  auto one = pool.connect();
  {
    auto file = create(*one, "gone");
    REQUIRE(file->write(0, random_bytes(200000, 1)).has_value());
    file->abort();
    REQUIRE(one->lookup_fresh(kRootFile, "gone").error().code == Code::kNotFound);
    REQUIRE_FALSE(file->write(0, random_bytes(10, 1)).has_value());
    REQUIRE_FALSE(file->close().has_value());
  }
  REQUIRE(create(*one, "gone")->close().has_value());
}

TEST_CASE("whole chunks in borrowed buffers, and reserved ranges, are written without a copy") {
  Pool pool(2, kArena, Naming::kOn);
  auto one = pool.connect();
  const auto bytes = random_bytes(6 * kChunk + 100, 8);
  auto file = create(*one, "adopted");
  std::size_t at = 0;
  for (; at < 3 * kChunk; at += kChunk) {
    auto buffer = borrow_buffer(*one);
    REQUIRE(buffer.has_value());
    REQUIRE(buffer->headroom().size() >= 128);
    REQUIRE(buffer->headroom().data() + buffer->headroom().size() == buffer->data().data());
    std::memcpy(buffer->data().data(), bytes.data() + at, kChunk);
    REQUIRE(write_adopted(*file, *buffer, at, buffer->data()).has_value());
    REQUIRE_FALSE(*buffer);
  }
  while (at < bytes.size()) {
    const auto span = file->reserve(at, bytes.size() - at);
    REQUIRE(span.has_value());
    std::memcpy(span->data(), bytes.data() + at, span->size());
    REQUIRE(file->submit(at, span->size()).has_value());
    at += span->size();
  }
  REQUIRE(file->close().has_value());
  REQUIRE(read_all(*one, "adopted") == bytes);
}

TEST_CASE("a close does not wait for what was reserved and never submitted") {
  Pool pool(2, kArena, Naming::kOn);
  auto one = pool.connect();
  const auto bytes = random_bytes(100, 9);
  auto file = create(*one, "reserved");
  REQUIRE(file->write(0, bytes).has_value());
  REQUIRE(file->reserve(5 * kChunk, kChunk).has_value());
  REQUIRE(file->reserve(200, 50).has_value());
  REQUIRE(file->close().has_value());
  REQUIRE(read_all(*one, "reserved") == bytes);
}

TEST_CASE("a run within one chunk is seen where it lies, and anything else is read") {
  Pool pool(2, kArena, Naming::kOff);
  auto one = pool.connect();
  const auto bytes = random_bytes(3 * kChunk + 100, 1);
  auto file = create(*one, "seen");
  REQUIRE(file->write(0, bytes).has_value());
  REQUIRE(file->truncate(5 * kChunk).has_value());
  REQUIRE(file->close().has_value());
  auto two = pool.connect();
  auto reader = open_reading(*two, "seen");
  const auto seen_at = [&](std::uint64_t offset, std::size_t length) {
    auto seen = view(*reader, offset, length);
    REQUIRE(seen.has_value());
    return std::vector<std::byte>(seen->bytes().begin(), seen->bytes().end());
  };
  const auto part = [&](std::size_t from, std::size_t length) {
    return std::vector<std::byte>(bytes.begin() + static_cast<long>(from),
                                  bytes.begin() + static_cast<long>(from + length));
  };
  REQUIRE(seen_at(0, kChunk) == part(0, kChunk));
  REQUIRE(seen_at(kChunk + 7, 1000) == part(kChunk + 7, 1000));
  // Far from the last range: read() brings it without its chunk.
  REQUIRE(seen_at(2 * kChunk + 2000, 1000).empty());
  REQUIRE(seen_at(kChunk - 10, 20).empty());
  REQUIRE(seen_at(3 * kChunk + 90, 20).empty());
  REQUIRE(seen_at(4 * kChunk, 20).empty());
  REQUIRE(seen_at(5 * kChunk, 20).empty());
}

TEST_CASE("what is read ahead is checked before anyone gets it") {
  const bool in_place = GENERATE(false, true);
  Pool pool(2, kArena, Naming::kOff);
  auto one = pool.connect();
  const auto bytes = random_bytes(40 * kChunk, 1);
  auto file = create(*one, "spoiled");
  REQUIRE(file->write(0, bytes).has_value());
  REQUIRE(file->close().has_value());
  constexpr std::size_t kBad = 30;
  REQUIRE(pool.spoil(ByteSpan(bytes).subspan(kBad * kChunk, kChunk)) == 1);
  auto two = pool.connect();
  auto reader = open_reading(*two, "spoiled");
  std::vector<std::byte> out(kChunk);
  for (std::size_t i = 0; i < 40; ++i) {
    CAPTURE(i);
    const ByteSpan expected = ByteSpan(bytes).subspan(i * kChunk, kChunk);
    Status status;
    bool equal = true;
    if (in_place) {
      const auto seen = view(*reader, i * kChunk, kChunk);
      if (!seen.has_value()) status = fail(seen.error());
      equal = !seen.has_value() || std::equal(expected.begin(), expected.end(),
                                              seen->bytes().begin(), seen->bytes().end());
    } else {
      const auto count = reader->read(i * kChunk, out);
      if (!count.has_value()) status = fail(count.error());
      equal = !count.has_value() || std::equal(expected.begin(), expected.end(), out.begin());
    }
    REQUIRE(equal);
    REQUIRE(status.has_value() == (i != kBad));
    if (i == kBad) REQUIRE(status.error().code == Code::kDataLost);
  }
}

TEST_CASE("a copy that does not match is read past, told of, and made again") {
  Pool pool(3, kArena, Naming::kOff);
  Options options;
  options.copies = 2;
  options.close_mode = CloseMode::kRedundant;
  auto one = pool.connect(options);
  const auto bytes = random_bytes(8 * kChunk, 5);
  auto file = create(*one, "copied");
  REQUIRE(file->write(0, bytes).has_value());
  REQUIRE(file->close().has_value());
  const ByteSpan chunk = ByteSpan(bytes).subspan(3 * kChunk, kChunk);
  REQUIRE(pool.find(chunk) == 2);
  // A read uses one copy only, so spoil each in turn.
  bool mended = false;
  for (std::size_t which = 0; which < 2 && !mended; ++which) {
    std::byte* spoiled = nullptr;
    pool.find(chunk, [&](std::size_t number, std::byte* at) {
      if (number == which) *(spoiled = at + 100) ^= std::byte{1};
    });
    REQUIRE(spoiled != nullptr);
    auto two = pool.connect();
    std::vector<std::byte> out(bytes.size());
    REQUIRE(open_reading(*two, "copied")->read(0, out) == bytes.size());
    REQUIRE(out == bytes);
    for (int i = 0; i < 200 && !mended; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      mended = pool.find(chunk) == 2;
    }
    if (!mended) pool.on_reactor([&] { *spoiled ^= std::byte{1}; });
  }
  REQUIRE(mended);
}

TEST_CASE("a transport that cannot move what lies in memory is left out") {
  Pool pool(2, kArena, Naming::kOff);
  pool.first_endpoint_without_memory = true;
  auto one = pool.connect();
  const auto bytes = random_bytes(8 * kChunk, 6);
  auto file = create(*one, "image");
  REQUIRE(file->write(0, bytes).has_value());
  REQUIRE(file->close().has_value());
  std::vector<std::byte> out(bytes.size());
  REQUIRE(open_reading(*one, "image")->read(0, out) == bytes.size());
  REQUIRE(out == bytes);
}

TEST_CASE("threads that write, read and commit one file at once lose nothing") {
  Pool pool(3, kArena, Naming::kOn);
  auto one = pool.connect();
  const auto bytes = random_bytes(4 * limits::kMiB, 10);
  auto file = create(*one, "threads");
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::size_t part = bytes.size() / 4;
      for (std::size_t at = t * part; at < (t + 1) * part; at += 8192) {
        if (!file->write(at, ByteSpan(bytes).subspan(at, 8192)).has_value()) ++failures;
        std::vector<std::byte> out(8192);
        const auto count = file->read(at, out);
        if (!count.has_value() || std::memcmp(out.data(), bytes.data() + at, 8192) != 0) ++failures;
      }
      if (!file->commit().has_value()) ++failures;
    });
  }
  for (auto& thread : threads) thread.join();
  REQUIRE(failures == 0);
  REQUIRE(file->close().has_value());
  REQUIRE(read_all(*one, "threads") == bytes);
}

TEST_CASE("sync makes an image stored but private, and any other file a version") {
  Pool pool(2, kArena, Naming::kOn);
  auto one = pool.connect();
  auto two = pool.connect();
  const auto bytes = random_bytes(200000, 1);
  auto image = create(*one, "app.N2.T3");
  REQUIRE(image->write(0, bytes).has_value());
  REQUIRE(image->sync().has_value());
  REQUIRE(image->figures().bytes_sent >= bytes.size());
  REQUIRE(image->dirty());
  REQUIRE(two->lookup_fresh(kRootFile, "app.N2.T3").error().code == Code::kNotFound);
  auto other = create(*one, "other");
  REQUIRE(other->write(0, bytes).has_value());
  REQUIRE(other->sync().has_value());
  REQUIRE_FALSE(other->dirty());
  REQUIRE(read_all(*two, "other") == bytes);
  REQUIRE(image->close().has_value());
  REQUIRE(other->close().has_value());
  REQUIRE(read_all(*two, "app.N2.T3") == bytes);
  // After reopening by number, the file still counts as an image.
  const auto id = one->resolve("app.N2.T3")->id;
  OpenFlags flags;
  flags.write = true;
  image = std::move(*one->open(id, flags));
  REQUIRE(image->write(0, ByteSpan(bytes).first(100)).has_value());
  REQUIRE(image->sync().has_value());
  REQUIRE(image->dirty());
  REQUIRE(image->close().has_value());
}

TEST_CASE("a sync waits for what was written before it, and not for who goes on writing") {
  const bool content_cuts = GENERATE(false, true);
  Pool pool(2, kArena, content_cuts ? Naming::kOn : Naming::kOff);
  StoppableClock clock;
  Options options;
  options.content_cuts = content_cuts;
  auto one = pool.connect_slowly(options, clock, std::chrono::milliseconds(20));
  auto file = create(*one, "app.N0.T1");
  constexpr std::uint64_t kMost = 3000;  // takes several seconds
  std::atomic<std::uint64_t> written{0};
  std::atomic<bool> synced{false};
  std::thread writer([&] {
    bool good = true;
    while (good && !synced && written < kMost) {
      good = file->write(written % 64 * kChunk, random_bytes(kChunk, written)).has_value();
      ++written;
    }
  });
  while (written < 32) std::this_thread::yield();
  const Status status = file->sync();
  synced = true;
  writer.join();
  CHECK(status.has_value());
  CHECK(written < kMost);
  REQUIRE(file->close().has_value());
}

TEST_CASE("a close leaves to another opener what that one is in the middle of") {
  Pool pool(2, kArena, Naming::kOn);
  auto one = pool.connect();
  const auto bytes = random_bytes(1000, 1);
  auto first = create(*one, "f");
  REQUIRE(first->write(0, bytes).has_value());
  REQUIRE(first->commit().has_value());
  auto flags = writing();
  flags.truncate = true;
  auto second = std::move(*one->open(first->id(), flags));
  REQUIRE_FALSE(first->dirty());
  REQUIRE(second->dirty());
  REQUIRE(first->close().has_value());
  REQUIRE(one->lookup_fresh(kRootFile, "f")->version == 1);
  REQUIRE(second->write(0, bytes).has_value());
  REQUIRE(second->close().has_value());
  REQUIRE(one->lookup_fresh(kRootFile, "f")->version == 2);
  REQUIRE(read_all(*one, "f") == bytes);
}

TEST_CASE("an open that nobody waits for any more leaves no session") {
  Pool pool(1, kArena, Naming::kOff);
  const auto one = pool.connect();
  Engine& engine = dynamic_cast<BlockingFilesystem&>(*one).engine();
  {
    const Lock lock(engine.shared().mutex);
    msg::OpenSession request;
    request.parent = kRootFile;
    request.name = "f";
    (void)engine.open_session(std::move(request));
  }
  // The manager has executed the open before it answers this later request.
  auto file = create(*one, "g");
  REQUIRE(file->close().has_value());
  const auto idle = [&] {
    const Lock lock(engine.shared().mutex);
    return engine.idle();
  };
  for (int i = 0; i < 500 && !idle(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  CHECK(idle());
}

TEST_CASE("equal chunks that lie where nobody answers are stored anew") {
  // The writer knows the places of its chunks; another client asks the manager.
  const bool knows_them = GENERATE(true, false);
  Pool pool(2, kArena, Naming::kOn);
  auto one = pool.connect();
  auto two = pool.connect();
  const auto bytes = random_bytes(8 * kChunk, 1);
  const auto bytes_sent = [&](Filesystem& by, const std::string& name) {
    auto file = create(by, name);
    REQUIRE(file->write(0, bytes).has_value());
    REQUIRE(file->close().has_value());
    return file->figures().bytes_sent;
  };
  REQUIRE(bytes_sent(*one, "app.N0.T1") > 0);
  pool.kill(0);
  Filesystem& writer = knows_them ? *one : *two;
  std::string name;
  // The manager reports the benefactor as silent within seconds.
  for (int i = 2; i < 500 && (i == 2 || bytes_sent(writer, name) == 0); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    name = "app.N0.T" + std::to_string(i);
  }
  CHECK(read_all(writer, name) == bytes);
  CHECK(read_all(*one, "app.N0.T1") == bytes);
  const auto listed = *one->benefactors();
  const auto gone = [](const msg::BenefactorInfo& info) {
    return info.state == msg::BenefactorState::kGone;
  };
  CHECK(std::none_of(listed.begin(), listed.end(), gone));
}

TEST_CASE("what only openers that are gone have written is committed by the last close") {
  Pool pool(2, kArena, Naming::kOn);
  auto one = pool.connect();
  const auto bytes = random_bytes(1000, 1);
  auto first = create(*one, "f");
  REQUIRE(first->write(0, bytes).has_value());
  auto second = std::move(*one->open(first->id(), writing()));
  first.reset();
  REQUIRE(second->dirty());
  REQUIRE(second->close().has_value());
  REQUIRE(read_all(*one, "f") == bytes);
}

TEST_CASE("close=early returns before anything is stored, and the version follows") {
  Pool pool(2, kArena, Naming::kOn);
  StoppableClock clock;
  Options options;
  options.close_mode = CloseMode::kEarly;
  auto one = pool.connect_slowly(options, clock, std::chrono::milliseconds(1));
  auto two = pool.connect();
  const auto bytes = random_bytes(500000, 1);
  const bool by_mount = GENERATE(false, true);
  clock.stop();
  auto file = create(*one, "app.N0.T1");
  REQUIRE(file->write(0, bytes).has_value());
  if (by_mount) {
    // Two descriptors are closed.
    REQUIRE(file->flush().has_value());
    REQUIRE(file->flush().has_value());
  }
  REQUIRE(file->close().has_value());
  file.reset();
  CHECK(two->lookup_fresh(kRootFile, "app.N0.T1").error().code == Code::kNotFound);
  clock.go_on();
  CHECK(read_all(*one, "app.N0.T1") == bytes);
  CHECK(read_all(*two, "app.N0.T1") == bytes);
}

TEST_CASE("an image that is closed early is stored before its client ends") {
  Pool pool(2, kArena, Naming::kOn);
  StoppableClock clock;
  Options options;
  options.close_mode = CloseMode::kEarly;
  auto one = pool.connect_slowly(options, clock, std::chrono::milliseconds(1));
  const auto bytes = random_bytes(500000, 1);
  auto file = create(*one, "app.N0.T1");
  clock.stop();
  REQUIRE(file->write(0, bytes).has_value());
  REQUIRE(file->flush().has_value());
  file.reset();  // as a mount that is unmounted lazily does
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    clock.go_on();
  });
  one.reset();
  later.join();
  CHECK(read_all(*pool.connect(), "app.N0.T1") == bytes);
}

TEST_CASE("what an early close has not kept is told by the next open, once, and to the manager") {
  const bool too_late = GENERATE(false, true);
  const bool released =
      GENERATE(true, false);  // the kernel releases files after close() has returned
  constexpr std::uint64_t kStored = kChunk + limits::kExtentHeaderBytes;
  Pool pool(1, (too_late ? 30 : 14) * kStored + 4096, Naming::kOff);
  StoppableClock clock;
  StoppableClock own;
  Options options;
  options.close_mode = CloseMode::kEarly;
  auto one = pool.connect_slowly(options, clock, std::chrono::milliseconds(1), &own);
  const auto bytes = random_bytes(8 * kChunk, 1);
  auto file = create(*one, "f");
  REQUIRE(file->write(0, bytes).has_value());
  REQUIRE(file->close().has_value());
  REQUIRE(read_all(*one, "f") == bytes);
  file = create(*one, "f", true);
  const FileId id = file->id();
  if (too_late) clock.stop();
  REQUIRE(file->write(0, random_bytes(12 * kChunk, 2)).has_value());
  REQUIRE((released ? file->close() : file->flush()).has_value());
  // Jumps in steps of 1 s: a larger jump could let a request pass its deadline before its answer.
  for (auto left = kEarlyCommit + std::chrono::seconds(1); too_late && left.count() > 0; --left) {
    own.jump(std::chrono::seconds(1));
    REQUIRE(one->stat_pool().has_value());
  }
  const auto opened = one->open(id, reading());
  REQUIRE_FALSE(opened.has_value());
  CHECK(opened.error().code == (too_late ? Code::kDeadline : Code::kNoSpace));
  clock.go_on();
  file.reset();
  CHECK(read_all(*one, "f") == bytes);
  for (int i = 0; i < 500 && one->aborted()->empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  REQUIRE(one->aborted()->size() == 1);
  CHECK(one->aborted()->front().path == "f");
}

TEST_CASE("names, attributes and directories are right through the cache") {
  Pool pool(1, kArena, Naming::kOn);
  auto one = pool.connect();
  auto two = pool.connect();
  const auto directory = one->make_directory(kRootFile, "d", Owner{0755, 1, 2});
  REQUIRE(directory.has_value());
  REQUIRE(two->lookup(directory->id, "x").error().code == Code::kNotFound);
  auto file = std::move(*one->create(directory->id, "x", writing(), Owner{}));
  REQUIRE(file->close().has_value());
  REQUIRE(one->read_directory(directory->id)->size() == 1);
  REQUIRE(two->lookup_fresh(directory->id, "x").has_value());
  msg::Rename rename;
  rename.from_parent = directory->id;
  rename.from_name = "x";
  rename.to_parent = kRootFile;
  rename.to_name = "y";
  REQUIRE(one->rename(rename).has_value());
  REQUIRE(one->lookup(directory->id, "x").error().code == Code::kNotFound);
  REQUIRE(one->resolve("y").has_value());
  REQUIRE(one->remove(kRootFile, "d", true).has_value());
  REQUIRE(one->remove(kRootFile, "y", false).has_value());
  REQUIRE(one->read_directory(kRootFile)->empty());
}

TEST_CASE("who is told that a name is taken finds it at once") {
  Pool pool(1, kArena, Naming::kOn);
  const auto one = pool.connect();
  const auto two = pool.connect();
  for (int i = 0; i < 50; ++i) {
    const std::string name = std::to_string(i);
    const auto make_or_find = [&name](Filesystem& filesystem) {
      return filesystem.make_directory(kRootFile, name, {0755, 0, 0}).has_value() ||
             filesystem.lookup(kRootFile, name).has_value();
    };
    REQUIRE(one->lookup(kRootFile, name).error().code == Code::kNotFound);
    REQUIRE(two->lookup(kRootFile, name).error().code == Code::kNotFound);
    std::future<bool> first;
    std::future<bool> second;
    // Both opens should reach the manager in one turn: their answers then precede the notice.
    pool.on_reactor([&] {
      first = std::async(std::launch::async, [&] { return make_or_find(*one); });
      second = std::async(std::launch::async, [&] { return make_or_find(*two); });
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    });
    CHECK(first.get());
    CHECK(second.get());
  }
}

TEST_CASE("for a lease directories and attributes are known, and what others change is told") {
  Pool pool(1, kArena, Naming::kOn);
  StoppableClock clock;
  auto one = pool.connect({}, &clock);
  auto two = pool.connect();
  const auto directory = two->make_directory(kRootFile, "d", Owner{0755, 1, 2});
  REQUIRE(directory.has_value());
  constexpr std::size_t kFiles = 20;
  for (std::size_t i = 0; i < kFiles; ++i) {
    auto file = two->create(directory->id, "f" + std::to_string(i), writing(), Owner{});
    REQUIRE(file.has_value());
    REQUIRE((*file)->close().has_value());
  }
  const auto look = [&] {
    const auto entries = one->read_directory(directory->id);
    REQUIRE(entries.has_value());
    for (const msg::DirectoryEntry& entry : *entries) {
      REQUIRE(one->attributes(entry.attributes.id).has_value());
      REQUIRE(one->lookup(directory->id, entry.name)->id == entry.attributes.id);
    }
    REQUIRE(one->attributes(directory->id).has_value());
    return entries->size();
  };
  const auto served = [&] { return two->stat_pool()->requests_served; };
  clock.stop();
  REQUIRE(look() == kFiles);
  const std::uint64_t start = served();
  for (int i = 0; i < 100; ++i) REQUIRE(look() == kFiles);
  // The remaining requests are the other client's heartbeats and this test's own.
  REQUIRE(served() - start < 30);

  // While the client's clock stands still, only notices from the manager can change its caches.
  const auto changed = [&](const std::function<bool()>& seen) {
    const Time until = pool.clock.now() + limits::kOperationDeadline;
    while (!seen() && pool.clock.now() < until) std::this_thread::yield();
    return seen();
  };
  auto added = std::move(*two->create(directory->id, "new", writing(), Owner{}));
  REQUIRE(added->close().has_value());
  REQUIRE(changed([&] { return look() == kFiles + 1; }));
  const FileId first = two->lookup(directory->id, "f0")->id;
  auto other = std::move(*two->open(first, writing()));
  REQUIRE(other->write(0, random_bytes(100, 1)).has_value());
  REQUIRE(other->close().has_value());
  REQUIRE(changed([&] { return one->attributes(first)->size_bytes == 100; }));
  REQUIRE(two->remove(directory->id, "f1", false).has_value());
  REQUIRE(changed([&] { return look() == kFiles; }));
  clock.go_on();

  // After its lease the cache asks again, even without a notice.
  clock.jump(limits::kCacheLease);
  const std::uint64_t before = served();
  REQUIRE(look() == kFiles);
  REQUIRE(served() > before + 1);
}

TEST_CASE("attributes say at once that a file has got extended attributes") {
  Pool pool(1, kArena, Naming::kOn);
  StoppableClock clock;
  auto one = pool.connect();
  auto two = pool.connect({}, &clock);
  auto file = create(*one, "f");
  const FileId id = file->attributes().id;
  REQUIRE(file->write(0, random_bytes(100, 1)).has_value());
  SECTION("set while it is written") {
    REQUIRE(one->attributes(id)->has_no_xattrs);
    REQUIRE(one->set_xattr(msg::SetXattr{{}, id, "user.k", "v"}).has_value());
    CHECK_FALSE(one->attributes(id)->has_no_xattrs);
    REQUIRE(file->close().has_value());
    CHECK_FALSE(one->lookup(kRootFile, "f")->has_no_xattrs);
    CHECK_FALSE(two->lookup(kRootFile, "f")->has_no_xattrs);
  }
  SECTION("set by another client") {
    REQUIRE(file->close().has_value());
    // While the clock of `two` stands still, only a notice changes its cache.
    clock.stop();
    REQUIRE(two->lookup(kRootFile, "f")->has_no_xattrs);
    REQUIRE(one->set_xattr(msg::SetXattr{{}, id, "user.k", "v"}).has_value());
    CHECK_FALSE(one->attributes(id)->has_no_xattrs);
    const Time until = pool.clock.now() + limits::kOperationDeadline;
    const auto is_known = [&] { return !two->attributes(id)->has_no_xattrs; };
    while (!is_known() && pool.clock.now() < until) std::this_thread::yield();
    CHECK(is_known());
    clock.go_on();
  }
  SECTION("without a further question") {
    REQUIRE(file->close().has_value());
    constexpr std::uint64_t kRounds = 20;
    std::uint64_t asked = 0;
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      REQUIRE(one->set_xattr(msg::SetXattr{{}, id, "user.k", std::to_string(i)}).has_value());
      const std::uint64_t start = pool.requests_served();
      CHECK_FALSE(one->attributes(id)->has_no_xattrs);
      asked += pool.requests_served() - start;
    }
    // The manager counts heartbeats, too.
    CHECK(asked < kRounds / 2);
  }
}

TEST_CASE("a file that comes and goes costs four calls, and its directory's times are known") {
  Pool pool(1, kArena, Naming::kOn);
  auto one = pool.connect();
  const auto served = [&] { return one->stat_pool()->requests_served; };
  std::int64_t before = one->attributes(kRootFile)->mtime_ns;
  const auto changed = [&] {
    const std::int64_t now = one->attributes(kRootFile)->mtime_ns;
    return std::exchange(before, now) < now;
  };
  constexpr std::uint64_t kFiles = 50;
  const std::uint64_t start = served();
  for (std::uint64_t i = 0; i < kFiles; ++i) {
    const std::string name = "file" + std::to_string(i);
    auto file = std::move(*one->create(kRootFile, name, writing(), Owner{}));
    REQUIRE(file->commit().has_value());
    REQUIRE(changed());
    REQUIRE(file->close().has_value());
    REQUIRE(one->lookup(kRootFile, name)->version == 1);
    REQUIRE(one->remove(kRootFile, name, false).has_value());
    REQUIRE(changed());
    REQUIRE(one->lookup(kRootFile, name).error().code == Code::kNotFound);
  }
  // Per file: open, commit, close, remove, last look-up. A few more are heartbeats and ended
  // leases.
  REQUIRE(served() - start <= 5 * kFiles + 40);
}

TEST_CASE("after a change of names its directory is listed anew, and its attributes are known") {
  Pool pool(1, kArena, Naming::kOn);
  pool.delay_journal(std::chrono::milliseconds(2));
  auto one = pool.connect();
  auto two = pool.connect();
  const auto directory = one->make_directory(kRootFile, "d", Owner{0755, 1, 2});
  REQUIRE(directory.has_value());
  std::int64_t before = one->attributes(kRootFile)->mtime_ns;
  std::uint64_t asked = 0;
  const auto check_times = [&] {
    const std::uint64_t start = two->stat_pool()->requests_served;
    const std::int64_t now = one->attributes(kRootFile)->mtime_ns;
    asked += two->stat_pool()->requests_served - start - 1;
    REQUIRE(std::exchange(before, now) < now);
  };
  constexpr std::uint64_t kNames = 20;
  for (std::uint64_t i = 0; i < kNames; ++i) {
    const std::string name = "name" + std::to_string(i);
    REQUIRE(one->read_directory(kRootFile)->size() == 1);
    REQUIRE(one->make_directory(kRootFile, name, Owner{0755, 1, 2}).has_value());
    check_times();
    REQUIRE(one->read_directory(kRootFile)->size() == 2);
    const msg::Rename change{{}, kRootFile, name, directory->id, name};
    REQUIRE(one->rename(change).has_value());
    check_times();
    REQUIRE(one->attributes(directory->id)->link_count == i + 3);
  }
  // The manager counts heartbeats, too.
  REQUIRE(asked < kNames / 2);
}

TEST_CASE("a file whose name was looked up just before is created by one request") {
  Pool pool(1, kArena, Naming::kOn);
  auto one = pool.connect();
  auto two = pool.connect();
  const auto other = std::move(*one->create(kRootFile, "other", writing(), Owner{}));
  constexpr std::uint64_t kFiles = 20;
  std::uint64_t asked = 0;
  for (std::uint64_t i = 0; i < kFiles; ++i) {
    const std::string name = "file" + std::to_string(i);
    REQUIRE(one->lookup(kRootFile, name).error().code == Code::kNotFound);
    const std::uint64_t start = two->stat_pool()->requests_served;
    const auto file = one->create(kRootFile, name, writing(), Owner{});
    REQUIRE(file.has_value());
    asked += two->stat_pool()->requests_served - start - 1;
    REQUIRE((*file)->close().has_value());
  }
  // The manager counts heartbeats, too.
  REQUIRE(asked < kFiles + kFiles / 2);
}

TEST_CASE("a committed session ends by itself, and at once when its file is opened again") {
  Pool pool(1, kArena, Naming::kOn);
  StoppableClock clock;
  auto one = pool.connect({}, &clock);
  auto file = create(*one, "f");
  REQUIRE(file->write(0, random_bytes(100, 1)).has_value());
  REQUIRE(file->commit().has_value());
  const FileId id = file->id();
  // While the client's clock stands still, no timer ends the session.
  clock.stop();
  REQUIRE(file->close().has_value());
  auto opened = std::async(std::launch::async, [&] { return one->open(id, writing()); });
  const bool was_opened = opened.wait_for(limits::kOperationDeadline) == std::future_status::ready;
  clock.go_on();
  REQUIRE(was_opened);
  auto again = opened.get();
  REQUIRE(again.has_value());
  REQUIRE((*again)->write(0, random_bytes(100, 2)).has_value());
  REQUIRE((*again)->commit().has_value());
  REQUIRE((*again)->close().has_value());
  const Time until = pool.clock.now() + limits::kOperationDeadline;
  const auto count = [&] { return one->figures(limits::kOperationDeadline)->sessions; };
  while (count() > 0 && pool.clock.now() < until) std::this_thread::yield();
  REQUIRE(count() == 0);
}

TEST_CASE("what a client knows of its own commit is taken back at once when another one commits") {
  Pool pool(1, kArena, Naming::kOn);
  auto one = pool.connect();
  auto two = pool.connect();
  auto file = std::move(*one->create(kRootFile, "f", writing(), Owner{}));
  REQUIRE(file->close().has_value());
  const FileId id = one->lookup(kRootFile, "f")->id;
  std::atomic<bool> told = false;
  CacheEvents events;
  events.file_changed = [&](FileId changed) {
    if (changed == id) told = true;
  };
  one->set_cache_events(std::move(events));
  auto other = std::move(*two->open(id, writing()));
  const std::vector<std::byte> bytes = random_bytes(100, 1);
  REQUIRE(other->write(0, bytes).has_value());
  REQUIRE(other->close().has_value());
  // A notice from the manager must arrive; on a busy machine the cache's lease may end first.
  const Time until = pool.clock.now() + limits::kOperationDeadline;
  while (!told && pool.clock.now() < until) std::this_thread::yield();
  REQUIRE(told);
  REQUIRE(one->attributes(id)->size_bytes == 100);
  REQUIRE(one->lookup(kRootFile, "f")->version == 2);
}

TEST_CASE("a directory that is gone through name by name is asked for in pages") {
  Pool pool(1, kArena, Naming::kOn);
  auto one = pool.connect();
  auto two = pool.connect();
  constexpr int kNames = 200;
  const auto name = [](int i) { return "d" + std::to_string(1000 + i); };
  for (int i = 0; i < kNames; ++i) {
    REQUIRE(one->make_directory(kRootFile, name(i), Owner{0755, 1, 2}).has_value());
  }
  const std::uint64_t start = two->stat_pool()->requests_served;
  for (int i = 0; i < kNames; ++i) {
    REQUIRE(two->lookup(kRootFile, name(i))->type == FileType::kDirectory);
    // While the page is in flight, the client looks up each name.
    if (i == 2 * static_cast<int>(LookAhead::kMissesFirst)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  REQUIRE(two->stat_pool()->requests_served - start <= kNames / 2);
  // A notice must replace the page's outdated entry.
  REQUIRE(one->remove(kRootFile, name(kNames - 1), true).has_value());
  for (int i = 0; i < 100 && two->lookup(kRootFile, name(kNames - 1)).has_value(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  REQUIRE(two->lookup(kRootFile, name(kNames - 1)).error().code == Code::kNotFound);
}

}  // namespace
}  // namespace stdchk::client::test
