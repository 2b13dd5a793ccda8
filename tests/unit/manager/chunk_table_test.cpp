#include "manager/chunk_table.h"

#include "core/clock.h"
#include "tests/support/catch.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;

Chunk named(std::uint64_t number, std::uint32_t length = 1000) {
  Chunk chunk;
  __builtin_memcpy(chunk.name.bytes.data(), &number, sizeof(number));
  chunk.name.bytes[31] = std::byte{1};
  chunk.length = length;
  chunk.copies = {{BenefactorId{1 + number % 3}, number * 4096}};
  return chunk;
}

}  // namespace

TEST_CASE("a chunk is found by name until its last reference goes, then its extent is free") {
  ChunkTable table;
  const ChunkIndex at = table.add(named(5));
  table.refer(at, true);
  table.refer(at, false);
  std::vector<FreedExtent> freed;
  table.release(at, true, freed);
  CHECK(table.find(named(5).name, 1000) == at);
  CHECK(freed.empty());
  table.release(at, false, freed);
  CHECK(table.find(named(5).name, 1000) == kNoChunk);
  REQUIRE(freed.size() == 1);
  CHECK(freed[0] == FreedExtent{{BenefactorId{3}, 5 * 4096}, 1088});
  CHECK(table.stored_bytes() == 0);
}

TEST_CASE("the index stays right while many chunks come and go") {
  ChunkTable table;
  Prng prng(11);
  std::vector<ChunkIndex> live(4000, kNoChunk);
  std::vector<FreedExtent> freed;
  for (int i = 0; i < 100000; ++i) {
    const std::uint64_t number = prng.below(live.size());
    if (live[number] == kNoChunk) {
      REQUIRE(table.find(named(number).name, 1000) == kNoChunk);
      live[number] = table.add(named(number));
      table.refer(live[number], false);
    } else {
      REQUIRE(table.find(named(number).name, 1000) == live[number]);
      REQUIRE(table.get(live[number]) == named(number));
      table.release(live[number], false, freed);
      live[number] = kNoChunk;
    }
  }
}

TEST_CASE("a chunk with one copy costs at most 66 bytes of memory, index included") {
  ChunkTable table;
  constexpr std::uint64_t count = 900000;
  for (std::uint64_t i = 0; i < count; ++i) table.refer(table.add(named(i)), false);
  CHECK(table.memory_bytes() / count <= 66);
}
