#include "fork/pager/block_table.h"

#include <vector>

#include "core/base/clock.h"
#include "tests/support/catch.h"

namespace stdchk::pager {
namespace {

using State = BlockTable::State;

TEST_CASE("a claim takes absent blocks up to the first that is not absent") {
  BlockTable table(10 * kBlockBytes - 1);
  REQUIRE(table.block_count() == 10);
  CHECK(table.claim(4, 2) == BlockRange{4, 2});
  CHECK(table.claim(2, 8) == BlockRange{2, 2});
  CHECK(table.claim(4, 1) == BlockRange{4, 0});
  CHECK(table.claim(8, 8) == BlockRange{8, 2});
  CHECK(table.fetching_count() == 6);
}

TEST_CASE("those who wait for a block are told once, when it is there or failed") {
  BlockTable table(4 * kBlockBytes);
  CHECK(table.request(1, {7, 100}) == State::kAbsent);
  const BlockRange range = table.claim(0, 4);
  CHECK(table.request(1, {8, 200}) == State::kFetching);
  CHECK(table.request(3, {9, 300}) == State::kFetching);
  std::vector<Waiter> told;
  table.failed({3, 1}, told);
  CHECK(told == std::vector<Waiter>{{9, 300}});
  told.clear();
  table.filled({range.first, 3}, told);
  CHECK(told.size() == 2);
  CHECK(table.request(1, {7, 100}) == State::kPresent);
  CHECK(table.state(3) == State::kAbsent);
  CHECK_FALSE(table.is_wanted(1));
}

TEST_CASE("a clone that has ended is not told") {
  BlockTable table(kBlockBytes);
  table.request(0, {1, 0});
  table.request(0, {2, 0});
  table.forget(1);
  std::vector<Waiter> told;
  table.filled(table.claim(0, 1), told);
  CHECK(told == std::vector<Waiter>{{2, 0}});
}

TEST_CASE("what was filled first is given up first, and can be fetched again") {
  BlockTable table(8 * kBlockBytes);
  std::vector<Waiter> told;
  table.filled(table.claim(5, 2), told);
  table.filled(table.claim(0, 1), told);
  CHECK(table.evict_oldest() == BlockRange{5, 2});
  CHECK(table.state(5) == State::kAbsent);
  table.filled(table.claim(5, 1), told);
  CHECK(table.evict_oldest() == BlockRange{0, 1});
  CHECK(table.evict_oldest() == BlockRange{5, 1});
  CHECK(table.evict_oldest() == BlockRange{});
  CHECK(table.present_count() == 0);
}

TEST_CASE("random claims, failures and evictions never lose a waiter or a block") {
  constexpr std::uint64_t kBlocks = 64;
  BlockTable table(kBlocks * kBlockBytes);
  Prng prng(20250101);
  std::vector<BlockRange> claimed;
  std::size_t waiting = 0;
  for (int step = 0; step < 20000; ++step) {
    std::vector<Waiter> told;
    switch (prng.below(4)) {
      case 0:
        if (table.request(prng.below(kBlocks), {1, 0}) != State::kPresent) ++waiting;
        break;
      case 1: {
        const BlockRange range = table.claim(prng.below(kBlocks), 1 + prng.below(9));
        if (range.count > 0) claimed.push_back(range);
        break;
      }
      case 2: {
        if (claimed.empty()) break;
        const BlockRange range = claimed.back();
        claimed.pop_back();
        prng.chance(1, 3) ? table.failed(range, told) : table.filled(range, told);
        break;
      }
      default:
        if (prng.chance(1, 2)) table.evict_oldest();
    }
    waiting -= told.size();
    std::uint64_t present = 0;
    std::uint64_t fetching = 0;
    for (std::uint64_t block = 0; block < kBlocks; ++block) {
      present += table.state(block) == State::kPresent ? 1 : 0;
      fetching += table.state(block) == State::kFetching ? 1 : 0;
    }
    REQUIRE(present == table.present_count());
    REQUIRE(fetching == table.fetching_count());
  }
  std::vector<Waiter> told;
  for (const BlockRange& range : claimed) table.filled(range, told);
  for (std::uint64_t block = 0; block < kBlocks; ++block) {
    table.filled(table.claim(block, 1), told);
  }
  CHECK(told.size() == waiting);
}

}  // namespace
}  // namespace stdchk::pager
