#include <algorithm>
#include <vector>

#include "core/base/clock.h"
#include "fork/multicast/cast.h"
#include "fork/multicast/manifest.h"
#include "fork/multicast/messages.h"
#include "tests/support/catch.h"
#include "tests/support/members.h"

namespace stdchk::multicast {
namespace {

using test::secret_of;

std::vector<std::byte> sealed(Datagrams& from, const Message& message) {
  const ByteSpan bytes = from.seal(message);
  return {bytes.begin(), bytes.end()};
}

TEST_CASE("a message comes out as it went in") {
  Datagrams sender(secret_of(1));
  Datagrams receiver(secret_of(1));
  Ask ask;
  ask.rate_kib = 1234;
  ask.delay_us = 99;
  ask.lost_cells = 3;
  ask.done = true;
  ask.wants = {{7, 3, 5}, {1000000, 1, 0xffff}};
  const auto opened = receiver.open(sealed(sender, AskMessage{42, ask}));
  REQUIRE(opened);
  CHECK(opened->from == sender.id());
  const auto* asked = std::get_if<AskMessage>(&opened->message);
  REQUIRE(asked != nullptr);
  CHECK(asked->to == 42);
  CHECK(asked->ask == ask);
  const std::vector<std::byte> bytes(1000, std::byte{9});
  const auto second = receiver.open(sealed(sender, Cell{5, 2, bytes}));
  REQUIRE(second);
  CHECK(second->number == opened->number + 1);
  const auto* cell = std::get_if<Cell>(&second->message);
  REQUIRE(cell != nullptr);
  CHECK((cell->unit == 5 && cell->cell == 2 && std::ranges::equal(cell->bytes, bytes)));
}

TEST_CASE("a datagram of another group, or one that was changed or cut, is refused") {
  Datagrams sender(secret_of(1));
  Datagrams receiver(secret_of(1));
  Datagrams stranger(secret_of(2));
  const std::vector<std::byte> good = sealed(sender, Offer{});
  CHECK(receiver.open(good));
  CHECK_FALSE(receiver.open(sealed(stranger, Offer{})));
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{0x10};
    CHECK_FALSE(receiver.open(bad));
    CHECK_FALSE(receiver.open(ByteSpan(good).first(at)));
  }
  CHECK(receiver.open(good));
}

TEST_CASE("a manifest is known by its root, and knows every unit") {
  std::vector<std::byte> image(600 * kUnitBytes + 77);
  Prng prng(9);
  for (std::byte& each : image) each = static_cast<std::byte>(prng.next());
  const auto made = Manifest::compute(image.size(), [&](std::uint64_t offset, MutableByteSpan out) {
    std::copy_n(image.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return Status();
  });
  REQUIRE(made);
  CHECK(made->own_units() == 2);
  CHECK(made->image_units() == 601);
  Manifest received(image.size());
  CHECK(received.root() != made->root());
  std::vector<std::byte> unit(kUnitBytes);
  for (std::uint32_t i = 0; i < made->own_units(); ++i) {
    made->copy_own_unit(i, unit);
    received.set_own_unit(i, unit);
  }
  CHECK(received.root() == made->root());
  CHECK(received.matches(600, ByteSpan(image).last(77)));
  CHECK_FALSE(received.matches(600, ByteSpan(image).last(78)));
  CHECK_FALSE(received.matches(3, ByteSpan(image).first(kUnitBytes)));
  CHECK(received.matches(0, ByteSpan(image).first(kUnitBytes)));
}

TEST_CASE("cells of a unit fit into a datagram of the interface") {
  CHECK(cells_for(1472) == 12);
  CHECK(cells_for(8972) == 2);
  CHECK(cells_for(65507) == 1);
  CHECK(cells_for(100) == kCellsMax);
}

}  // namespace
}  // namespace stdchk::multicast
