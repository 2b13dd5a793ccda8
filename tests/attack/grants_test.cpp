// A client tries to write into a benefactor's memory outside its grants.
#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "benefactor/service/write_grants.h"
#include "core/base/log.h"
#include "tests/attack/member.h"
#include "tests/attack/stranger.h"
#include "transport/secure/grant_proof.h"
#include "transport/secure/handshake.h"

namespace stdchk::attack {
namespace {

using benefactor::ClientWriteCheck;
using benefactor::WriteGrants;
using transport::RemoteKey;
using transport::tcp::FrameHeader;
using transport::tcp::FrameType;
using transport::tcp::GrantContent;

constexpr ClientId kClient{100};
constexpr ClientId kOther{101};
constexpr BenefactorId kLender{5};
constexpr std::uint64_t kPart = kBytes / 4;

Grant granted(std::uint64_t number, std::uint64_t offset, ClientId client = kClient,
              std::uint64_t length = kPart) {
  Grant grant{GrantId{number}, kLender, offset, length};
  transport::secure::prove(secret_of(9), client, grant);
  return grant;
}

/// A benefactor's memory, and a client with a link to it that is checked.
struct Scene {
  explicit Scene(bool trusted_network = false)
      : lender(transport::secure::Role::kManager, {.trusted_network = trusted_network}),
        client(transport::secure::Role::kClient) {
    log::start("test", log::Level::kError);
    std::ranges::fill(client.memory, std::byte{0xEE});
    side = &client.connect(lender);
    REQUIRE(lender.until([&] { return side->connected && !lender.sides.empty(); }, &client));
    key = lender.sides.back()->link->share_checked(
        *lender.region, std::make_shared<ClientWriteCheck>(grants, secret_of(9), kLender, kClient));
  }
  /// True: the bytes are there.
  bool write(std::uint64_t offset, std::size_t length) {
    Sent sent;
    const std::array pieces{
        transport::LocalPiece{client.memory.data(), length, client.region.get()}};
    if (!side->link->write(pieces, key, offset, sent)) return false;
    REQUIRE(lender.until([&] { return sent.ended; }, &client));
    return sent.good;
  }
  /// The bytes of `value` in the benefactor's memory.
  std::ptrdiff_t count(std::byte value) const { return std::ranges::count(lender.memory, value); }

  WriteGrants grants;
  Member lender;
  Member client;
  Side* side = nullptr;
  RemoteKey key;
};

}  // namespace

TEST_CASE("a write right behind its grant lands, and the whole region can be read") {
  const bool in_clear = GENERATE(false, true);
  Scene scene(in_clear);
  REQUIRE(scene.side->link->present(scene.key, granted(1, kPart)));
  CHECK(scene.write(kPart, kPart));  // longer than what goes inside TLS in any case
  CHECK(scene.count(std::byte{0xEE}) == kPart);
  REQUIRE(scene.side->link->present(scene.key, granted(2, 0, kClient, 8)));
  CHECK(scene.write(0, 8));
  Sent read;
  const std::array pieces{
      transport::LocalPiece{scene.client.memory.data(), kBytes, scene.client.region.get()}};
  REQUIRE(scene.side->link->read(pieces, scene.key, 0, read));
  REQUIRE(scene.lender.until([&] { return read.ended; }, &scene.client));
  CHECK(read.good);
  CHECK(scene.client.memory == scene.lender.memory);
}

TEST_CASE("a write outside the grants ends the link and changes nothing") {
  Scene scene(GENERATE(false, true));
  const std::size_t length = GENERATE(std::size_t{8}, kPart);
  SECTION("without a grant") { CHECK_FALSE(scene.write(0, length)); }
  SECTION("beside the grant") {
    REQUIRE(scene.side->link->present(scene.key, granted(1, kPart)));
    CHECK_FALSE(scene.write(2 * kPart - length + 1, length));
  }
  SECTION("with a grant of another client") {
    REQUIRE(scene.side->link->present(scene.key, granted(1, 0, kOther)));
    CHECK_FALSE(scene.write(0, length));
  }
  SECTION("with a grant that was made longer") {
    Grant longer = granted(1, 0);
    longer.length *= 2;
    REQUIRE(scene.side->link->present(scene.key, longer));
    CHECK_FALSE(scene.write(0, length));
  }
  SECTION("with a proof that is guessed") {
    Grant guessed = granted(1, 0);
    guessed.proof_low ^= 1;
    REQUIRE(scene.side->link->present(scene.key, guessed));
    CHECK_FALSE(scene.write(0, length));
  }
  SECTION("where another client has a newer grant") {
    REQUIRE(scene.side->link->present(scene.key, granted(1, 0)));
    CHECK(scene.write(0, 8));
    std::ranges::fill(scene.lender.memory, std::byte{0});
    scene.grants.grant(0, kPart, GrantId{2}, kOther);
    CHECK_FALSE(scene.write(0, length));
  }
  SECTION("where the benefactor has made a copy, by a grant from before") {
    scene.grants.close(0, kPart, GrantId{2});
    REQUIRE(scene.side->link->present(scene.key, granted(1, 0)));
    CHECK_FALSE(scene.write(0, length));
  }
  CHECK(scene.count(std::byte{0xEE}) == 0);
  CHECK(scene.lender.until([&] { return scene.lender.sides.back()->closed; }, &scene.client));
}

TEST_CASE("a grant for memory that is not checked ends the link") {
  Scene scene;
  const RemoteKey open = scene.lender.sides.back()->link->share(*scene.lender.region);
  REQUIRE(scene.side->link->present(open, granted(1, 0)));
  CHECK(scene.lender.until([&] { return scene.lender.sides.back()->closed; }, &scene.client));
}

/// The client sends a part of a write, waits until the space is another client's, and sends the
/// rest.
TEST_CASE("a write under way ends when its space goes to another client") {
  WriteGrants grants;
  Member lender;
  std::atomic<int> step{0};
  RemoteKey key;
  bool closed = false;
  std::thread client([&] {
    const int socket = connect_to(lender.endpoint->address());
    const auto name =
        transport::secure::Keyring::of_root(
            secret_of(1), transport::secure::new_member(transport::secure::Role::kClient))
            .to_manager();
    const auto encoded = name.name.encode();
    TlsOffer offer;
    offer.psk = derive(name.key, "TLS 1.3 psk", encoded);
    offer.identity.assign(encoded.begin(), encoded.end());
    handshake(socket, true, offer, [&](SSL* ssl) {
      const auto put = [&](ByteSpan bytes) {
        std::size_t written = 0;
        return SSL_write_ex(ssl, bytes.data(), bytes.size(), &written) == 1;
      };
      const auto head = [&](const FrameHeader& header) { return put(header.encode()); };
      head({.type = FrameType::kHello, .id = transport::secure::kProtocolVersion});
      while (step < 1) ::usleep(1000);
      const Grant grant = granted(1, 0);
      head({.type = FrameType::kGrant, .length = GrantContent::kBytes, .id = 1, .key = key.key});
      put(GrantContent{grant.length, grant.proof_low, grant.proof_high}.encode());
      head({.type = FrameType::kWrite, .last = true, .length = kPart, .id = 256, .key = key.key});
      const std::vector<std::byte> content(kPart, std::byte{0xEE});
      put(ByteSpan(content).first(100));
      step = 2;
      while (step < 3) ::usleep(1000);
      put(ByteSpan(content).subspan(100));
      std::array<std::byte, 256> bytes{};
      std::size_t got = 0;
      const timeval patience{3, 0};
      ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
      errno = 0;
      while (SSL_read_ex(ssl, bytes.data(), bytes.size(), &got) == 1) {
      }
      closed = errno != EAGAIN;
    });
    ::close(socket);
    step = 4;
  });
  const bool let_in = lender.until([&] { return !lender.sides.empty(); });
  CHECK(let_in);
  if (let_in) {
    key = lender.sides.back()->link->share_checked(
        *lender.region, std::make_shared<ClientWriteCheck>(grants, secret_of(9), kLender, kClient));
  }
  step = 1;
  const auto arrived = [&] { return std::ranges::count(lender.memory, std::byte{0xEE}); };
  CHECK(lender.until([&] { return step == 2 && arrived() == 100; }));
  grants.grant(0, kPart, GrantId{2}, kOther);
  step = 3;
  CHECK(lender.until([&] { return step == 4; }));
  client.join();
  CHECK(closed);
  CHECK(arrived() == 100);
}

}  // namespace stdchk::attack
