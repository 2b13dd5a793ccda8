#include "client/series_naming.h"

#include "tests/support/catch.h"

namespace stdchk::client {
namespace {

constexpr std::uint32_t kChunk = 1U << 20;
constexpr std::uint64_t kJudged = 64 * kChunk;

/// Names `count` chunks with CRCs from `first` on, where `found_of` of a hundred are found. How
/// many were named.
std::uint64_t image(SeriesNaming& series, std::uint32_t count, std::uint32_t found_of) {
  std::uint64_t named = 0;
  for (std::uint32_t crc = 0; crc < count; ++crc) {
    if (!series.names(crc)) continue;
    ++named;
    series.judge(crc, kChunk, crc / SeriesNaming::kSampledOneOf % 100 < found_of);
  }
  series.compare_with(named == count);
  return named;
}

TEST_CASE("always and never do not depend on what is found") {
  SeriesNaming on(Naming::kOn, kJudged);
  SeriesNaming off(Naming::kOff, kJudged);
  for (int i = 0; i < 3; ++i) {
    CHECK(image(on, 1000, 0) == 1000);
    CHECK(image(off, 1000, 100) == 0);
  }
  CHECK(off.off());
}

TEST_CASE("a series is named in full until it was compared with an earlier image") {
  SeriesNaming series(Naming::kAuto, kJudged);
  CHECK(image(series, 1000, 0) == 1000);
  CHECK_FALSE(series.sampling());
  CHECK(image(series, 1000, 0) < 64 + 1000 / 4);
  CHECK(series.sampling());
}

TEST_CASE("what is named as a sample is chosen by content") {
  SeriesNaming series(Naming::kAuto, kJudged);
  image(series, 1000, 0);
  image(series, 1000, 0);
  REQUIRE(series.sampling());
  for (std::uint32_t crc = 0; crc < 100; ++crc) {
    CHECK(series.names(crc) == (crc % SeriesNaming::kSampledOneOf == 0));
  }
}

TEST_CASE("samples that are found bring naming back, and it stays though most could not be found") {
  SeriesNaming series(Naming::kAuto, kJudged);
  image(series, 1000, 0);
  image(series, 1000, 0);
  REQUIRE(series.sampling());
  image(series, 1000, 100);
  REQUIRE_FALSE(series.sampling());
  // Of the image before only samples have names: others are not found, and that counts for nothing.
  for (std::uint32_t crc = 0; crc < 1000; ++crc)
    series.judge(crc, kChunk, crc % SeriesNaming::kSampledOneOf == 0);
  CHECK_FALSE(series.sampling());
}

TEST_CASE(
    "one sample that is found is enough: it stands for more than a twentieth of what is judged") {
  SeriesNaming series(Naming::kAuto, kJudged);
  image(series, 1000, 0);
  image(series, 1000, 0);
  REQUIRE(series.sampling());
  series.judge(0, kChunk, false);
  CHECK(series.sampling());
  series.judge(SeriesNaming::kSampledOneOf, kChunk, true);
  CHECK_FALSE(series.sampling());
}

TEST_CASE("a twentieth that is found pays") {
  SeriesNaming series(Naming::kAuto, 1000 * std::uint64_t{kChunk});
  series.compare_with(true);
  SECTION("just") {
    for (std::uint32_t i = 0; i < 1000; ++i) series.judge(i, kChunk, i < 50);
    CHECK_FALSE(series.sampling());
  }
  SECTION("not quite") {
    for (std::uint32_t i = 0; i < 1000; ++i) series.judge(i, kChunk, i < 49);
    CHECK(series.sampling());
  }
}

}  // namespace
}  // namespace stdchk::client
