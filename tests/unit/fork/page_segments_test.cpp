#include "fork/process/page_server.h"
#include "tests/support/catch.h"

namespace stdchk::fork {
namespace {

using Segments = std::vector<PageServer::Segment>;

bool same(const Segments& a, const Segments& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); i++) {
    if (a[i].begin != b[i].begin || a[i].end != b[i].end || a[i].source != b[i].source)
      return false;
  }
  return true;
}

TEST_CASE("memory that was given up in the middle leaves two segments with their sources") {
  Segments segments{{0x1000, 0x9000, 0x71000}};
  take_out(segments, 0x3000, 0x5000);
  CHECK(same(segments, {{0x1000, 0x3000, 0x71000}, {0x5000, 0x9000, 0x75000}}));
}

TEST_CASE("memory that was given up at an end shortens a segment") {
  Segments segments{{0x1000, 0x9000, 0x71000}};
  take_out(segments, 0x0, 0x2000);
  take_out(segments, 0x8000, 0xa000);
  CHECK(same(segments, {{0x2000, 0x8000, 0x72000}}));
}

TEST_CASE("memory that was given up whole leaves nothing, and other segments stay") {
  Segments segments{{0x1000, 0x2000, 0x1000}, {0x5000, 0x6000, 0x5000}};
  take_out(segments, 0x1000, 0x2000);
  CHECK(same(segments, {{0x5000, 0x6000, 0x5000}}));
  take_out(segments, 0x6000, 0x7000);
  CHECK(same(segments, {{0x5000, 0x6000, 0x5000}}));
}

TEST_CASE("the zeros around an address end at the segments beside it, and at its block") {
  constexpr std::uint64_t kBlock = PageServer::kBlockBytes;
  const Segments segments{{kBlock, kBlock + 0x3000, 0}, {kBlock + 0x8000, 9 * kBlock, 0}};
  CHECK(block_without(segments, kBlock + 0x5000) == MemoryPart{kBlock + 0x3000, kBlock + 0x8000});
  CHECK(block_without(segments, 0x5000) == MemoryPart{0, kBlock});
  CHECK(block_without(segments, 9 * kBlock) == MemoryPart{9 * kBlock, 10 * kBlock});
}

}  // namespace
}  // namespace stdchk::fork
