// Short reads of a reader that jumps: only the parts that a read touches move, and each is checked.
#include <algorithm>
#include <cstring>

#include "client/read/part_crcs.h"
#include "core/chunk/naming.h"
#include "tests/unit/client/pool.h"

namespace stdchk::client::test {
namespace {

constexpr std::uint64_t kArena = 64 << 20;
constexpr std::uint32_t kLong = limits::kMiB;
constexpr std::size_t kBlock = 4096;
constexpr std::size_t kChunks = 8;

/// A file of chunks of 1 MiB, whose first chunk is in the cache of nobody.
struct Image {
  explicit Image(Pool& pool, std::uint32_t copies = 0) {
    Options options;
    options.chunk_bytes = kLong;
    options.window_bytes = 8 * kLong;
    options.copies = copies;
    if (copies != 0) options.close_mode = CloseMode::kRedundant;
    auto one = pool.connect(options);
    auto file = one->create(kRootFile, "image", writing(), Owner{});
    REQUIRE(file.has_value());
    REQUIRE((*file)->write(0, bytes).has_value());
    REQUIRE((*file)->close().has_value());
    options.copies = 0;
    client = pool.connect(options);
    const auto attributes = client->lookup_fresh(kRootFile, "image");
    REQUIRE(attributes.has_value());
    id = attributes->id;
    version = attributes->version;
    auto opened = client->open(id, reading());
    REQUIRE(opened.has_value());
    reader = std::move(*opened);
  }
  Result<std::size_t> read(std::uint64_t offset) { return reader->read(offset, out); }
  bool right(std::uint64_t offset) {
    const auto count = read(offset);
    return count.has_value() && *count == kBlock &&
           std::memcmp(out.data(), bytes.data() + offset, kBlock) == 0;
  }
  std::uint64_t moved() {
    const auto figures = client->figures(std::chrono::seconds(5));
    REQUIRE(figures.has_value());
    std::uint64_t all = 0;
    for (const auto& [name, of] : figures->transports) all += of.read_bytes;
    return all;
  }

  const std::vector<std::byte> bytes = random_bytes(kChunks * kLong, 3);
  std::vector<std::byte> out = std::vector<std::byte>(kBlock);
  std::unique_ptr<Filesystem> client;
  std::unique_ptr<File> reader;
  FileId id;
  Version version = 0;
};

/// Reads one block of chunks 2, 4, 6, 0, 3, 5, 7, 1: each read is a jump.
void visit(Image& image, std::size_t from, std::size_t to, std::uint64_t within) {
  for (std::size_t i = from; i < to; ++i) {
    const std::size_t chunk = (i * 2 + 2) % kChunks + (i * 2) / kChunks % 2;
    CAPTURE(chunk);
    REQUIRE(image.right(chunk * kLong + within));
  }
}

/// Reads more than half of each chunk of another file, so that the cache forgets the image.
void forget(Pool& pool, Image& image) {
  Options options;
  options.chunk_bytes = kLong;
  auto one = pool.connect(options);
  const auto bytes = random_bytes(24 * kLong, 9);
  auto file = one->create(kRootFile, "other", writing(), Owner{});
  REQUIRE(file.has_value());
  REQUIRE((*file)->write(0, bytes).has_value());
  REQUIRE((*file)->close().has_value());
  const auto attributes = image.client->lookup_fresh(kRootFile, "other");
  REQUIRE(attributes.has_value());
  auto reader = image.client->open(attributes->id, reading());
  REQUIRE(reader.has_value());
  std::vector<std::byte> out(kLong / 2 + 1);
  for (std::size_t at = 0; at < bytes.size(); at += kLong) {
    REQUIRE((*reader)->read(at, out) == out.size());
  }
}

}  // namespace

TEST_CASE("the joined CRCs of the parts are the CRC of the whole") {
  const auto bytes = random_bytes(5 * PartCrcs::kPartBytes + 777, 1);
  const PartCrcList parts = PartCrcs::compute(bytes);
  REQUIRE(parts.size() == 6);
  REQUIRE(PartCrcs::joined(parts, bytes.size()) == crc32c(0, bytes));
}

TEST_CASE("known parts take no more memory than their limit") {
  PartCrcs known;
  constexpr std::uint32_t kLength = 64 * PartCrcs::kPartBytes;
  const CacheKey first{1, 0, 0, kLength, 7};
  for (std::uint64_t i = 0; i < 100000; ++i) {
    known.insert({1, i * kLength, 0, kLength, 7}, PartCrcList(64, 1));
    REQUIRE(known.bytes() <= PartCrcs::kBytesMax);
  }
  REQUIRE(known.find(first) == nullptr);
  REQUIRE(known.find({1, std::uint64_t{99999} * kLength, 0, kLength, 7}) != nullptr);
}

TEST_CASE("after the first read of a chunk a short read moves only its parts") {
  Pool pool(2, kArena, Naming::kOff);
  Image image(pool);
  visit(image, 0, kChunks, 100);
  forget(pool, image);
  const std::uint64_t before = image.moved();
  visit(image, 0, kChunks, 5 * kBlock + 100);  // within one part
  REQUIRE(image.moved() - before == kChunks * PartCrcs::kPartBytes);
  visit(image, 0, kChunks, 9 * PartCrcs::kPartBytes - 50);  // parts 8 and 9
  REQUIRE(image.moved() - before == 3 * kChunks * PartCrcs::kPartBytes);
}

TEST_CASE("a part that is damaged after its chunk was checked is never given out") {
  const bool has_copy = GENERATE(false, true);
  Pool pool(2, kArena, Naming::kOff);
  Image image(pool, has_copy ? 2 : 0);
  visit(image, 0, kChunks, 100);
  forget(pool, image);
  const ByteSpan chunk = ByteSpan(image.bytes).subspan(3 * kLong, kLong);
  const std::size_t copies = pool.find(chunk, [](std::size_t number, std::byte* at) {
    if (number == 0) at[kBlock] ^= std::byte{1};
  });
  REQUIRE(copies == (has_copy ? 2 : 1));
  if (has_copy) {
    REQUIRE(image.right(3 * kLong + kBlock));
  } else {
    const auto got = image.read(3 * kLong + kBlock);
    REQUIRE(!got.has_value());
    REQUIRE(got.error().code == Code::kDataLost);
  }
  REQUIRE(image.right(5 * kLong));
}

TEST_CASE("a reader that stays in one chunk gets it whole after some parts") {
  Pool pool(2, kArena, Naming::kOff);
  Image image(pool);
  visit(image, 0, kChunks, 100);
  forget(pool, image);
  auto another = image.client->open(image.id, reading());
  REQUIRE(another.has_value());
  const std::uint64_t before = image.moved();
  // Two readers, each of which reads one chunk in sequence, look like one that jumps.
  for (std::size_t i = 0; i < kLong / kBlock; ++i) {
    REQUIRE(image.right(6 * kLong + i * kBlock));
    REQUIRE(image.right(1 * kLong + i * kBlock));
  }
  REQUIRE(image.moved() - before < 8 * kLong);
}

TEST_CASE("an old version stays readable while it is open") {
  Pool pool(2, kArena, Naming::kOff);
  Image image(pool);
  auto old = image.client->open_version(image.id, image.version);
  REQUIRE(old.has_value());
  auto writer = pool.connect();
  auto file = writer->open(image.id, writing());
  REQUIRE(file.has_value());
  REQUIRE((*file)->write(0, random_bytes(kLong, 77)).has_value());
  REQUIRE((*file)->close().has_value());
  std::vector<std::byte> out(image.bytes.size());
  REQUIRE((*old)->read(0, out) == out.size());
  REQUIRE(out == image.bytes);
  REQUIRE((*old)->close().has_value());
  const auto none = image.client->open_version(image.id, image.version + 100);
  REQUIRE(!none.has_value());
}

}  // namespace stdchk::client::test
