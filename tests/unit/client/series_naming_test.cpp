#include "client/write/series_naming.h"

#include "tests/support/catch.h"

namespace stdchk::client {
namespace {

constexpr std::uint32_t kChunk = 1U << 20;
constexpr std::uint64_t kJudged = 64 * kChunk;

/// Feeds an image of `count` chunks with CRCs from `first` on; `found_of` in a hundred named chunks
/// are in the pool. Returns how many chunks were named.
std::uint64_t image(SeriesNaming& series, std::uint32_t first, std::uint32_t count,
                    std::uint32_t found_of = 0) {
  std::uint64_t named = 0;
  for (std::uint32_t crc = first; crc < first + count; ++crc) {
    const bool names = series.names(crc);
    series.record_chunk(crc, kChunk);
    if (!names) continue;
    ++named;
    series.judge(crc, kChunk, crc / SeriesNaming::kSampledOneOf % 100 < found_of);
  }
  series.committed(named == count);
  return named;
}

/// Feeds two images without common chunks; afterwards the client names only samples.
void nothing_in_common(SeriesNaming& series, std::uint32_t count = 1000) {
  image(series, 0, count);
  image(series, 1'000'000, count);
  REQUIRE(series.state() == NamingState::kDidNotPay);
}

TEST_CASE("always and never do not depend on what is found") {
  SeriesNaming on(Naming::kOn, kJudged);
  SeriesNaming off(Naming::kOff, kJudged);
  for (int i = 0; i < 3; ++i) {
    CHECK(image(on, 0, 1000) == 1000);
    CHECK(image(off, 0, 1000, 100) == 0);
  }
  CHECK(off.is_off());
  CHECK(off.state() == NamingState::kOff);
  CHECK(on.state() == NamingState::kOn);
}

TEST_CASE("a series is named in full until it was compared with an earlier image") {
  SeriesNaming series(Naming::kAuto, kJudged);
  CHECK(image(series, 0, 1000) == 1000);
  CHECK(series.state() == NamingState::kOn);
  CHECK(image(series, 1'000'000, 1000) < 64 + 1000 / 16);
  CHECK(series.state() == NamingState::kDidNotPay);
}

TEST_CASE("what is named as a sample is chosen by content") {
  SeriesNaming series(Naming::kAuto, kJudged);
  nothing_in_common(series);
  for (std::uint32_t crc = 0; crc < 100; ++crc) {
    CHECK(series.names(crc) == (crc % SeriesNaming::kSampledOneOf == 0));
  }
}

TEST_CASE("a sample that is found anywhere in the pool brings naming back, and it stays") {
  SeriesNaming series(Naming::kAuto, kJudged);
  nothing_in_common(series);
  series.judge(SeriesNaming::kSampledOneOf, kChunk, false);
  CHECK(series.state() == NamingState::kDidNotPay);
  series.judge(SeriesNaming::kSampledOneOf, kChunk, true);
  REQUIRE(series.state() == NamingState::kOn);
  // The previous image has few names, so zero matches prove nothing.
  CHECK(image(series, 2'000'000, 1000) == 1000);
  CHECK(series.state() == NamingState::kOn);
  CHECK(image(series, 3'000'000, 1000) < 1000);
  CHECK(series.state() == NamingState::kDidNotPay);
}

TEST_CASE("CRCs that the image before had bring naming back") {
  SeriesNaming series(Naming::kAuto, kJudged);
  nothing_in_common(series);
  SECTION("a twentieth of what is judged") {
    for (std::uint32_t i = 0; i < 3; ++i) series.record_chunk(1'000'001 + i, kChunk);
    CHECK(series.state() == NamingState::kDidNotPay);
    series.record_chunk(1'000'900, kChunk);
    CHECK(series.state() == NamingState::kOn);
  }
  SECTION("one and the other in much that is new do not") {
    for (std::uint32_t i = 0; i < 1000; ++i) {
      series.record_chunk(i % 50 == 0 ? 1'000'001 + i : 5'000'000 + i, kChunk);
    }
    CHECK(series.state() == NamingState::kDidNotPay);
  }
  SECTION("those of an older image do not") {
    image(series, 2'000'000, 1000);
    for (std::uint32_t i = 0; i < 100; ++i) series.record_chunk(1'000'001 + i, kChunk);
    CHECK(series.state() == NamingState::kDidNotPay);
  }
}

TEST_CASE("of a large image some CRCs are kept, which stand for all") {
  constexpr std::uint32_t kMany = 10 * SeriesNaming::kCrcsMost;
  SeriesNaming series(Naming::kAuto, kJudged);
  nothing_in_common(series, kMany);
  SECTION("it has nothing in common with the next one") {
    CHECK(image(series, 2'000'000, kMany) < kMany / 32);
    CHECK(series.state() == NamingState::kDidNotPay);
  }
  SECTION("it is the next one") {
    CHECK(image(series, 1'000'000, kMany) > kMany - 64);
    CHECK(series.state() == NamingState::kOn);
  }
}

TEST_CASE("a twentieth that is found pays") {
  SeriesNaming series(Naming::kAuto, 1000 * std::uint64_t{kChunk});
  series.committed(true);
  SECTION("just") {
    for (std::uint32_t i = 0; i < 1000; ++i) series.judge(i, kChunk, i < 50);
    CHECK(series.state() == NamingState::kOn);
  }
  SECTION("not quite") {
    for (std::uint32_t i = 0; i < 1000; ++i) series.judge(i, kChunk, i < 49);
    CHECK(series.state() == NamingState::kDidNotPay);
  }
}

}  // namespace
}  // namespace stdchk::client
