#include "benefactor/service/write_grants.h"

#include <algorithm>
#include <vector>

#include "tests/support/catch.h"
#include "transport/secure/grant_proof.h"

namespace stdchk::benefactor {
namespace {

constexpr ClientId kA{100};
constexpr ClientId kB{101};

GrantId number(std::uint64_t value) { return GrantId{value}; }

}  // namespace

TEST_CASE("a client may write inside its grants and nowhere else") {
  WriteGrants grants;
  CHECK_FALSE(grants.may_write(0, 1, kA));
  grants.grant(1000, 500, number(1), kA);
  CHECK(grants.may_write(1000, 500, kA));
  CHECK(grants.may_write(1499, 1, kA));
  CHECK_FALSE(grants.may_write(999, 2, kA));
  CHECK_FALSE(grants.may_write(1499, 2, kA));
  CHECK_FALSE(grants.may_write(1000, 1, kB));
  CHECK_FALSE(grants.may_write(~0ULL, 1, kA));
  CHECK_FALSE(grants.may_write(1000, ~0ULL, kA));
  grants.grant(~0ULL - 1, 2, number(2), kA);  // behind the end of the numbers
  CHECK_FALSE(grants.may_write(~0ULL - 1, 1, kA));
  // Neighbours of one client count as one part.
  grants.grant(1500, 500, number(3), kA);
  CHECK(grants.may_write(1400, 200, kA));
}

TEST_CASE("space that went to another client opens only for that client, whoever presents again") {
  WriteGrants grants;
  grants.grant(0, 1000, number(1), kA);
  const std::uint64_t before = grants.revision();
  grants.grant(400, 200, number(5), kB);
  CHECK(grants.revision() != before);
  CHECK(grants.may_write(400, 200, kB));
  CHECK_FALSE(grants.may_write(400, 1, kA));
  CHECK(grants.may_write(0, 400, kA));
  CHECK(grants.may_write(600, 400, kA));
  grants.grant(0, 1000, number(1), kA);
  CHECK(grants.may_write(400, 200, kB));
  CHECK_FALSE(grants.may_write(399, 2, kA));
  // Client A gave this grant back, and presents it for the first time.
  grants.grant(300, 200, number(4), kA);
  CHECK_FALSE(grants.may_write(400, 1, kA));
}

TEST_CASE("where the benefactor writes itself, earlier grants open nothing and later ones do") {
  WriteGrants grants;
  grants.grant(0, 1000, number(1), kA);
  grants.close(0, 1000, number(7));
  CHECK_FALSE(grants.may_write(0, 1, kA));
  grants.grant(0, 1000, number(6), kA);  // never presented before
  CHECK_FALSE(grants.may_write(0, 1, kA));
  grants.grant(500, 100, number(8), kB);
  CHECK(grants.may_write(500, 100, kB));
}

TEST_CASE("of any grants in any order the newest holds each byte") {
  constexpr std::uint64_t kBytes = 64;
  std::uint64_t seed = 1;
  const auto draw = [&](std::uint64_t below) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (seed >> 33) % below;
  };
  for (int round = 0; round < 200; ++round) {
    WriteGrants grants;
    std::vector<std::pair<std::uint64_t, ClientId>> owner(kBytes);
    for (int i = 0; i < 30; ++i) {
      const std::uint64_t offset = draw(kBytes);
      const std::uint64_t length = draw(kBytes - offset) + 1;
      const std::uint64_t id = draw(20) + 1;
      const ClientId client{id % 3 == 0 ? 0 : 100 + id};  // a number belongs to one client
      client ? grants.grant(offset, length, number(id), client)
             : grants.close(offset, length, number(id));
      for (std::uint64_t at = offset; at < offset + length; ++at) {
        if (owner[at].first < id) owner[at] = {id, client};
      }
    }
    for (std::uint64_t at = 0; at < kBytes; ++at) {
      for (std::uint64_t id = 1; id <= 20; ++id) {
        const ClientId client{100 + id};
        REQUIRE(grants.may_write(at, 1, client) == (owner[at].second == client));
      }
    }
    // Neighbours with one owner are one entry.
    std::size_t parts = owner[0].first == 0 ? 0 : 1;
    for (std::uint64_t at = 1; at < kBytes; ++at) {
      parts += owner[at] != owner[at - 1] && owner[at].first != 0 ? 1 : 0;
    }
    REQUIRE(grants.part_count() == parts);
  }
}

TEST_CASE("a grant is the manager's, for one client of one benefactor, or it is none") {
  const Secret key{{std::byte{1}}};
  Grant grant{GrantId{9}, BenefactorId{5}, 4096, 8192};
  transport::secure::prove(key, kA, grant);
  CHECK(transport::secure::is_proven(key, kA, grant));
  CHECK_FALSE(transport::secure::is_proven(key, kB, grant));
  CHECK_FALSE(transport::secure::is_proven(Secret{{std::byte{2}}}, kA, grant));
  for (std::uint64_t Grant::*const field :
       {&Grant::offset, &Grant::length, &Grant::proof_low, &Grant::proof_high}) {
    Grant other = grant;
    other.*field ^= 1;
    CHECK_FALSE(transport::secure::is_proven(key, kA, other));
  }
  Grant other = grant;
  other.id.value ^= 1;
  CHECK_FALSE(transport::secure::is_proven(key, kA, other));
  other = grant;
  other.benefactor.value ^= 1;
  CHECK_FALSE(transport::secure::is_proven(key, kA, other));

  WriteGrants grants;
  ClientWriteCheck check(grants, key, BenefactorId{5}, kA);
  CHECK(check.present(grant));
  CHECK(check.may_write(4096, 8192));
  grant.length += 1;
  CHECK_FALSE(check.present(grant));
  CHECK_FALSE(check.may_write(4096, 8193));
  // Other benefactors and other clients refuse the grant.
  ClientWriteCheck elsewhere(grants, key, BenefactorId{6}, kA);
  grant.length -= 1;
  CHECK_FALSE(elsewhere.present(grant));
  ClientWriteCheck of_b(grants, key, BenefactorId{5}, kB);
  CHECK_FALSE(of_b.present(grant));
  CHECK_FALSE(of_b.may_write(4096, 1));
}

}  // namespace stdchk::benefactor
