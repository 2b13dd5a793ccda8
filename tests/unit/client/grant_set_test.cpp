#include "client/grant_set.h"

#include <map>

#include "tests/support/catch.h"

namespace stdchk::client {
namespace {

Grant grant(std::uint64_t id, std::uint64_t benefactor, std::uint64_t offset,
            std::uint64_t length) {
  return Grant{GrantId{id}, BenefactorId{benefactor}, offset, length};
}

TEST_CASE("extents go round robin over the benefactors and never overlap") {
  GrantSet set;
  set.add({grant(1, 1, 0, 1000), grant(2, 2, 0, 1000), grant(3, 3, 500, 1000)});
  std::map<std::uint64_t, std::uint64_t> next = {{1, 0}, {2, 0}, {3, 500}};
  std::map<std::uint64_t, int> count;
  for (int i = 0; i < 9; ++i) {
    const auto extent = set.carve(300, {});
    REQUIRE(extent.has_value());
    REQUIRE(extent->offset == next[extent->benefactor.value]);
    next[extent->benefactor.value] += 300;
    ++count[extent->benefactor.value];
  }
  REQUIRE(count == std::map<std::uint64_t, int>{{1, 3}, {2, 3}, {3, 3}});
  REQUIRE_FALSE(set.carve(300, {}).has_value());
  REQUIRE(set.carve(100, {}).has_value());
}

TEST_CASE("avoided benefactors get nothing, and the rest is counted without them") {
  GrantSet set;
  set.add({grant(1, 1, 0, 1000), grant(2, 2, 0, 1000)});
  const std::set<BenefactorId> avoid = {BenefactorId{1}};
  REQUIRE(set.room_for(100, avoid, 100) == 10);
  for (int i = 0; i < 10; ++i) REQUIRE(set.carve(100, avoid)->benefactor == BenefactorId{2});
  REQUIRE_FALSE(set.carve(100, avoid).has_value());
}

TEST_CASE("space given back is carved again, joined within its grant and not across grants") {
  GrantSet set;
  set.add({grant(1, 1, 0, 400), grant(2, 1, 400, 400)});
  const auto first = set.carve(200, {});
  const auto second = set.carve(200, {});
  REQUIRE(first->offset == 0);
  REQUIRE(second->offset == 200);
  set.give_back(*first, 200);
  set.give_back(*second, 200);
  // 800 bytes are free and adjacent, but an extent must lie within one grant.
  REQUIRE_FALSE(set.carve(500, {}).has_value());
  REQUIRE(set.carve(400, {})->offset == 0);
  REQUIRE(set.carve(400, {})->offset == 400);
  REQUIRE(set.free_bytes() == 0);
}

TEST_CASE("dropping a benefactor tells the grants that were never used") {
  GrantSet set;
  set.add({grant(1, 1, 0, 400), grant(2, 1, 400, 400), grant(3, 2, 0, 100)});
  REQUIRE(set.carve(64, {}).has_value());
  REQUIRE(set.drop(BenefactorId{1}) == std::vector<GrantId>{GrantId{2}});
  REQUIRE(set.free_bytes() == 100);
  set.give_back(Extent{BenefactorId{1}, 0}, 64);
  REQUIRE(set.free_bytes() == 100);
}

}  // namespace
}  // namespace stdchk::client
