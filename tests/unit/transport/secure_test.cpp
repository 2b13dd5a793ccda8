#include <string>
#include <vector>

#include "core/base/limits.h"
#include "tests/support/members.h"
#include "tests/unit/transport/link_pair.h"
#include "transport/mem/mem.h"
#include "transport/sealed/sealed.h"

namespace stdchk::transport {
namespace {

using test::member_of;
using test::secret_of;
using namespace std::chrono_literals;
using secure::Keyring;
using secure::Member;
using secure::Role;
using secure::SecureEndpoint;

/// A member of the pool of that root secret: managers know it, the others have their own key.
std::shared_ptr<Keyring> identity(Role role, int root = 1) {
  const Keyring manager = Keyring::of_root(secret_of(root), secure::kAnyManager);
  if (role == Role::kManager) return std::make_shared<Keyring>(manager);
  return std::make_shared<Keyring>(Keyring::of_member(manager.key_of(member_of(role, 5))));
}

/// A pool's member that listens at "mem:member", and whoever comes.
struct World {
  World() { REQUIRE(member.listen(at_member).has_value()); }
  std::unique_ptr<SecureEndpoint> make(const std::string& name, std::shared_ptr<Keyring> who) {
    return std::make_unique<SecureEndpoint>(fabric.make_endpoint(name, clock), clock,
                                            std::move(who));
  }
  void turn(std::initializer_list<Endpoint*> others, Duration step = 0ns) {
    for (int i = 0; i < 12; ++i) {
      member.poll();
      for (Endpoint* other : others) other->poll();
      clock.advance(step);
    }
  }
  mem::Fabric fabric;
  ManualClock clock;
  SecureEndpoint member{fabric.make_endpoint("member", clock), clock, identity(Role::kManager)};
  Side at_member;
};

/// Reads, and may change, the frames between two ends.
struct Middle {
  struct End : LinkHandler, AcceptHandler {
    void on_accept(std::unique_ptr<Link> taken) override {
      link = std::move(taken);
      link->set_handler(*this);
      middle->onward.link = std::move(*middle->endpoint->connect("mem:member", middle->onward, 1s));
    }
    void on_connected(Link&) override {}
    void on_message(Link&, ByteSpan message) override {
      middle->seen.emplace_back(message.begin(), message.end());
      if (middle->holds) return;
      waiting.emplace_back(message.begin(), message.end());
    }
    void on_closed(Link&, Error) override { closed = true; }
    void pass_on(End& to) {
      while (!waiting.empty() && to.link && to.link->connected()) {
        REQUIRE(to.link->send(waiting.front()).has_value());
        waiting.erase(waiting.begin());
      }
    }
    Middle* middle = nullptr;
    std::unique_ptr<Link> link;
    std::vector<std::vector<std::byte>> waiting;
    bool closed = false;
  };
  explicit Middle(World& world) : endpoint(world.fabric.make_endpoint("middle", world.clock)) {
    nearer.middle = onward.middle = this;
    REQUIRE(endpoint->listen(nearer).has_value());
  }
  ~Middle() {
    nearer.link.reset();
    onward.link.reset();
  }
  void pass_on() {
    nearer.pass_on(onward);
    onward.pass_on(nearer);
  }
  std::unique_ptr<Endpoint> endpoint;
  End nearer;
  End onward;
  bool holds = false;  ///< passes nothing on by itself
  std::vector<std::vector<std::byte>> seen;
};

/// A client connected to the member through the middle.
struct Relayed {
  Relayed() {
    client.link = std::move(*endpoint->connect("mem:middle", client, 1s));
    turn();
    REQUIRE(client.connected == 1);
    REQUIRE(world.at_member.link != nullptr);
    middle.seen.clear();
  }
  ~Relayed() {
    client.link.reset();
    world.at_member.link.reset();
  }
  void turn() {
    for (int i = 0; i < 4; ++i) {
      world.turn({endpoint.get(), middle.endpoint.get()});
      middle.pass_on();
    }
  }
  World world;
  Middle middle{world};
  std::unique_ptr<SecureEndpoint> endpoint = world.make("client", identity(Role::kClient));
  Side client;
};

}  // namespace

TEST_CASE("members are connected, send messages and reach each other's memory") {
  World world;
  const auto endpoint = world.make("client", identity(Role::kClient));
  Side client;
  client.link = std::move(*endpoint->connect("mem:member", client, 1s));
  CHECK_FALSE(client.link->connected());
  world.turn({endpoint.get()});
  REQUIRE(client.connected == 1);
  REQUIRE(world.at_member.link != nullptr);
  CHECK(world.member.arriving() == 0);
  REQUIRE(client.link->peer() != nullptr);
  CHECK(client.link->peer()->member == secure::kAnyManager);
  REQUIRE(world.at_member.link->peer() != nullptr);
  CHECK(world.at_member.link->peer()->member == member_of(Role::kClient, 5));
  const std::string longest(endpoint->capabilities().message_bytes_max, 'x');
  REQUIRE(client.link->send(bytes_of("there")).has_value());
  REQUIRE(client.link->send({}).has_value());
  REQUIRE(client.link->send(bytes_of(longest)).has_value());
  CHECK(client.link->send(bytes_of(longest + "y")).error().code == Code::kTooLarge);
  REQUIRE(world.at_member.link->send(bytes_of("and back")).has_value());
  world.turn({endpoint.get()});
  CHECK(world.at_member.messages == std::vector<std::string>{"there", "", longest});
  CHECK(client.messages == std::vector<std::string>{"and back"});

  std::array<std::byte, 64> here{}, there{};
  here.fill(std::byte{5});
  const auto local = std::move(*endpoint->register_memory(here));
  const auto remote = std::move(*world.member.register_memory(there));
  Op op;
  const LocalPiece piece{here.data(), here.size(), local.get()};
  REQUIRE(client.link->write({&piece, 1}, remote->remote_key(), 0, op).has_value());
  world.turn({endpoint.get()});
  CHECK(op.completions == 1);
  CHECK(there == here);
  client.link.reset();
  world.turn({endpoint.get()});
  CHECK(world.at_member.closed == 1);
}

TEST_CASE("a stranger is never handed over, whatever it says") {
  World world;
  const auto stranger = world.fabric.make_endpoint("stranger", world.clock);
  Prng prng(1);
  for (int round = 0; round < 200; ++round) {
    Side side;
    side.link = std::move(*stranger->connect("mem:member", side, 1s));
    world.turn({stranger.get()});
    REQUIRE(side.connected == 1);
    std::vector<std::byte> garbage(prng.below(200));
    for (std::byte& each : garbage) each = static_cast<std::byte>(prng.below(256));
    REQUIRE(side.link->send(garbage).has_value());
    world.turn({stranger.get()});
    CHECK(side.closed == 1);
    CHECK(side.messages.empty());
  }
  CHECK(world.at_member.link == nullptr);
  CHECK(world.member.arriving() == 0);
}

TEST_CASE("another pool's secret is refused, and who has it is told why") {
  World world;
  const auto endpoint = world.make("client", identity(Role::kClient, 2));
  Side client;
  client.link = std::move(*endpoint->connect("mem:member", client, 1s));
  world.turn({endpoint.get()});
  CHECK(client.connected == 0);
  CHECK(client.closed == 1);
  CHECK(client.code == Code::kRefused);
  CHECK(client.link->send(bytes_of("x")).error().code == Code::kPeerLost);
  CHECK(world.at_member.link == nullptr);
}

TEST_CASE("who says nothing, or stops half way, is dropped in time") {
  World world;
  const auto stranger = world.fabric.make_endpoint("stranger", world.clock);
  const bool says_hello = GENERATE(false, true);
  Side side;
  side.link = std::move(*stranger->connect("mem:member", side, 1s));
  world.turn({stranger.get()});
  if (says_hello) {
    auto handshake = secure::Handshake::connecting(identity(Role::kClient, 9)->to_manager(),
                                                   secure::Handshake::fresh());
    REQUIRE(side.link->send(handshake.hello()).has_value());
  }
  world.turn({stranger.get()});
  CHECK(side.messages.size() == (says_hello ? 1U : 0U));
  CHECK(world.member.arriving() == 1);
  CHECK(world.member.sleep_max() < 100ms);
  world.turn({stranger.get()}, Duration(limits::kConnectDeadline) / 11);
  world.turn({stranger.get()});
  CHECK(world.member.arriving() == 0);
  CHECK(side.closed == 1);
  CHECK(world.at_member.link == nullptr);
}

TEST_CASE("a listener that does not answer the handshake is given up in time") {
  World world;
  const auto silent = world.fabric.make_endpoint("silent", world.clock);
  Side listener;
  REQUIRE(silent->listen(listener).has_value());
  const auto endpoint = world.make("client", identity(Role::kClient));
  Side client;
  client.link = std::move(*endpoint->connect("mem:silent", client, 1s));
  world.turn({endpoint.get(), silent.get()}, 110ms);
  world.turn({endpoint.get(), silent.get()});
  CHECK(client.connected == 0);
  CHECK(client.closed == 1);
  CHECK(client.code == Code::kDeadline);
  listener.link.reset();
}

TEST_CASE("however many strangers there are, members come through") {
  World world;
  const auto stranger = world.fabric.make_endpoint("stranger", world.clock);
  std::vector<std::unique_ptr<Side>> sides;
  for (std::size_t i = 0; i < SecureEndpoint::kArrivingMax + 100; ++i) {
    sides.push_back(std::make_unique<Side>());
    sides.back()->link = std::move(*stranger->connect("mem:member", *sides.back(), 1s));
    world.member.poll();
    CHECK(world.member.arriving() <= SecureEndpoint::kArrivingMax);
  }
  CHECK(world.member.arriving() == SecureEndpoint::kArrivingMax);
  const auto endpoint = world.make("client", identity(Role::kClient));
  Side client;
  client.link = std::move(*endpoint->connect("mem:member", client, 1s));
  world.turn({endpoint.get()});
  CHECK(client.connected == 1);
  client.link.reset();
  world.at_member.link.reset();
}

TEST_CASE("a ticket opens a link to its member, and nothing but a ticket does") {
  World world;
  const Keyring manager = Keyring::of_root(secret_of(1), secure::kAnyManager);
  const auto lender = world.make("lender", identity(Role::kBenefactor));
  Side at_lender;
  REQUIRE(lender->listen(at_lender).has_value());
  const auto endpoint = world.make("client", identity(Role::kClient));
  const secure::Ticket ticket =
      manager.ticket(member_of(Role::kClient, 5), member_of(Role::kBenefactor, 5), 77);
  Side client, bare;
  client.link = std::move(*endpoint->connect("mem:lender", client, 1s, &ticket));
  world.turn({endpoint.get(), lender.get()});
  REQUIRE(client.connected == 1);
  CHECK(client.link->peer()->member == member_of(Role::kBenefactor, 5));
  REQUIRE(at_lender.link != nullptr);
  CHECK(at_lender.link->peer()->member == member_of(Role::kClient, 5));
  CHECK(at_lender.link->peer()->number == 77);
  at_lender.link.reset();
  bare.link = std::move(*endpoint->connect("mem:lender", bare, 1s));
  world.turn({endpoint.get(), lender.get()});
  CHECK(bare.connected == 0);
  CHECK(bare.closed == 1);
  const auto thief = world.make(
      "thief",
      std::make_shared<Keyring>(Keyring::of_member(manager.key_of(member_of(Role::kClient, 6)))));
  Side stolen;  // a link ends before its endpoint
  stolen.link = std::move(*thief->connect("mem:lender", stolen, 1s, &ticket));
  world.turn({thief.get(), lender.get()});
  CHECK(stolen.connected == 0);
  CHECK(stolen.closed == 1);
  CHECK(at_lender.link == nullptr);
}

TEST_CASE("who only passes messages on learns nothing of them") {
  Relayed relayed;
  REQUIRE(relayed.client.link->send(bytes_of("the arena's key")).has_value());
  relayed.turn();
  REQUIRE(relayed.world.at_member.messages == std::vector<std::string>{"the arena's key"});
  REQUIRE(relayed.middle.seen.size() == 1);
  const auto& seen = relayed.middle.seen.front();
  const std::string text(reinterpret_cast<const char*>(seen.data()), seen.size());
  CHECK(text.find("arena") == std::string::npos);
}

TEST_CASE("a message that was changed, repeated or left out ends the link") {
  const int what = GENERATE(0, 1, 2);
  Relayed relayed;
  relayed.middle.holds = true;
  REQUIRE(relayed.client.link->send(bytes_of("first")).has_value());
  REQUIRE(relayed.client.link->send(bytes_of("second")).has_value());
  relayed.turn();
  REQUIRE(relayed.middle.seen.size() == 2);
  auto [first, second] = std::pair(relayed.middle.seen[0], relayed.middle.seen[1]);
  auto& waiting = relayed.middle.nearer.waiting;
  if (what == 0) {
    first[2] ^= std::byte{1};
    waiting = {first, second};
  } else if (what == 1) {
    waiting = {first, first};
  } else {
    waiting = {second};
  }
  relayed.turn();
  CHECK(relayed.world.at_member.messages.size() == (what == 1 ? 1U : 0U));
  CHECK(relayed.world.at_member.closed == 1);
  CHECK(relayed.world.at_member.code != Code{});
}

}  // namespace stdchk::transport
