#include "client/write/grant_set.h"

#include <map>
#include <set>
#include <vector>

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

TEST_CASE("each extent has the grant that it was carved from, until its benefactor is dropped") {
  GrantSet set;
  set.add({grant(1, 1, 0, 400), grant(2, 1, 400, 400), grant(3, 2, 0, 400)});
  for (int i = 0; i < 6; ++i) {
    const auto extent = set.carve(200, {});
    const auto of = set.grant_of(*extent);
    REQUIRE(of.has_value());
    CHECK(of->benefactor == extent->benefactor);
    CHECK(of->offset <= extent->offset);
    CHECK(extent->offset + 200 <= of->offset + of->length);
  }
  set.drop(BenefactorId{1});
  CHECK_FALSE(set.grant_of({BenefactorId{1}, 0}).has_value());
  CHECK(set.grant_of({BenefactorId{2}, 0})->id == GrantId{3});
}

TEST_CASE("dropping a benefactor tells the grants that were never used") {
  GrantSet set;
  set.add({grant(1, 1, 0, 400), grant(2, 1, 400, 400), grant(3, 2, 0, 100)});
  REQUIRE(set.carve(64, {}).has_value());
  REQUIRE(set.drop(BenefactorId{1}) == std::vector<GrantId>{GrantId{2}});
  REQUIRE(set.free_bytes() == 100);
  REQUIRE(set.granted_bytes() == 400 + 100);
  set.give_back(Extent{BenefactorId{1}, 0}, 64);
  REQUIRE(set.free_bytes() == 100);
}

/// A grant on benefactor 10 * `domain` + `number`.
Grant place(std::uint64_t id, std::uint64_t domain, std::uint64_t number, std::uint64_t first,
            std::uint64_t length = 1000) {
  return Grant{GrantId{id},         BenefactorId{10 * domain + number},
               id * 1000,           length,
               BenefactorId{first}, domain};
}

std::vector<std::uint64_t> benefactors(const std::vector<Extent>& extents) {
  std::vector<std::uint64_t> out;
  out.reserve(extents.size());
  for (const Extent& extent : extents) out.push_back(extent.benefactor.value);
  return out;
}

using Numbers = std::vector<std::uint64_t>;

TEST_CASE("places of a chunk go together, in different domains, the sets in turn") {
  GrantSet set;
  set.add({place(1, 1, 1, 11), place(2, 1, 2, 11), place(3, 2, 1, 11)});
  set.add({place(4, 3, 1, 31), place(5, 2, 1, 31)});
  REQUIRE(set.has_places(300, {}, 2, {}));
  CHECK(benefactors(set.carve(300, {}, 2, {})) == Numbers{11, 21});
  CHECK(benefactors(set.carve(300, {}, 2, {})) == Numbers{31, 21});
  CHECK(benefactors(set.carve(300, {}, 2, {})) == Numbers{11, 21});
  REQUIRE_FALSE(set.has_places(300, {}, 3, {}));
  CHECK(set.carve(300, {}, 3, {}).size() == 2);
}

TEST_CASE("further places are beside the first one, and apart from all, also where that has gone") {
  GrantSet set;
  set.add({place(1, 1, 1, 11), place(2, 2, 1, 11), place(3, 2, 2, 11), place(4, 3, 1, 11)});
  set.add({place(5, 4, 1, 41), place(6, 5, 1, 41)});
  const std::vector<Extent> held = set.carve(300, {BenefactorId{31}}, 2, {});
  REQUIRE(benefactors(held) == Numbers{11, 21});
  set.drop(BenefactorId{21});
  CHECK(benefactors(set.carve(300, {}, 1, held)) == Numbers{31});
  CHECK(benefactors(set.carve(300, {}, 2, held)) == Numbers{31});
  CHECK(set.carve(300, {BenefactorId{31}}, 1, held).empty());
  CHECK_FALSE(set.has_places(300, {BenefactorId{31}}, 1, held));
}

TEST_CASE("what goes with a benefactor that is avoided is for one place each") {
  GrantSet set;
  set.add({place(1, 1, 1, 11), place(2, 2, 1, 11)});
  const std::set<BenefactorId> avoid = {BenefactorId{11}};
  CHECK_FALSE(set.has_places(300, avoid, 1, {}));
  CHECK(benefactors(set.carve(300, avoid, 2, {})) == Numbers{21});
}

TEST_CASE("space of several sets on one benefactor is given back to its own, and dropped with it") {
  GrantSet set;
  set.add({place(1, 1, 1, 11, 300), place(2, 2, 1, 11, 300)});
  set.add({place(3, 3, 1, 31, 300), place(4, 2, 1, 31, 300)});
  const auto first = set.carve(300, {}, 2, {});
  const auto second = set.carve(300, {}, 2, {});
  REQUIRE(set.free_bytes() == 0);
  for (const Extent& extent : second) set.give_back(extent, 300);
  CHECK(set.carve(300, {}, 2, {}) == second);
  for (const Extent& extent : first) set.give_back(extent, 300);
  CHECK(set.drop(BenefactorId{21}).empty());
  CHECK(set.free_bytes() == 300);
}

}  // namespace
}  // namespace stdchk::client
