#include "tools/ask/series.h"

#include <array>

#include "core/chunk/sealed_chunk.h"
#include "tests/support/catch.h"

namespace stdchk::tools {
namespace {

constexpr FileId kFolder{7};
constexpr std::uint32_t kLength = 1000;

/// Chunks [first, first + count), each at its own place; `named` tells which have names.
template <class Named>
ChunkMap image(std::uint32_t first, std::uint32_t count, Named named) {
  ChunkMap map;
  for (std::uint32_t i = first; i < first + count; ++i) {
    Chunk chunk{{}, kLength, i, {{BenefactorId{1 + i % 2}, std::uint64_t{i} * 4096}}};
    if (named(i)) chunk.name.bytes[0] = std::byte{1};
    map.chunks.push_back(chunk);
  }
  return map;
}

constexpr auto kAll = [](std::uint32_t) { return true; };
constexpr auto kNone = [](std::uint32_t) { return false; };
constexpr auto kSome = [](std::uint32_t number) { return number % 8 == 0; };

SeriesReport::Line only_line(const SeriesReport& report) {
  const auto lines = report.lines();
  REQUIRE(lines.size() == 1);
  return lines.front();
}

TEST_CASE("a series pays when its newest image has something of the one before it") {
  SeriesReport report;
  report.add(kFolder, "app.N3.T9", NamingState::kOn, image(0, 100, kAll));
  CHECK(only_line(report).state == SeriesState::kNamed);
  report.add(kFolder, "app.N3.T10", NamingState::kOn, image(75, 100, kAll));
  CHECK(only_line(report).state == SeriesState::kPays);
  CHECK(only_line(report).series == "app.N3");
  CHECK(only_line(report).newest == "app.N3.T10");
  CHECK(only_line(report).found_again == 0.25);
  report.add(kFolder, "app.N3.T11", NamingState::kOn, image(171, 100, kAll));
  CHECK(only_line(report).state == SeriesState::kNamed);
  CHECK(only_line(report).found_again == 0.04);
}

TEST_CASE("images may come in any order") {
  SeriesReport report;
  report.add(kFolder, "app.N3.T11", NamingState::kOn, image(100, 100, kAll));
  report.add(kFolder, "app.N3.T9", NamingState::kOn, image(0, 100, kAll));
  report.add(kFolder, "app.N3.T10", NamingState::kOn, image(50, 100, kAll));
  CHECK(only_line(report).newest == "app.N3.T11");
  CHECK(only_line(report).found_again == 0.5);
}

TEST_CASE("naming that stopped is told from naming that is off as its writer has told") {
  SeriesReport report;
  report.add(kFolder, "app.N0.T1", NamingState::kOn, image(0, 100, kAll));
  // The image has many chunks or few, so some have no sample among them.
  const std::uint32_t count = GENERATE(3U, 100U);
  SECTION("did not pay") {
    report.add(kFolder, "app.N0.T2", NamingState::kDidNotPay, image(1000, count, kSome));
    CHECK(only_line(report).state == SeriesState::kDidNotPay);
  }
  SECTION("off") {
    report.add(kFolder, "app.N0.T2", NamingState::kOff, image(1000, count, kNone));
    CHECK(only_line(report).state == SeriesState::kOff);
  }
  SECTION("on again after a beginning without names") {
    report.add(kFolder, "app.N0.T2", NamingState::kOn, image(1000, count, kSome));
    CHECK(only_line(report).state == SeriesState::kNamed);
  }
  SECTION("also of what is encrypted") {
    ChunkMap sealed = image(1000, count, kNone);
    std::array<MutableByteSpan, 2> nothing;
    for (Chunk& chunk : sealed.chunks) chunk.name = ChunkSealer(Secret{}).seal(nothing, {});
    report.add(kFolder, "app.N0.T2", NamingState::kDidNotPay, sealed);
    CHECK(only_line(report).state == SeriesState::kDidNotPay);
  }
}

TEST_CASE("of an image whose writer has told nothing its chunks are looked at") {
  SeriesReport report;
  report.add(kFolder, "app.N0.T1", NamingState::kUnknown, image(0, 100, kAll));
  CHECK(only_line(report).state == SeriesState::kNamed);
  report.add(kFolder, "app.N0.T2", NamingState::kUnknown, image(0, 100, kAll));
  CHECK(only_line(report).state == SeriesState::kPays);
  report.add(kFolder, "app.N0.T3", NamingState::kUnknown, image(1000, 100, kSome));
  CHECK(only_line(report).state == SeriesState::kUnnamed);
}

TEST_CASE("files of other names, and chunks that are drained only, tell nothing") {
  SeriesReport report;
  report.add(kFolder, "notes.txt", NamingState::kOff, image(0, 100, kNone));
  ChunkMap drained = image(0, 100, kNone);
  for (Chunk& chunk : drained.chunks) chunk.copies.clear();
  report.add(kFolder, "app.N0.T1", NamingState::kOff, drained);
  CHECK(report.lines().empty());
}

TEST_CASE("the same series in two folders is two") {
  SeriesReport report;
  report.add(kFolder, "app.N0.T1", NamingState::kOn, image(0, 100, kAll));
  report.add(FileId{8}, "app.N0.T2", NamingState::kOff, image(0, 100, kNone));
  REQUIRE(report.lines().size() == 2);
  CHECK(report.lines()[0].state == SeriesState::kNamed);
  CHECK(report.lines()[1].state == SeriesState::kOff);
}

}  // namespace
}  // namespace stdchk::tools
