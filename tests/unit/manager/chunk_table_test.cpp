#include "manager/state/chunk_table.h"

#include <map>

#include "core/base/clock.h"
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

TEST_CASE("chunks of one name with different homes are different chunks") {
  ChunkTable table;
  Chunk chunk = named(5);
  const ChunkIndex striped = table.add(chunk);
  std::map<BenefactorId, ChunkIndex> homes;
  for (std::uint64_t home = 1; home <= 40; ++home) {
    chunk.copies = {{BenefactorId{home}, 64}, {BenefactorId{home + 1}, 4096 * home}};
    homes[BenefactorId{home}] = table.add(chunk, BenefactorId{home});
  }
  for (const auto& [home, index] : homes) {
    table.refer(index, false);
    CHECK(table.find(chunk.name, 1000, home) == index);
    CHECK(table.home(index) == home);
    CHECK(table.find_at(chunk.name, 1000, {{home.value + 1}, 4096 * home.value}) == index);
  }
  table.refer(striped, false);
  CHECK(table.find(chunk.name, 1000) == striped);
  CHECK(table.find_at(chunk.name, 1000, {BenefactorId{1}, 128}) == kNoChunk);
  CHECK(table.find_all(chunk.name, 1000).size() == 41);
  CHECK(table.find_all(chunk.name, 999).empty());
  std::vector<FreedExtent> freed;
  for (const auto& [home, index] : homes) {
    table.release(index, false, freed);
    CHECK(table.find(chunk.name, 1000, home) == kNoChunk);
    CHECK(table.find(chunk.name, 1000) == striped);
  }
  CHECK_FALSE(table.has_homes());
  CHECK(table.chunk_count() == 1);
}

TEST_CASE(
    "what may be given up counts a shared chunk once, and none that an undrained version has") {
  ChunkTable table;
  const ChunkIndex at = table.add(named(5));
  for (int file = 0; file < 12; ++file) table.refer(at, true);
  CHECK(table.drained_bytes() == 0);
  for (int file = 0; file < 11; ++file) table.mark_drained(at);
  CHECK(table.drained_bytes() == 0);
  table.mark_drained(at);
  CHECK(table.drained_bytes() == 1088);
  std::vector<FreedExtent> freed;
  table.set_copies(at, {{BenefactorId{1}, 64}, {BenefactorId{2}, 64}}, freed);
  CHECK(table.drained_bytes() == 2 * 1088);
  table.mark_undrained(at);
  CHECK(table.drained_bytes() == 0);
  table.release(at, true, freed);
  CHECK(table.drained_bytes() == 2 * 1088);
  for (int file = 0; file < 11; ++file) table.release(at, false, freed);
  CHECK(table.drained_bytes() == 0);
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

TEST_CASE("a chunk with one copy never costs more than 64 bytes of memory, index included") {
  ChunkTable table;
  std::uint64_t count = 0;
  constexpr std::uint64_t kSteps[] = {500000, 50000, 50000, 50000, 50000, 50000, 50000};
  for (std::uint64_t more : kSteps) {
    for (; more > 0; --more) table.refer(table.add(named(count++)), false);
    CHECK(table.memory_bytes() <= 64 * count);
  }
}

TEST_CASE("entries that were given up are used again before the table grows") {
  ChunkTable table;
  std::vector<FreedExtent> freed;
  std::vector<ChunkIndex> all;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    all.push_back(table.add(named(i)));
    table.refer(all.back(), false);
  }
  const std::uint64_t full = table.memory_bytes();
  for (int cycle = 0; cycle < 3; ++cycle) {
    for (std::uint64_t i = 0; i < 100000; i += 1 + i % 2) table.release(all[i], false, freed);
    for (std::uint64_t i = 0; i < 100000; i += 1 + i % 2) {
      all[i] = table.add(named(i));
      table.refer(all[i], false);
    }
    for (std::uint64_t i = 0; i < 100000; ++i) REQUIRE(table.find(named(i).name, 1000) == all[i]);
  }
  CHECK(table.memory_bytes() == full);
}
