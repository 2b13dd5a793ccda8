#include "client/read/packed_map.h"

#include <algorithm>

#include "core/base/clock.h"
#include "core/base/limits.h"
#include "tests/support/catch.h"

namespace stdchk::client {
namespace {

constexpr std::uint32_t kMany = 100'000;

ChunkName name_of(std::uint64_t number) {
  Prng prng(number);
  ChunkName name;
  for (std::byte& byte : name.bytes) byte = static_cast<std::byte>(prng.below(256));
  return name;
}

Chunk chunk_of(std::uint64_t number, std::uint32_t length, std::size_t copies = 1) {
  Chunk chunk{name_of(number), length, static_cast<std::uint32_t>(number * 77), {}};
  for (std::size_t i = 0; i < copies; ++i) {
    chunk.copies.push_back({BenefactorId{1 + (number + i) % 50}, number * 4096 + i * 64});
  }
  return chunk;
}

/// Slices [first, first + count) of an image whose chunks are contiguous.
ChunkMap page_of(std::uint64_t first, std::uint32_t count, std::size_t copies = 1) {
  ChunkMap page;
  for (std::uint32_t i = 0; i < count; ++i) {
    page.chunks.push_back(chunk_of(first + i, limits::kMiB, copies));
    page.slices.push_back({(first + i) * limits::kMiB, limits::kMiB, 0, i});
  }
  return page;
}

/// Makes random slices after `end`: with holes, with parts of chunks, with chunks of several
/// slices.
ChunkMap random_page(Prng& prng, std::uint64_t& end, std::uint64_t& number) {
  ChunkMap page;
  const bool whole = prng.below(3) == 0;
  const bool one_copy = prng.below(3) == 0;
  for (std::uint64_t left = 1 + prng.below(200); left > 0; --left) {
    const auto length = static_cast<std::uint32_t>(1 + prng.below(limits::kChunkBytesMax));
    if (whole || page.chunks.empty() || prng.below(4) > 0) {
      page.chunks.push_back(chunk_of(++number, length, one_copy ? 1 : prng.below(4)));
    }
    const auto chunk =
        static_cast<std::uint32_t>(whole ? page.chunks.size() - 1 : prng.below(page.chunks.size()));
    Slice slice{end, page.chunks[chunk].length, 0, chunk};
    if (!whole && prng.below(2) == 0) {
      slice.file_offset += prng.below(3) * 1000;
      slice.chunk_offset = static_cast<std::uint32_t>(prng.below(slice.length));
      slice.length -= slice.chunk_offset;
    }
    end = slice.file_offset + slice.length;
    page.slices.push_back(slice);
  }
  return page;
}

void append(ChunkMap& all, const ChunkMap& page) {
  const auto chunks = static_cast<std::uint32_t>(all.chunks.size());
  all.chunks.insert(all.chunks.end(), page.chunks.begin(), page.chunks.end());
  for (Slice slice : page.slices) {
    slice.chunk += chunks;
    all.slices.push_back(slice);
  }
}

}  // namespace

TEST_CASE("a packed map answers what it was given") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Prng prng(seed);
    PackedMap map;
    ChunkMap all;
    std::uint64_t end = prng.below(5000);
    std::uint64_t number = 0;
    for (std::uint64_t pages = prng.below(6); pages > 0; --pages) {
      const ChunkMap page = random_page(prng, end, number);
      REQUIRE(map.add(page).has_value());
      append(all, page);
    }
    CHECK(map.unpacked() == all);
    REQUIRE(map.slice_count() == all.slices.size());
    REQUIRE(map.chunk_count() == all.chunks.size());
    CHECK(map.end() == (all.slices.empty() ? 0 : end));
    for (std::size_t i = 0; i < all.chunks.size(); ++i) {
      CHECK(map.chunk(i) == all.chunks[i]);
      CHECK(map.name(i) == all.chunks[i].name);
      CHECK(map.has_copies(i) == !all.chunks[i].copies.empty());
    }
    for (std::size_t i = 0; i < all.slices.size(); ++i) {
      const PackedMap::Entry entry = map.slice(i);
      const Slice& slice = all.slices[i];
      CHECK(entry.file_offset == slice.file_offset);
      CHECK(entry.length == slice.length);
      CHECK(entry.chunk_offset == slice.chunk_offset);
      CHECK(entry.chunk == all.chunks[slice.chunk]);
      CHECK(map.find(slice.file_offset) == i);
      CHECK(map.find(slice.file_offset + slice.length - 1) == i);
      if (slice.file_offset == 0) continue;
      const auto before = std::find_if(all.slices.begin(), all.slices.end(), [&](const Slice& s) {
        return s.file_offset + s.length > slice.file_offset - 1;
      });
      CHECK(map.find(slice.file_offset - 1) ==
            static_cast<std::size_t>(before - all.slices.begin()));
    }
    CHECK(map.find(end) == map.slice_count());
  }
}

TEST_CASE("a chunk takes at most 48 bytes of a packed map") {
  const auto bytes_a_chunk = [](std::size_t copies) {
    PackedMap map;
    constexpr auto kPage = static_cast<std::uint32_t>(limits::kMapPageSlicesMax);
    for (std::uint64_t first = 0; first < kMany; first += kPage) {
      REQUIRE(map.add(page_of(first, kPage, copies)).has_value());
    }
    return static_cast<double>(map.memory_bytes()) / static_cast<double>(map.chunk_count());
  };
  CHECK(bytes_a_chunk(1) <= 48);
  CHECK(bytes_a_chunk(2) <= 48 + 7 + 4);
}

TEST_CASE("a page that cannot be is refused, and the map stays as it was") {
  PackedMap map;
  REQUIRE(map.add(page_of(1, 3)).has_value());
  const ChunkMap before = map.unpacked();
  ChunkMap page = page_of(4, 3);
  SECTION("not behind what is there") { page = page_of(3, 3); }
  SECTION("slices that overlap") { page.slices[1].file_offset -= 1; }
  SECTION("an empty slice") { page.slices[1].length = 0; }
  SECTION("a chunk that is not in it") { page.slices[2].chunk = 3; }
  SECTION("an empty chunk") { page.chunks[1].length = 0; }
  SECTION("a chunk that is too long") { page.chunks[1].length = limits::kChunkBytesMax + 1; }
  SECTION("an extent between two steps") { page.chunks[1].copies[0].offset += 1; }
  SECTION("an extent behind all arenas") {
    page.chunks[1].copies[0].offset = std::uint64_t{limits::kExtentAlignment} << 40;
  }
  const Status added = map.add(page);
  REQUIRE_FALSE(added.has_value());
  CHECK(added.error().code == Code::kMalformed);
  CHECK(map.unpacked() == before);
  CHECK(map.add(page_of(4, 3)).has_value());
}

TEST_CASE("chunks are found by their names, where these follow from their content") {
  PackedMap map;
  for (std::uint64_t first = 0; first < 5000; first += 500) {
    REQUIRE(map.add(page_of(first, 500)).has_value());
  }
  KnownChunks known;
  CHECK_FALSE(known.find(name_of(1)).has_value());
  known.add(map);
  CHECK(known.named_all());
  for (std::uint64_t i = 0; i < 5000; ++i) CHECK(known.find(name_of(i)) == map.chunk(i));
  CHECK_FALSE(known.find(name_of(5000)).has_value());

  ChunkMap others = page_of(5000, 4);
  others.chunks[0].copies.clear();
  others.chunks[1].name = name_of(7);
  REQUIRE(map.add(others).has_value());
  known.add(map);
  CHECK(known.named_all());
  CHECK_FALSE(known.find(name_of(5000)).has_value());
  CHECK(known.find(name_of(7)) == map.chunk(7));
  ChunkMap unnamed = page_of(5004, 1);
  unnamed.chunks[0].name = {};
  REQUIRE(map.add(unnamed).has_value());
  known.add(map);
  CHECK_FALSE(known.named_all());
  CHECK_FALSE(known.find({}).has_value());
  CHECK(known.find(name_of(5003)).has_value());
  known.clear();
  CHECK_FALSE(known.find(name_of(1)).has_value());
}

}  // namespace stdchk::client
