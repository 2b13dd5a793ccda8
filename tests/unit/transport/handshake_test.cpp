#include "transport/secure/handshake.h"

#include <functional>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/members.h"

namespace stdchk::transport::secure {
namespace {

using test::member_of;
using test::secret_of;

using Message = std::vector<std::byte>;

Handshake::Fresh fresh_of(int seed) {
  Handshake::Fresh fresh;
  fresh.nonce.fill(static_cast<std::byte>(seed));
  fresh.key.bytes.fill(static_cast<std::byte>(seed + 100));
  return fresh;
}

const Member kClient = member_of(Role::kClient, 1);
const Member kOtherClient = member_of(Role::kClient, 2);
const Member kLender = member_of(Role::kBenefactor, 3);
constexpr std::uint64_t kNumber = 0x0506;

const Keyring& manager(int root = 7) {
  static const Keyring ours = Keyring::of_root(secret_of(7), kAnyManager);
  static const Keyring others = Keyring::of_root(secret_of(9), kAnyManager);
  return root == 7 ? ours : others;
}
Keyring member(const Member& who) { return Keyring::of_member(manager().key_of(who)); }
Credential to_manager(int root = 7) {
  return Keyring::of_member(manager(root).key_of(kClient)).to_manager();
}

/// Both ends of a handshake, with changes to the messages between them; message 0 is the hello.
struct Talk {
  Handshake connecting = Handshake::connecting(to_manager(), fresh_of(2));
  Handshake accepting = Handshake::accepting(manager(), fresh_of(3));
  std::function<void(int, Message&)> change = [](int, Message&) {};
  Code code{};  ///< of the end that failed first

  /// True: both ends are done.
  bool run() {
    Message hello = connecting.hello();
    change(0, hello);
    const auto first = accepting.take(hello);
    if (!first.status.has_value()) return failed(first.status);
    Message challenge = first.reply;
    change(1, challenge);
    const auto second = connecting.take(challenge);
    if (!second.status.has_value()) return failed(second.status);
    Message proof = second.reply;
    change(2, proof);
    const auto third = accepting.take(proof);
    if (!third.status.has_value()) return failed(third.status);
    return second.done && third.done;
  }
  bool failed(const Status& status) {
    code = status.error().code;
    return false;
  }
};

}  // namespace

TEST_CASE("two members prove themselves, know who the other is, and have the same keys") {
  Talk talk;
  REQUIRE(talk.run());
  CHECK(talk.connecting.peer().member == kAnyManager);
  CHECK(talk.accepting.peer().member == kClient);
  CHECK(talk.accepting.peer().number == 0);
  CHECK(talk.connecting.keys().outgoing == talk.accepting.keys().incoming);
  CHECK(talk.connecting.keys().incoming == talk.accepting.keys().outgoing);
  CHECK_FALSE(talk.connecting.keys().outgoing == talk.connecting.keys().incoming);
}

TEST_CASE("a ticket's link is known by who opened it and under which number") {
  const Keyring lender = member(kLender);
  const Keyring client = member(kClient);
  const Ticket ticket = manager().ticket(kClient, kLender, kNumber);
  Talk talk{Handshake::connecting(client.by(ticket), fresh_of(2)),
            Handshake::accepting(lender, fresh_of(3))};
  REQUIRE(talk.run());
  CHECK(talk.accepting.peer().member == kClient);
  CHECK(talk.accepting.peer().number == kNumber);
  CHECK(talk.connecting.peer().member == kLender);
}

TEST_CASE("a member poses neither as the manager nor as another member") {
  const Ticket ticket = manager().ticket(kClient, kLender, kNumber);
  // A client's supposed manager has only a member's key, whatever it claims to be.
  const Keyring liar = Keyring::of_root(manager().key_of(kLender).key, kAnyManager);
  Talk as_manager{Handshake::connecting(to_manager(), fresh_of(2)),
                  Handshake::accepting(liar, fresh_of(3))};
  CHECK_FALSE(as_manager.run());
  CHECK(as_manager.code == Code::kRefused);
  const Member other = member_of(Role::kBenefactor, 4);
  const Keyring as_lender = Keyring::of_member({kLender, manager().key_of(other).key});
  Talk as_other{Handshake::connecting(member(kClient).by(ticket), fresh_of(2)),
                Handshake::accepting(as_lender, fresh_of(3))};
  CHECK_FALSE(as_other.run());
  CHECK(as_other.code == Code::kRefused);
  // Another client's number, role and name with one's own ticket.
  Credential changed = member(kClient).by(ticket);
  const int what = GENERATE(0, 1, 2);
  if (what == 0) changed.name.number = kNumber + 1;
  if (what == 1) changed.name.from.role = Role::kBenefactor;
  if (what == 2) changed.name.from = kOtherClient;
  const Keyring lender = member(kLender);
  Talk talk{Handshake::connecting(changed, fresh_of(2)), Handshake::accepting(lender, fresh_of(3))};
  CHECK_FALSE(talk.run());
  CHECK(talk.code == Code::kRefused);
}

TEST_CASE("each link has keys of its own, whichever end is new") {
  Talk one;
  REQUIRE(one.run());
  for (const bool connecting : {true, false}) {
    Talk other{Handshake::connecting(to_manager(), fresh_of(connecting ? 4 : 2)),
               Handshake::accepting(manager(), fresh_of(connecting ? 3 : 4))};
    REQUIRE(other.run());
    CHECK_FALSE(other.connecting.keys().outgoing == one.connecting.keys().outgoing);
    CHECK_FALSE(other.connecting.keys().incoming == one.connecting.keys().incoming);
  }
}

TEST_CASE("who has the link's key later, and all that was said, has not the link's keys") {
  // With equal nonces, names and link key, another key exchange differs: its secret was never on
  // the wire.
  Talk one;
  REQUIRE(one.run());
  Handshake::Fresh other = fresh_of(2);
  other.key.bytes.fill(std::byte{55});
  Talk again{Handshake::connecting(to_manager(), other),
             Handshake::accepting(manager(), fresh_of(3))};
  REQUIRE(again.run());
  CHECK_FALSE(again.connecting.keys().outgoing == one.connecting.keys().outgoing);
}

TEST_CASE("a public value of small order is refused by either end") {
  // The product of any number with these points is zero (RFC 7748, section 6.1).
  for (const int first : {0, 1}) {
    for (const int message : {0, 1}) {
      Talk talk;
      talk.change = [&](int number, Message& bytes) {
        if (number != message) return;
        const auto at = number == 0 ? bytes.end() - 32 : bytes.end() - 64;
        std::fill(at, at + 32, std::byte{0});
        *at = static_cast<std::byte>(first);
      };
      CHECK_FALSE(talk.run());
      CHECK(talk.code == Code::kMalformed);
    }
  }
}

TEST_CASE("the exchange gives what RFC 7748 says") {
  const auto bytes = [](const char* text, MutableByteSpan to) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = static_cast<std::byte>(std::stoi(std::string(text + 2 * i, 2), nullptr, 16));
    }
  };
  ExchangeKey bob;
  ExchangePublic of_alice, of_bob;
  Secret shared;
  bytes("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb", bob.bytes);
  bytes("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a", of_alice);
  bytes("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f", of_bob);
  bytes("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742", shared.bytes);
  CHECK(public_of(bob) == of_bob);
  CHECK(agree(bob, of_alice).value() == shared);
}

TEST_CASE("who connects finds out that the other end is of another pool") {
  Talk talk{Handshake::connecting(to_manager(), fresh_of(2)),
            Handshake::accepting(manager(9), fresh_of(3))};
  CHECK_FALSE(talk.run());
  CHECK(talk.code == Code::kRefused);
}

TEST_CASE("who accepts finds out that the other end is of another pool") {
  // A stranger that ignores the proof in the challenge.
  Handshake right = Handshake::accepting(manager(), fresh_of(3));
  Handshake same_nonce = Handshake::accepting(manager(9), fresh_of(3));
  Handshake stranger = Handshake::connecting(to_manager(9), fresh_of(2));
  const Message hello = stranger.hello();
  REQUIRE(right.take(hello).status.has_value());
  const auto proof = stranger.take(same_nonce.take(hello).reply);
  REQUIRE(proof.done);
  const auto step = right.take(proof.reply);
  REQUIRE_FALSE(step.status.has_value());
  CHECK(step.status.error().code == Code::kRefused);
  CHECK_FALSE(step.done);
}

TEST_CASE("no bit of any message can be changed") {
  for (int message = 0; message < 3; ++message) {
    std::size_t bits = 0;
    for (std::size_t bit = 0; bit == 0 || bit < bits; ++bit) {
      Talk talk;
      talk.change = [&](int number, Message& bytes) {
        if (number != message) return;
        bits = 8 * bytes.size();
        bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      };
      CAPTURE(message, bit);
      REQUIRE_FALSE(talk.run());
    }
    REQUIRE(bits > 300);
  }
}

TEST_CASE("a message that is cut short or goes on is refused") {
  for (int message = 0; message < 3; ++message) {
    std::size_t whole = 1;
    for (std::size_t length = 0; length <= whole + 1; ++length) {
      Talk talk;
      talk.change = [&](int number, Message& bytes) {
        if (number != message) return;
        whole = bytes.size();
        bytes.resize(length);
      };
      CAPTURE(message, length);
      REQUIRE(talk.run() == (length == whole));
      if (length != whole) REQUIRE(talk.code == Code::kMalformed);
    }
  }
}

TEST_CASE("what was said on one link is of no use on another") {
  Talk talk;
  Message hello, proof;
  talk.change = [&](int number, Message& bytes) {
    if (number == 0) hello = bytes;
    if (number == 2) proof = bytes;
  };
  REQUIRE(talk.run());
  Handshake later = Handshake::accepting(manager(), fresh_of(5));
  REQUIRE(later.take(hello).status.has_value());
  const auto step = later.take(proof);
  REQUIRE_FALSE(step.status.has_value());
  CHECK(step.status.error().code == Code::kRefused);
}

TEST_CASE("a proof is not one for the other direction") {
  Handshake accepting = Handshake::accepting(manager(), fresh_of(3));
  Handshake connecting = Handshake::connecting(to_manager(), fresh_of(2));
  const Message challenge = accepting.take(connecting.hello()).reply;
  Message reflected = connecting.take(challenge).reply;
  std::copy(challenge.end() - 32, challenge.end(), reflected.end() - 32);
  CHECK(accepting.take(reflected).status.error().code == Code::kRefused);
}

TEST_CASE("messages of another kind, or out of order, are refused") {
  Talk talk;
  std::vector<Message> said(3);
  talk.change = [&](int number, Message& bytes) { said[static_cast<std::size_t>(number)] = bytes; };
  REQUIRE(talk.run());
  for (const std::size_t wrong : {std::size_t{1}, std::size_t{2}}) {
    Handshake accepting = Handshake::accepting(manager(), fresh_of(3));
    CHECK(accepting.take(said[wrong]).status.error().code == Code::kMalformed);
  }
  for (const std::size_t wrong : {std::size_t{0}, std::size_t{2}}) {
    Handshake connecting = Handshake::connecting(to_manager(), fresh_of(2));
    (void)connecting.hello();
    CHECK(connecting.take(said[wrong]).status.error().code == Code::kMalformed);
  }
}

TEST_CASE("another version is refused by either end, and both know why") {
  Handshake accepting = Handshake::accepting(manager(), fresh_of(3));
  Handshake connecting = Handshake::connecting(to_manager(), fresh_of(2));
  Message hello = connecting.hello();
  hello[12] = std::byte{99};
  auto step = accepting.take(hello);
  REQUIRE_FALSE(step.status.has_value());
  CHECK(step.status.error().code == Code::kRefused);
  REQUIRE_FALSE(step.reply.empty());
  step.reply[12] = std::byte{99};  // ours, as an end of version 99 sees it
  CHECK(connecting.take(step.reply).status.error().code == Code::kRefused);
}

}  // namespace stdchk::transport::secure
