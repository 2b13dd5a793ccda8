#include "benefactor/memory/extent_report.h"

#include "core/chunk/naming.h"
#include "tests/support/catch.h"
#include "tests/unit/benefactor/support.h"

namespace stdchk::benefactor {
namespace {

msg::FoundExtent found_at(ByteSpan arena, std::uint64_t offset) {
  const ByteSpan header = arena.subspan(offset, limits::kExtentHeaderBytes);
  return {offset, decode_extent_header(header)->length, crc32c(0, header)};
}

}  // namespace

TEST_CASE("every header is reported, wherever it lies, and nothing else") {
  std::vector<std::byte> arena(limits::kMiB);
  place_chunk(arena, 0, content_of(1000, 1));
  // Places one header across the end of an older chunk, and one within another chunk's content.
  place_chunk(arena, 4096, content_of(5000, 2));
  place_chunk(arena, 4096 + 2048, content_of(100, 3));
  place_chunk(arena, limits::kMiB - 128, content_of(64, 4));
  arena[limits::kMiB / 2] = std::byte{'S'};
  const auto reply = report_extents(arena, {0, limits::kMiB});
  std::vector<msg::FoundExtent> expected;
  for (const std::uint64_t at : {0UL, 4096UL, 6144UL, limits::kMiB - 128}) {
    expected.push_back(found_at(arena, at));
  }
  CHECK(reply.extents == expected);
  CHECK(reply.end == limits::kMiB);
}

TEST_CASE("a torn header is not reported") {
  std::vector<std::byte> arena(8192);
  place_chunk(arena, 0, content_of(1000, 1));
  arena[20] ^= std::byte{1};
  CHECK(report_extents(arena, {0, arena.size()}).extents.empty());
}

TEST_CASE("a part is reported to where it says, and the rest is asked for from there") {
  std::vector<std::byte> arena(2 * limits::kMiB + 40);
  const std::uint64_t steps = arena.size() / 64;
  for (std::uint64_t i = 0; i < steps; ++i) {
    encode_extent_header({{}, 5, 6, FileId{7}, static_cast<std::uint32_t>(i)}, &arena[i * 64]);
  }
  std::uint64_t at = 0;
  std::uint64_t count = 0;
  while (at < steps * 64) {
    const auto reply = report_extents(arena, {at, steps * 64});
    REQUIRE(reply.end > at);
    REQUIRE(reply.extents.size() <= limits::kListItemsMax);
    for (const auto& each : reply.extents) CHECK(each.offset == 64 * count++);
    at = reply.end;
  }
  CHECK(at == steps * 64);
  CHECK(count == steps);
  // A range beyond the arena has no extents.
  CHECK(report_extents(arena, {arena.size() + 1, arena.size() + 900}).extents.empty());
  CHECK(report_extents(arena, {steps * 64 - 64, ~std::uint64_t{0}}).extents.size() == 1);
}

TEST_CASE("what is forgotten has no header any more, and the rest of the arena is as it was") {
  std::vector<std::byte> arena(64 * 1024);
  place_chunk(arena, 0, content_of(1000, 1));
  place_chunk(arena, 8192, content_of(2000, 2));
  const auto before = arena;
  Forgetter forgetter(arena);
  const auto reply = forgetter.forget({{found_at(arena, 8192)}}, forgetter.link());
  REQUIRE(reply);
  CHECK(reply->forgotten == 1);
  CHECK(report_extents(arena, {0, arena.size()}).extents ==
        std::vector<msg::FoundExtent>{found_at(before, 0)});
  for (std::size_t i = 0; i < arena.size(); ++i) {
    if (i < 8192 || i >= 8192 + 64) REQUIRE(arena[i] == before[i]);
  }
}

TEST_CASE("a header that is another one by now is not forgotten") {
  std::vector<std::byte> arena(64 * 1024);
  place_chunk(arena, 8192, content_of(2000, 2));
  const auto listed = found_at(arena, 8192);
  place_chunk(arena, 8192, content_of(2000, 3));
  Forgetter forgetter(arena);
  const auto now = arena;
  auto reply = forgetter.forget({{listed, {8192 + 7, 1, 1}, {arena.size(), 1, 1}, {128, 1, 1}}},
                                forgetter.link());
  REQUIRE(reply);
  CHECK(reply->forgotten == 0);
  CHECK(arena == now);
}

TEST_CASE("what was asked for through a link that is lost is not forgotten") {
  std::vector<std::byte> arena(64 * 1024);
  place_chunk(arena, 0, content_of(1000, 1));
  Forgetter forgetter(arena);
  const std::uint64_t link = forgetter.link();
  forgetter.lose_link();
  const auto reply = forgetter.forget({{found_at(arena, 0)}}, link);
  REQUIRE_FALSE(reply);
  CHECK(reply.error().code == Code::kStale);
  CHECK(report_extents(arena, {0, arena.size()}).extents.size() == 1);
}

}  // namespace stdchk::benefactor
