#include "tools/series.h"

#include <array>

#include "core/sealed_chunk.h"
#include "tests/support/catch.h"

namespace stdchk::tools {
namespace {

constexpr FileId kFolder{7};
constexpr std::uint32_t kLength = 1000;

/// Chunks [first, first + count), each at a place of its own; those that `named` says have names.
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
constexpr auto kSamples = [](std::uint32_t crc) { return crc % 8 == 0; };

SeriesReport::Line only_line(const SeriesReport& report) {
  const auto lines = report.lines();
  REQUIRE(lines.size() == 1);
  return lines.front();
}

TEST_CASE("a series pays when its newest image has something of the one before it") {
  SeriesReport report;
  report.add(kFolder, "app.N3.T9", image(0, 100, kAll));
  CHECK(only_line(report).state == SeriesState::kNamed);
  report.add(kFolder, "app.N3.T10", image(75, 100, kAll));
  CHECK(only_line(report).state == SeriesState::kPays);
  CHECK(only_line(report).series == "app.N3");
  CHECK(only_line(report).newest == "app.N3.T10");
  CHECK(only_line(report).found_again == 0.25);
  report.add(kFolder, "app.N3.T11", image(171, 100, kAll));
  CHECK(only_line(report).state == SeriesState::kNamed);
  CHECK(only_line(report).found_again == 0.04);
}

TEST_CASE("images may come in any order") {
  SeriesReport report;
  report.add(kFolder, "app.N3.T11", image(100, 100, kAll));
  report.add(kFolder, "app.N3.T9", image(0, 100, kAll));
  report.add(kFolder, "app.N3.T10", image(50, 100, kAll));
  CHECK(only_line(report).newest == "app.N3.T11");
  CHECK(only_line(report).found_again == 0.5);
}

TEST_CASE("what is not named tells whether naming was off or did not pay") {
  SeriesReport report;
  report.add(kFolder, "app.N0.T1", image(0, 100, kAll));
  SECTION("samples have names: it did not pay") {
    report.add(kFolder, "app.N0.T2", image(1000, 100, kSamples));
    CHECK(only_line(report).state == SeriesState::kDidNotPay);
  }
  SECTION("samples have none: it is off") {
    report.add(kFolder, "app.N0.T2", image(1000, 100, kNone));
    CHECK(only_line(report).state == SeriesState::kOff);
  }
  SECTION("what is encrypted does not show which the samples are") {
    ChunkMap sealed = image(1000, 100, kNone);
    std::array<MutableByteSpan, 2> nothing;
    for (Chunk& chunk : sealed.chunks) chunk.name = ChunkSealer(Secret{}).seal(nothing, {});
    report.add(kFolder, "app.N0.T2", sealed);
    CHECK(only_line(report).state == SeriesState::kUnnamed);
  }
  SECTION("too few chunks to have a sample among them") {
    report.add(kFolder, "app.N0.T2", image(1001, 7, kNone));
    CHECK(only_line(report).state == SeriesState::kUnnamed);
  }
}

TEST_CASE("files of other names, and chunks that are drained only, tell nothing") {
  SeriesReport report;
  report.add(kFolder, "notes.txt", image(0, 100, kNone));
  ChunkMap drained = image(0, 100, kNone);
  for (Chunk& chunk : drained.chunks) chunk.copies.clear();
  report.add(kFolder, "app.N0.T1", drained);
  CHECK(report.lines().empty());
}

TEST_CASE("the same series in two folders is two") {
  SeriesReport report;
  report.add(kFolder, "app.N0.T1", image(0, 100, kAll));
  report.add(FileId{8}, "app.N0.T2", image(0, 100, kNone));
  REQUIRE(report.lines().size() == 2);
  CHECK(report.lines()[0].state == SeriesState::kNamed);
  CHECK(report.lines()[1].state == SeriesState::kOff);
}

}  // namespace
}  // namespace stdchk::tools
