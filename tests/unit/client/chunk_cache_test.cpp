#include "client/read/chunk_cache.h"

#include <vector>

#include "tests/support/catch.h"

namespace stdchk::client::test {
namespace {

constexpr std::uint32_t kBuffer = 1000;

CacheKey key(std::uint64_t number, std::uint32_t length = kBuffer) {
  return {1, number * kBuffer, 0, length, 0};
}

class Cache {
 public:
  /// Adds a chunk as a fetch leaves it: cached, without a pin.
  CachedChunk& add(std::uint64_t number, std::uint32_t length = kBuffer) {
    CachedChunk* const chunk = cache.add(key(number, length));
    REQUIRE(chunk != nullptr);
    cache.unpin(*chunk);
    return *chunk;
  }
  bool has(std::uint64_t number, std::uint32_t length = kBuffer) {
    return cache.find(key(number, length)) != nullptr;
  }

 private:
  std::vector<std::byte> memory_ = std::vector<std::byte>(std::size_t{4} * kBuffer);

 public:
  std::vector<std::uint64_t> erased;
  ChunkCache cache{memory_, kBuffer,
                   [this](const CacheKey& gone) { erased.push_back(gone.offset / kBuffer); }};
};

TEST_CASE("a full cache throws out what was not used for longest") {
  Cache it;
  for (std::uint64_t i = 0; i < 4; ++i) it.add(i);
  it.cache.touch(*it.cache.find(key(0)));
  it.add(4);
  CHECK(it.erased == std::vector<std::uint64_t>{1});
  SECTION("but nothing that is pinned") {
    for (const std::uint64_t i : {2U, 3U, 0U}) ++it.cache.find(key(i))->pins;
    it.add(5);
    CHECK(it.erased == std::vector<std::uint64_t>{1, 4});
    ++it.cache.find(key(5))->pins;
    CHECK(it.cache.add(key(6)) == nullptr);
  }
  SECTION("a longer one takes buffers side by side") {
    it.add(9, 2 * kBuffer + 1);
    CHECK(it.erased.size() == 4);
    CHECK(it.has(9, 2 * kBuffer + 1));
  }
}

TEST_CASE("what was read to its end goes first, the last one before the others") {
  Cache it;
  for (std::uint64_t i = 0; i < 4; ++i) it.add(i);
  CachedChunk& read = *it.cache.find(key(2));
  const std::byte* const warm = read.data;
  it.cache.count_read(*it.cache.find(key(3)), kBuffer);
  it.cache.count_read(read, kBuffer);
  CHECK(it.add(4).data == warm);
  CHECK(it.erased == std::vector<std::uint64_t>{2});
  it.add(5);
  it.add(6);
  CHECK(it.erased == std::vector<std::uint64_t>{2, 3, 0});
}

TEST_CASE("a chunk of which parts were read stays, whichever they are") {
  Cache it;
  for (std::uint64_t i = 0; i < 4; ++i) it.add(i);
  CachedChunk& part = *it.cache.find(key(3));
  it.cache.count_read(part, 600);
  it.add(4);
  it.add(5);
  CHECK(it.has(3));
  it.cache.count_read(part, 400);
  it.add(6);
  CHECK_FALSE(it.has(3));
}

TEST_CASE("a chunk that is read again and again goes first after each time") {
  Cache it;
  CachedChunk& chunk = it.add(0);
  for (std::uint64_t i = 1; i < 4; ++i) it.add(i);
  it.cache.count_read(chunk, kBuffer);
  it.cache.touch(chunk);
  it.cache.count_read(chunk, 1);  // a second reader has begun
  it.add(4);
  CHECK(it.has(0));
  it.cache.count_read(chunk, kBuffer - 1);
  it.add(5);
  CHECK_FALSE(it.has(0));
}

}  // namespace
}  // namespace stdchk::client::test
