#include "transport/secure/keyring.h"

#include "tests/support/catch.h"
#include "tests/support/members.h"

namespace stdchk::transport::secure {
namespace {

using test::member_of;
using test::secret_of;

const Member kClientA = member_of(Role::kClient, 1);
const Member kClientB = member_of(Role::kClient, 2);
const Member kLender = member_of(Role::kBenefactor, 3);
const Member kOtherLender = member_of(Role::kBenefactor, 4);

/// A pool's manager, and the keys given to its members.
struct Pool {
  Keyring manager = Keyring::of_root(secret_of(7), member_of(Role::kManager, 9));
  Keyring member(const Member& who) const { return Keyring::of_member(manager.key_of(who)); }
};

}  // namespace

TEST_CASE("a link's name survives its encoding, and nothing else is one") {
  const LinkName name{kClientA, kLender, 0x0102030405060708};
  const LinkName::Bytes bytes = name.encode();
  CHECK(LinkName::decode(bytes) == name);
  CHECK_FALSE(LinkName::decode(ByteSpan(bytes).first(LinkName::kBytes - 1)));
  for (const std::size_t at : {0U, 1U, 2U, 7U}) {
    LinkName::Bytes wrong = bytes;
    wrong[at] = std::byte{0x77};
    CHECK_FALSE(LinkName::decode(wrong));
  }
}

TEST_CASE("member and manager find the same key, and no two members have one") {
  const Pool pool;
  const Credential key = pool.member(kClientA).to_manager();
  REQUIRE(pool.manager.accept(key.name));
  CHECK(*pool.manager.accept(key.name) == key.key);
  CHECK_FALSE(pool.member(kClientB).to_manager().key == key.key);
  // A process with the root secret can act as that member.
  CHECK(Keyring::of_root(secret_of(7), kClientA).to_manager().key == key.key);
}

TEST_CASE("a ticket opens a link to the member that it names") {
  const Pool pool;
  const Ticket ticket = pool.manager.ticket(kClientA, kLender, 5);
  const Credential key = pool.member(kClientA).by(ticket);
  const auto found = pool.member(kLender).accept(key.name);
  REQUIRE(found);
  CHECK(*found == key.key);
  CHECK_FALSE(pool.member(kOtherLender).accept(key.name));
  CHECK_FALSE(pool.manager.accept(key.name));
}

TEST_CASE("a stolen ticket is of no use to another member, role or number") {
  const Pool pool;
  const Ticket ticket = pool.manager.ticket(kClientA, kLender, 5);
  const Keyring lender = pool.member(kLender);
  const auto other = lender.accept(pool.member(kClientB).by(ticket).name);
  REQUIRE(other);
  CHECK_FALSE(*other == ticket.key);
  const auto as_lender = lender.accept({member_of(Role::kBenefactor, 1), kLender, 5});
  REQUIRE(as_lender);
  CHECK_FALSE(*as_lender == ticket.key);
  const auto later = lender.accept({kClientA, kLender, 6});
  REQUIRE(later);
  CHECK_FALSE(*later == ticket.key);
}

TEST_CASE("a link is never accepted from oneself, nor between roles that have nothing to say") {
  const Pool pool;
  const Keyring lender = pool.member(kLender);
  CHECK_FALSE(lender.accept({kLender, kLender, 5}));
  CHECK_FALSE(lender.accept({member_of(Role::kManager, 9), kLender, 5}));
  CHECK_FALSE(lender.accept({kClientA, kAnyManager, 0}));
  CHECK_FALSE(pool.member(kClientA).accept({kClientB, kClientA, 5}));
  CHECK_FALSE(pool.manager.accept({pool.manager.self(), kAnyManager, 0}));
}

TEST_CASE("only a coordinator connects to a node, and it connects to nobody else") {
  const Pool pool;
  const Member coordinator = member_of(Role::kCoordinator, 6), node = member_of(Role::kNode, 7);
  const Keyring at_node = pool.member(node);
  const Ticket ticket = pool.manager.ticket(coordinator, node, 1);
  const auto key = at_node.accept(pool.member(coordinator).by(ticket).name);
  REQUIRE(key);
  CHECK(*key == ticket.key);
  for (const Member& other : {kClientA, kLender, member_of(Role::kManager, 9), node}) {
    CHECK_FALSE(at_node.accept({other, node, 1}));
  }
  for (const Member& other : {coordinator, node}) {
    CHECK_FALSE(pool.member(kLender).accept({other, kLender, 5}));
    CHECK_FALSE(pool.manager.accept({other, kAnyManager, 0}));
    CHECK_FALSE(pool.member(coordinator).accept({other, coordinator, 1}));
  }
}

TEST_CASE("tickets of numbers that have been left are refused") {
  const Pool pool;
  Keyring lender = pool.member(kLender);
  CHECK_FALSE(lender.accept({kClientA, kLender, 0}));
  lender.refuse_before(6);
  CHECK_FALSE(lender.accept({kClientA, kLender, 5}));
  CHECK(lender.accept({kClientA, kLender, 6}));
  lender.refuse_before(2);
  CHECK(lender.oldest_number() == 6);
}

TEST_CASE("a member cannot make the key by which another one proves itself to the manager") {
  const Pool pool;
  const LinkName name{kClientA, kAnyManager, 0};
  // A lender has its own key, and names. Without the root secret, it cannot accept members as a
  // manager.
  const Keyring posing = Keyring::of_member({member_of(Role::kManager, 5), secret_of(1)});
  CHECK_FALSE(posing.accept(name));
}

TEST_CASE("what a member or a manager computes from its own key, nobody else computes") {
  const Pool pool;
  const ByteSpan context = std::as_bytes(std::span("life", 4));
  const Secret own = pool.member(kLender).own("life", context);
  CHECK(pool.manager.own_of(kLender, "life", context) == own);
  CHECK_FALSE(pool.member(kOtherLender).own("life", context) == own);
  CHECK_FALSE(pool.manager.own_of(kLender, "other", context) == own);
  CHECK(pool.manager.mark_of(kLender, 5) == pool.member(kLender).mark(5));
  CHECK(pool.manager.mark_of(kOtherLender, 5) != pool.member(kLender).mark(5));
  CHECK(pool.manager.mark_of(kLender, 6) != pool.member(kLender).mark(5));
  const Keyring standby = Keyring::of_root(secret_of(7), kAnyManager);
  CHECK(standby.of_managers("life", context) == pool.manager.of_managers("life", context));
  CHECK_FALSE(standby.of_managers("life", context) == own);
}

}  // namespace stdchk::transport::secure
