#include "manager/space/free_space.h"

#include "core/base/clock.h"
#include "tests/support/catch.h"

using stdchk::manager::FreeSpace;
using stdchk::manager::Range;

TEST_CASE("freed neighbours become one range again") {
  FreeSpace space(1024);
  const auto a = space.take(64, 64);
  const auto b = space.take(128, 64);
  const auto c = space.take(64, 64);
  REQUIRE((a && b && c));
  CHECK(space.free_bytes() == 768);
  REQUIRE(space.release(*a));
  REQUIRE(space.release(*c));
  REQUIRE(space.release(*b));
  CHECK(space.largest() == 1024);
  CHECK(space.ranges().size() == 1);
}

TEST_CASE("giving twice or out of the arena is refused") {
  FreeSpace space(1024);
  CHECK_FALSE(space.release({0, 64}));
  const auto a = space.take(256, 64);
  REQUIRE(a);
  REQUIRE(space.release(*a));
  CHECK_FALSE(space.release(*a));
  CHECK_FALSE(space.release({1024, 64}));
  CHECK_FALSE(space.release({~std::uint64_t{63}, 64}));
  CHECK_FALSE(space.release({1, 64}));
  CHECK(space.free_bytes() == 1024);
}

TEST_CASE("without a range of the wanted size the largest one is taken, if it is worth it") {
  FreeSpace space(1024);
  REQUIRE(space.take_exactly({256, 64}));
  const auto big = space.take(1024, 512);
  REQUIRE(big);
  CHECK(*big == Range{320, 704});
  CHECK_FALSE(space.take(1024, 512));
  CHECK(space.take(1024, 256) == Range{0, 256});
}

TEST_CASE("ranges of one size fit as often as they can be taken") {
  FreeSpace space(1024);
  REQUIRE(space.take_exactly({256, 64}));
  REQUIRE(space.take_exactly({640, 64}));
  // The free ranges have 256, 320 and 320 bytes.
  CHECK(space.fits(128, 6));
  CHECK_FALSE(space.fits(128, 7));
  CHECK(space.fits(129, 3));
  CHECK_FALSE(space.fits(129, 4));
  CHECK(space.fits(320, 2));
  CHECK_FALSE(space.fits(320, 3));
  CHECK_FALSE(space.fits(384, 1));
  for (int i = 0; i < 6; ++i) REQUIRE(space.take(128, 128));
  CHECK_FALSE(space.take(128, 128));
}

TEST_CASE("random takes and gives keep the sum") {
  stdchk::Prng prng(7);
  FreeSpace space(1 << 20);
  std::vector<Range> taken;
  std::uint64_t used = 0;
  for (int i = 0; i < 20000; ++i) {
    if (taken.empty() || prng.chance(1, 2)) {
      if (const auto range = space.take(64 + prng.below(9000), 64)) {
        taken.push_back(*range);
        used += range->length;
      }
    } else {
      const std::size_t at = prng.below(taken.size());
      used -= taken[at].length;
      REQUIRE(space.release(taken[at]));
      taken[at] = taken.back();
      taken.pop_back();
    }
    REQUIRE(space.free_bytes() + used == 1 << 20);
  }
  for (const Range& range : taken) REQUIRE(space.release(range));
  CHECK(space.largest() == 1 << 20);
}
