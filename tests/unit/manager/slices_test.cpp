#include "manager/state/slices.h"

#include "core/base/clock.h"
#include "core/base/limits.h"
#include "tests/support/catch.h"

namespace {

using namespace stdchk::manager;

/// The content of each byte of a file: (chunk, offset in it), or a hole.
using Bytes = std::vector<std::pair<ChunkIndex, std::uint32_t>>;

void paint(Bytes& bytes, const PackedSlices& slices) {
  for (const PackedSlice& slice : slices) {
    for (std::uint32_t i = 0; i < slice.length; ++i) {
      bytes[slice.file_offset + i] = {slice.chunk, slice.chunk_offset + i};
    }
  }
}

PackedSlices random_slices(stdchk::Prng& prng, ChunkIndex& next_chunk, std::uint64_t size) {
  PackedSlices out;
  std::uint64_t at = prng.below(5);
  while (at < size) {
    const auto length = static_cast<std::uint32_t>(1 + prng.below(9));
    if (at + length > size) break;
    out.push_back({at, length, static_cast<std::uint32_t>(prng.below(4)), next_chunk++});
    at += length + (prng.chance(1, 2) ? 0 : prng.below(6));
  }
  return out;
}

}  // namespace

TEST_CASE("an overlay shows at every byte what painting one over the other shows") {
  stdchk::Prng prng(3);
  for (int round = 0; round < 3000; ++round) {
    ChunkIndex next = 0;
    const PackedSlices base = random_slices(prng, next, 60);
    const PackedSlices top = random_slices(prng, next, 60);
    Bytes expected(64, {kNoChunk, 0});
    paint(expected, base);
    paint(expected, top);
    const PackedSlices both = overlay(base, top);
    REQUIRE(well_formed(both));
    Bytes seen(64, {kNoChunk, 0});
    paint(seen, both);
    REQUIRE(seen == expected);
    const std::uint64_t size = prng.below(64);
    for (std::size_t i = size; i < 64; ++i) expected[i] = {kNoChunk, 0};
    Bytes short_seen(64, {kNoChunk, 0});
    const PackedSlices shorter = cut(both, size);
    REQUIRE(well_formed(shorter));
    paint(short_seen, shorter);
    REQUIRE(short_seen == expected);
  }
}

TEST_CASE("slices that overlap, are empty or overflow are not well formed") {
  CHECK(well_formed({{0, 4, 0, 1}, {4, 4, 0, 2}}));
  CHECK_FALSE(well_formed({{0, 5, 0, 1}, {4, 4, 0, 2}}));
  CHECK_FALSE(well_formed({{8, 4, 0, 1}, {0, 4, 0, 2}}));
  CHECK_FALSE(well_formed({{0, 0, 0, 1}}));
  CHECK_FALSE(well_formed({{~std::uint64_t{0} - 2, 4, 0, 1}}));
}

TEST_CASE("without holes, each byte outside of them is as before") {
  stdchk::Prng prng(5);
  for (int round = 0; round < 3000; ++round) {
    ChunkIndex next = 0;
    const PackedSlices base = random_slices(prng, next, 60);
    std::vector<stdchk::Hole> holes;
    for (std::uint64_t at = prng.below(20); at < 60; at += prng.below(20)) {
      const std::uint64_t length = 1 + prng.below(15);
      holes.push_back({at, length});
      at += length;
    }
    REQUIRE(well_formed(holes));
    Bytes expected(100, {kNoChunk, 0});
    paint(expected, base);
    for (const stdchk::Hole& hole : holes) {
      std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(hole.offset), hole.length,
                  std::pair{kNoChunk, std::uint32_t{0}});
    }
    const PackedSlices left = without(base, holes);
    REQUIRE(well_formed(left));
    Bytes bytes(100, {kNoChunk, 0});
    paint(bytes, left);
    REQUIRE(bytes == expected);
  }
}

TEST_CASE("holes must ascend, and end below the largest size of a file") {
  using Holes = std::vector<stdchk::Hole>;
  constexpr std::uint64_t kMax = stdchk::limits::kFileBytesMax;
  CHECK(well_formed(Holes{}));
  CHECK(well_formed(Holes{{0, 5}, {5, 5}, {kMax - 1, 1}}));
  CHECK_FALSE(well_formed(Holes{{0, 0}}));
  CHECK_FALSE(well_formed(Holes{{0, 6}, {5, 5}}));
  CHECK_FALSE(well_formed(Holes{{kMax, 1}}));
  CHECK_FALSE(well_formed(Holes{{1, ~std::uint64_t{0}}}));
}
