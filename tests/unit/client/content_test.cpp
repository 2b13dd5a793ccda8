// Tests content-defined chunks from write() to the chunk map, with a real manager and real
// benefactors.
#include <chrono>
#include <cstring>
#include <set>

#include "core/chunk/chunker.h"
#include "tests/unit/client/pool.h"

namespace stdchk::client::test {
namespace {

using namespace std::chrono_literals;
constexpr std::uint64_t kArena = 64 * limits::kMiB;

Options content() {
  Options options;
  options.content_cuts = true;
  return options;
}

std::unique_ptr<File> create(Filesystem& filesystem, const std::string& name) {
  auto file = filesystem.create(kRootFile, name, writing(), Owner{});
  REQUIRE(file.has_value());
  return std::move(*file);
}

SessionFigures write_image(Filesystem& filesystem, const std::string& name, ByteSpan bytes,
                           std::size_t step) {
  auto file = create(filesystem, name);
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    const ByteSpan part = bytes.subspan(at, std::min(step, bytes.size() - at));
    REQUIRE(file->write(at, part).has_value());
  }
  REQUIRE(file->close().has_value());
  return file->figures();
}

/// The ends of a file's chunks, by file offset.
std::vector<std::uint64_t> ends_of(Filesystem& filesystem, const std::string& name) {
  const auto attributes = filesystem.lookup_fresh(kRootFile, name);
  REQUIRE(attributes.has_value());
  const auto found = filesystem.map(attributes->id);
  REQUIRE(found.has_value());
  std::vector<std::uint64_t> ends;
  for (const Slice& slice : found->second.slices) {
    // A chunk that lay in two slots is one slice that covers it whole.
    CHECK(slice.length == found->second.chunks[slice.chunk].length);
    ends.push_back(slice.file_offset + slice.length);
  }
  return ends;
}

std::vector<std::uint64_t> expected_ends(ByteSpan bytes) {
  Chunker chunker(ChunkSizes::around(kChunk / 4));
  std::vector<std::uint64_t> ends;
  chunker.push(bytes, ends);
  if (chunker.chunk_start() < bytes.size()) ends.push_back(bytes.size());
  return ends;
}

}  // namespace

TEST_CASE("an image is cut where its content says, however it was written") {
  Pool pool(3, kArena, Naming::kOn);
  auto one = pool.connect(content());
  const auto bytes = random_bytes(3 * limits::kMiB + 777, 1);
  const auto expected = expected_ends(bytes);
  int number = 0;
  for (const std::size_t step :
       {std::size_t{1000}, std::size_t{kChunk}, std::size_t{300001}, bytes.size()}) {
    const std::string name = "f" + std::to_string(++number);
    write_image(*one, name, bytes, step);
    CHECK(ends_of(*one, name) == expected);
    CHECK(read_all(*one, name) == bytes);
  }
}

TEST_CASE("threads that fill a file's parts out of order get the same chunks") {
  Pool pool(2, kArena, Naming::kOn);
  Options options = content();
  options.window_bytes = 64 * kChunk;
  auto one = pool.connect(options);
  const auto bytes = random_bytes(24 * kChunk, 2);
  auto file = create(*one, "image");
  // Writes neighbouring parts in swapped order, as the kernel's write-back does.
  for (std::size_t part = 0; part < 24; part += 2) {
    const auto write = [&](std::size_t from, std::size_t length) {
      REQUIRE(file->write(from, ByteSpan(bytes).subspan(from, length)).has_value());
    };
    write(part * kChunk, kChunk / 2);
    write((part + 1) * kChunk, kChunk);
    write(part * kChunk + kChunk / 2, kChunk / 2);
  }
  REQUIRE(file->close().has_value());
  CHECK(ends_of(*one, "image") == expected_ends(bytes));
  CHECK(read_all(*one, "image") == bytes);
}

TEST_CASE("pieces that come in any order within a megabyte make the same chunks") {
  Pool pool(2, kArena, Naming::kOn);
  Options options = content();
  options.window_bytes = 64 * kChunk;
  StoppableClock clock;
  auto one = pool.connect(options, &clock);
  const auto bytes = random_bytes(3 * limits::kMiB + 777, 30);
  const auto expected = expected_ends(bytes);
  write_image(*one, "app.N0.T0", bytes, kChunk);
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const std::string name = "app.N0.T" + std::to_string(seed);
    auto file = create(*one, name);
    Prng random(seed);
    // The stopped clock delays the writer arbitrarily.
    clock.stop();
    for (std::size_t begin = 0; begin < bytes.size(); begin += limits::kMiB) {
      const std::size_t end = std::min<std::size_t>(begin + limits::kMiB, bytes.size());
      std::vector<std::size_t> pieces;
      for (std::size_t at = begin; at < end; at += 5000) pieces.push_back(at);
      for (std::size_t i = pieces.size(); i > 1; --i) {
        std::swap(pieces[i - 1], pieces[random.below(i)]);
      }
      for (const std::size_t at : pieces) {
        const std::size_t length = std::min<std::size_t>(5000, end - at);
        REQUIRE(file->write(at, ByteSpan(bytes).subspan(at, length)).has_value());
      }
    }
    clock.go_on();
    REQUIRE(file->close().has_value());
    CHECK(file->figures().bytes_sent == 0);
    CHECK(ends_of(*one, name) == expected);
    CHECK(read_all(*one, name) == bytes);
  }
}

TEST_CASE("a part that was written over while it waited for the one before it is not forgotten") {
  Pool pool(2, kArena, Naming::kOn);
  auto one = pool.connect(content());
  const auto bytes = random_bytes(2 * kChunk, 12);
  const auto other = random_bytes(kChunk, 13);
  auto file = create(*one, "image");
  REQUIRE(file->write(0, ByteSpan(bytes).first(100)).has_value());
  REQUIRE(file->write(kChunk, other).has_value());
  REQUIRE(file->write(kChunk, ByteSpan(bytes).subspan(kChunk)).has_value());
  REQUIRE(file->write(100, ByteSpan(bytes).subspan(100, kChunk - 100)).has_value());
  REQUIRE(file->close().has_value());
  CHECK(read_all(*one, "image") == bytes);
}

TEST_CASE("an image that is written again sends nothing, and one with an insertion little") {
  Pool pool(3, kArena, Naming::kOn);
  auto one = pool.connect(content());
  const auto bytes = random_bytes(8 * limits::kMiB, 3);
  const auto first = write_image(*one, "app.N0.T1", bytes, 100000);
  CHECK(first.bytes_sent > bytes.size());
  const auto same = write_image(*one, "app.N0.T2", bytes, 77777);
  CHECK(same.bytes_sent == 0);
  CHECK(same.bytes_existing == bytes.size());
  auto changed = bytes;
  const auto more = random_bytes(100001, 4);
  changed.insert(changed.begin() + 4000000, more.begin(), more.end());
  const auto moved = write_image(*one, "app.N0.T3", changed, 100000);
  CHECK(moved.bytes_sent < more.size() + 4 * kChunk);
  CHECK(read_all(*one, "app.N0.T3") == changed);
  // Another rank with its own mount writes equal content.
  auto two = pool.connect(content());
  const auto other = write_image(*two, "app.N1.T1", bytes, 100000);
  CHECK(other.bytes_sent == 0);
  CHECK(read_all(*two, "app.N1.T1") == bytes);
}

TEST_CASE("what a client has named before is not hashed again, and gets the same name") {
  Pool pool(3, kArena, Naming::kOn);
  Options options;
  options.content_cuts = GENERATE(false, true);
  auto one = pool.connect(options);
  const auto recognised = [&] { return one->figures(1s).value().recognised_bytes; };
  auto bytes = random_bytes(8 * limits::kMiB + 1000, 3);
  write_image(*one, "app.N0.T1", bytes, 100000);
  CHECK(recognised() == 0);
  write_image(*one, "app.N0.T2", bytes, 77777);
  CHECK(recognised() == bytes.size());
  // Flips one bit in a chunk that is otherwise known.
  bytes[4000000] ^= std::byte{16};
  const auto changed = write_image(*one, "app.N1.T1", bytes, 100000);
  CHECK(changed.bytes_sent > 0);
  CHECK(changed.bytes_sent <= 2 * kChunk);
  CHECK(recognised() >= 2 * bytes.size() - 2 * kChunk);
  CHECK(recognised() < 2 * bytes.size());
  CHECK(read_all(*one, "app.N1.T1") == bytes);
  // A client that hashes every byte finds the same names.
  auto two = pool.connect(options);
  CHECK(write_image(*two, "app.N2.T1", bytes, 100000).bytes_sent == 0);
  CHECK(two->figures(1s).value().recognised_bytes == 0);
}

TEST_CASE("chunks of fixed length do not find what an insertion has moved") {
  Pool pool(3, kArena, Naming::kOn);
  Options options;
  options.content_cuts = false;
  auto one = pool.connect(options);
  auto bytes = random_bytes(8 * limits::kMiB, 3);
  write_image(*one, "app.N0.T1", bytes, 100000);
  bytes.insert(bytes.begin() + 4000000, std::byte{1});
  CHECK(write_image(*one, "app.N0.T2", bytes, 100000).bytes_sent > bytes.size() / 3);
}

TEST_CASE("what the previous version has is found without a message") {
  Pool pool(2, kArena, Naming::kOn);
  auto one = pool.connect(content());
  const auto bytes = random_bytes(16 * limits::kMiB, 5);
  write_image(*one, "app.N0.T1", bytes, 100000);
  auto file = create(*one, "app.N0.T2");
  // The open requests the previous version's map; after these calls it has arrived.
  REQUIRE(file->write(0, ByteSpan(bytes).first(100)).has_value());
  REQUIRE(file->sync().has_value());
  for (int i = 0; i < 200; ++i) {
    REQUIRE(file->write(0, ByteSpan(bytes).first(1)).has_value());
    REQUIRE(file->sync().has_value());
  }
  const std::uint64_t before = file->figures().manager_calls;
  REQUIRE(file->write(0, bytes).has_value());
  REQUIRE(file->sync().has_value());
  CHECK(file->figures().bytes_existing >= bytes.size());
  CHECK(file->figures().manager_calls <= before + 2);
  REQUIRE(file->close().has_value());
}

TEST_CASE("in a pool that names nothing a mount, or a folder, may ask how chunks are cut") {
  constexpr std::uint64_t kImage = 80 * limits::kMiB;
  static_assert(kImage > SeriesNaming::kJudgedBytes);
  const bool by_folder = GENERATE(false, true);
  const bool by_content = GENERATE(false, true);
  CAPTURE(by_folder, by_content);
  Pool pool(2, 3 * kImage, Naming::kOff);
  Options options;
  if (!by_folder) options.content_cuts = by_content;
  auto one = pool.connect(options);
  if (by_folder) {
    const auto chunking = by_content ? Chunking::kContent : Chunking::kFixed;
    const Policy policy{{{PolicyKey::kChunking, static_cast<std::uint64_t>(chunking)}}};
    REQUIRE(one->set_policy(kRootFile, policy).has_value());
  }
  auto bytes = random_bytes(kImage, 1);
  CHECK(write_image(*one, "app.N0.T1", bytes, limits::kMiB).bytes_named == kImage);
  bytes.insert(bytes.begin(), std::byte{1});
  const auto shifted = write_image(*one, "app.N0.T2", bytes, limits::kMiB);
  CHECK((shifted.bytes_existing > kImage / 2) == by_content);
  // Chunks of the previous image need no message to the manager.
  if (by_content) CHECK(shifted.manager_calls < 25);
  CHECK(read_all(*one, "app.N0.T2") == bytes);
  // Naming stops when it does not pay, as with other cuts.
  for (std::uint64_t i = 3; i < 5; ++i) {
    const std::string name = "app.N0.T" + std::to_string(i);
    write_image(*one, name, random_bytes(kImage, i), limits::kMiB);
    REQUIRE(one->remove(kRootFile, "app.N0.T" + std::to_string(i - 2), false).has_value());
  }
  CHECK(one->lookup_fresh(kRootFile, "app.N0.T4")->naming == NamingState::kDidNotPay);
}

TEST_CASE("a sync in the middle ends a chunk there, and no byte is lost") {
  Pool pool(2, kArena, Naming::kOn);
  auto one = pool.connect(content());
  const auto bytes = random_bytes(limits::kMiB, 6);
  auto file = create(*one, "app.N0.T1");
  const std::size_t at = 500001;
  REQUIRE(file->write(0, ByteSpan(bytes).first(at)).has_value());
  REQUIRE(file->sync().has_value());
  CHECK(file->figures().bytes_sent >= at);
  REQUIRE(file->write(at, ByteSpan(bytes).subspan(at)).has_value());
  REQUIRE(file->close().has_value());
  const auto ends = ends_of(*one, "app.N0.T1");
  CHECK(std::set<std::uint64_t>(ends.begin(), ends.end()).contains(at));
  CHECK(read_all(*one, "app.N0.T1") == bytes);
}

TEST_CASE("more open ends than the window has slots do not stop anyone") {
  Pool pool(2, kArena, Naming::kOn);
  Options options = content();
  options.window_bytes = 4 * kChunk;
  auto one = pool.connect(options);
  constexpr std::size_t kFiles = 12;
  std::vector<std::unique_ptr<File>> files;
  std::vector<std::vector<std::byte>> bytes;
  for (std::size_t i = 0; i < kFiles; ++i) {
    files.push_back(create(*one, "f" + std::to_string(i)));
    bytes.push_back(random_bytes(5 * kChunk, 20 + i));
  }
  for (std::size_t part = 0; part < 5; ++part) {
    for (std::size_t i = 0; i < kFiles; ++i) {
      REQUIRE(files[i]
                  ->write(part * kChunk, ByteSpan(bytes[i]).subspan(part * kChunk, kChunk))
                  .has_value());
    }
  }
  for (std::size_t i = 0; i < kFiles; ++i) {
    REQUIRE(files[i]->close().has_value());
    CHECK(read_all(*one, "f" + std::to_string(i)) == bytes[i]);
  }
}

TEST_CASE("what was written over or cut off while it waited for more bytes is in no version") {
  Pool pool(2, kArena, Naming::kOn);
  auto one = pool.connect(content());
  auto model = random_bytes(3 * kChunk, 7);
  auto file = create(*one, "f");
  REQUIRE(file->write(0, model).has_value());
  const auto other = random_bytes(kChunk, 8);
  REQUIRE(file->write(2 * kChunk - 100, ByteSpan(other).first(200)).has_value());
  std::memcpy(model.data() + 2 * kChunk - 100, other.data(), 200);
  REQUIRE(file->truncate(2 * kChunk + 50).has_value());
  model.resize(2 * kChunk + 50);
  REQUIRE(file->write(2 * kChunk + 50, ByteSpan(other).first(5000)).has_value());
  model.insert(model.end(), other.begin(), other.begin() + 5000);
  std::vector<std::byte> back(model.size());
  REQUIRE(file->read(0, back).has_value());
  CHECK(back == model);
  REQUIRE(file->close().has_value());
  CHECK(read_all(*one, "f") == model);
}

}  // namespace stdchk::client::test
