#include "transport/secure/handshake.h"

#include <functional>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace stdchk::transport::secure {
namespace {

using End = Handshake::End;
using Message = std::vector<std::byte>;

Secret secret_of(int seed) {
  Secret secret;
  secret.bytes.fill(static_cast<std::byte>(seed));
  return secret;
}

Handshake::Nonce nonce_of(int seed) {
  Handshake::Nonce nonce;
  nonce.fill(static_cast<std::byte>(seed));
  return nonce;
}

/// Both ends, and what is done to the messages between them: number 0 is the hello.
struct Talk {
  Handshake connecting{End::kConnecting, secret_of(1), Role::kClient, nonce_of(2)};
  Handshake accepting{End::kAccepting, secret_of(1), Role::kManager, nonce_of(3)};
  std::function<void(int, Message&)> change = [](int, Message&) {};
  Code code{};  ///< of the end that failed first

  /// True when both ends are done.
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

TEST_CASE("ends with one secret prove it, know what the other is, and have the same keys") {
  Talk talk;
  REQUIRE(talk.run());
  CHECK(talk.connecting.peer() == Role::kManager);
  CHECK(talk.accepting.peer() == Role::kClient);
  CHECK(talk.connecting.keys().outgoing == talk.accepting.keys().incoming);
  CHECK(talk.connecting.keys().incoming == talk.accepting.keys().outgoing);
  CHECK_FALSE(talk.connecting.keys().outgoing == talk.connecting.keys().incoming);
}

TEST_CASE("each link has keys of its own, whichever end's nonce is new") {
  Talk one;
  REQUIRE(one.run());
  for (const bool connecting : {true, false}) {
    Talk other{{End::kConnecting, secret_of(1), Role::kClient, nonce_of(connecting ? 4 : 2)},
               {End::kAccepting, secret_of(1), Role::kManager, nonce_of(connecting ? 3 : 4)}};
    REQUIRE(other.run());
    CHECK_FALSE(other.connecting.keys().outgoing == one.connecting.keys().outgoing);
    CHECK_FALSE(other.connecting.keys().incoming == one.connecting.keys().incoming);
  }
}

TEST_CASE("who connects finds out that the other end has another secret") {
  Talk talk{{End::kConnecting, secret_of(1), Role::kClient, nonce_of(2)},
            {End::kAccepting, secret_of(9), Role::kManager, nonce_of(3)}};
  CHECK_FALSE(talk.run());
  CHECK(talk.code == Code::kRefused);
}

TEST_CASE("who accepts finds out that the other end has another secret") {
  // One that does not care what the challenge proves, as a stranger would not.
  Handshake right{End::kAccepting, secret_of(1), Role::kManager, nonce_of(3)};
  Handshake same_nonce{End::kAccepting, secret_of(9), Role::kManager, nonce_of(3)};
  Handshake stranger{End::kConnecting, secret_of(9), Role::kClient, nonce_of(2)};
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
  Handshake later{End::kAccepting, secret_of(1), Role::kManager, nonce_of(5)};
  REQUIRE(later.take(hello).status.has_value());
  const auto step = later.take(proof);
  REQUIRE_FALSE(step.status.has_value());
  CHECK(step.status.error().code == Code::kRefused);
}

TEST_CASE("a proof is not one for the other direction") {
  Handshake accepting{End::kAccepting, secret_of(1), Role::kManager, nonce_of(3)};
  Handshake connecting{End::kConnecting, secret_of(1), Role::kClient, nonce_of(2)};
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
    Handshake accepting{End::kAccepting, secret_of(1), Role::kManager, nonce_of(3)};
    CHECK(accepting.take(said[wrong]).status.error().code == Code::kMalformed);
  }
  for (const std::size_t wrong : {std::size_t{0}, std::size_t{2}}) {
    Handshake connecting{End::kConnecting, secret_of(1), Role::kClient, nonce_of(2)};
    (void)connecting.hello();
    CHECK(connecting.take(said[wrong]).status.error().code == Code::kMalformed);
  }
}

TEST_CASE("another version is refused by either end, and both know why") {
  Handshake accepting{End::kAccepting, secret_of(1), Role::kManager, nonce_of(3)};
  Handshake connecting{End::kConnecting, secret_of(1), Role::kClient, nonce_of(2)};
  Message hello = connecting.hello();
  hello[12] = std::byte{99};
  auto step = accepting.take(hello);
  REQUIRE_FALSE(step.status.has_value());
  CHECK(step.status.error().code == Code::kRefused);
  REQUIRE_FALSE(step.reply.empty());
  step.reply[12] = std::byte{99};  // as the end that speaks 99 sees ours
  CHECK(connecting.take(step.reply).status.error().code == Code::kRefused);
}

}  // namespace stdchk::transport::secure
