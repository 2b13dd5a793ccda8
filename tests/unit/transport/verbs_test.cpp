// Tests those parts of the verbs transport that need no device, and its error without one.
#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#include "core/base/limits.h"
#include "tests/support/catch.h"
#include "transport/choice/factory.h"
#include "transport/socket_address.h"
#include "transport/transfer_check.h"
#include "transport/transfer_parts.h"
#include "transport/verbs/fragment.h"
#include "transport/verbs/locked_memory.h"
#include "transport/verbs/message_flow.h"
#include "transport/verbs/peer_regions.h"
#include "transport/verbs/send_queue.h"

namespace stdchk::transport::verbs {

namespace {

constexpr std::uint64_t kMiB = limits::kMiB;

struct Region final : MemoryRegion {
  MutableByteSpan bytes() const override { return memory; }
  RemoteKey remote_key() const override { return {}; }
  MutableByteSpan memory;
};

std::vector<std::byte> bytes_of(std::size_t length, int value = 7) {
  return std::vector<std::byte>(length, static_cast<std::byte>(value));
}

}  // namespace

TEST_CASE("addresses with a port are read and written alike") {
  for (const char* text : {"verbs:10.77.0.1:7471", "verbs:[fe80::1]:1"}) {
    const auto address = parse_address("verbs:", text);
    REQUIRE(address.has_value());
    CHECK(address_text("verbs:", *address) == text);
  }
  for (const char* text :
       {"", "verbs:", "verbs::1", "verbs:host:1", "verbs:10.77.0.1:", "shm:1.2.3.4:5"}) {
    CHECK_FALSE(parse_address("verbs:", text).has_value());
  }
}

TEST_CASE("a transfer must be inside its regions") {
  auto memory = bytes_of(100);
  Region region;
  region.memory = memory;
  const RemoteKey key{1, 0, 50};
  const auto bytes = [&](std::size_t from, std::size_t length, std::uint64_t offset) {
    const std::array pieces{LocalPiece{memory.data() + from, length, &region}};
    return transfer_bytes(pieces, key, offset, 60);
  };
  CHECK(bytes(60, 40, 10) == 40);
  CHECK(bytes(61, 40, 0).error().code == Code::kInvalidArgument);
  CHECK(bytes(0, 40, 11).error().code == Code::kInvalidArgument);
  CHECK(bytes(0, 40, ~std::uint64_t{0} - 5).error().code == Code::kInvalidArgument);
  CHECK(bytes(0, 61, 0).error().code == Code::kTooLarge);
  CHECK(bytes(0, 0, 0).error().code == Code::kInvalidArgument);
  CHECK(transfer_bytes({}, key, 0, 60).error().code == Code::kInvalidArgument);
}

TEST_CASE("a transfer is cut into parts that the device takes, without a gap") {
  auto memory = bytes_of(1000);
  const std::array pieces{LocalPiece{memory.data(), 64, nullptr},
                          LocalPiece{memory.data() + 500, 0, nullptr}};
  std::vector<TransferPart> parts;
  split_transfer(pieces, 4096, {.bytes = 1000}, parts);
  REQUIRE(parts.size() == 1);
  CHECK((parts[0].count == 1 && parts[0].bytes == 64 && parts[0].offset == 4096));

  const std::array two{LocalPiece{memory.data(), 64, nullptr},
                       LocalPiece{memory.data() + 100, 250, nullptr}};
  for (const std::size_t part_pieces : {1U, 2U}) {
    split_transfer(two, 7, {.bytes = 100, .pieces = part_pieces}, parts);
    std::uint64_t offset = 7;
    std::vector<const std::byte*> moved;
    for (const TransferPart& part : parts) {
      CHECK(part.offset == offset);
      CHECK((part.bytes <= 100 && part.count >= 1 && part.count <= part_pieces));
      for (std::size_t i = 0; i < part.count; ++i) {
        for (std::size_t at = 0; at < part.pieces[i].length; ++at) {
          moved.push_back(part.pieces[i].data + at);
        }
      }
      offset += part.bytes;
    }
    REQUIRE(moved.size() == 314);
    for (std::size_t i = 0; i < moved.size(); ++i) {
      CHECK(moved[i] == memory.data() + (i < 64 ? i : 100 + i - 64));
    }
  }
}

TEST_CASE("no part crosses an end of a part of a region, here or there") {
  auto memory = bytes_of(1000);
  Region region;
  region.memory = memory;
  std::vector<LocalPiece> pieces;
  cut_piece({memory.data() + 90, 250, &region}, 100, pieces);  // cuts at 100, 200 and 300
  REQUIRE(pieces.size() == 4);
  CHECK((pieces[0].length == 10 && pieces[1].length == 100 && pieces[3].length == 40));
  std::vector<TransferPart> parts;
  split_transfer(pieces, 130, {.bytes = 1000, .remote_bytes = 128}, parts);  // cuts at 256
  std::uint64_t offset = 130;
  const std::byte* local = memory.data() + 90;
  for (const TransferPart& part : parts) {
    CHECK(part.offset == offset);
    CHECK(part.offset / 128 == (part.offset + part.bytes - 1) / 128);
    for (std::size_t i = 0; i < part.count; ++i) {
      const auto from = static_cast<std::size_t>(part.pieces[i].data - memory.data());
      CHECK(part.pieces[i].data == local);
      CHECK(from / 100 == (from + part.pieces[i].length - 1) / 100);
      local += part.pieces[i].length;
    }
    offset += part.bytes;
  }
  CHECK(offset == 380);
  CHECK(local == memory.data() + 340);
}

TEST_CASE("a table of a region's parts comes through, and nothing else is taken for one") {
  const RegionTable table{3, 1U << 20, {7, 9, 11}};
  const auto bytes = encode(table);
  const auto got = decode_region_table(bytes);
  REQUIRE(got.has_value());
  CHECK((got->number == 3 && got->part_bytes == 1U << 20 && got->keys == table.keys));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    CHECK_FALSE(decode_region_table(ByteSpan(bytes).first(length)).has_value());
  }
  CHECK_FALSE(decode_region_table(encode({0, 1, {1}})).has_value());
  CHECK_FALSE(decode_region_table(encode({1, 0, {1}})).has_value());
  CHECK_FALSE(decode_region_table(encode({1, 1, {}})).has_value());
  CHECK_FALSE(decode_region_table(encode({1, 1, std::vector<std::uint32_t>(kRegionPartsMax + 1)}))
                  .has_value());
}

TEST_CASE("a key of a region in parts is good only after its table") {
  PeerRegions peer;
  peer.expect(1);
  CHECK_FALSE(peer.has_all());
  const RemoteKey key{std::uint64_t{3} << 32, 0, 25};
  CHECK(peer.table_of(key).error().code == Code::kInvalidArgument);
  CHECK(peer.table_of({77, 0, 25}) == nullptr);  // one part needs no table
  peer.add({3, 10, {1, 2, 3}});
  CHECK(peer.has_all());
  REQUIRE(peer.table_of(key).has_value());
  CHECK(peer.table_of(key).value()->keys.size() == 3);
  CHECK_FALSE(peer.table_of({key.key | 1, 0, 25}).has_value());
  CHECK_FALSE(peer.table_of({key.key, 0, 31}).has_value());  // longer than its parts together
}

TEST_CASE("a flow of messages sends no fragment without a credit, and returns the peer's credits") {
  MessageFlow sender(kMiB);
  MessageFlow receiver(kMiB);
  sender.add(bytes_of(kFragmentContentMax * kCredits + 100), FragmentKind::kMessage);
  std::size_t fragments = 0;
  std::size_t bytes = 0;
  const auto send_all = [&] {
    while (sender.has_waiting() && sender.has_credit()) {
      const MessageFlow::Fragment fragment = sender.first();
      const FragmentHeader header = sender.header_for(fragment.message_bytes, fragment.kind);
      REQUIRE(receiver.take(header).has_value());
      const auto message = receiver.join(header, fragment.content);
      REQUIRE(message.has_value());
      if (message->has_value()) bytes = (*message)->size();
      sender.drop_first(fragment.content.size());
      ++fragments;
    }
  };
  send_all();
  CHECK(fragments == kCredits);
  CHECK(sender.has_waiting());
  REQUIRE(receiver.must_return_credits());
  REQUIRE(sender.take(receiver.header_for(0, FragmentKind::kOnlyCredits)).has_value());
  CHECK_FALSE(receiver.must_return_credits());
  send_all();
  CHECK(fragments == kCredits + 1);
  CHECK(bytes == kFragmentContentMax * kCredits + 100);
  CHECK_FALSE(sender.has_waiting());
}

TEST_CASE("credits that nobody gave are refused") {
  MessageFlow flow(kMiB);
  CHECK(flow.take({1, 1, FragmentKind::kMessage}).error().code == Code::kMalformed);
  for (int i = 0; i < kCredits; ++i) REQUIRE(flow.take({1, 0, FragmentKind::kMessage}).has_value());
  CHECK(flow.take({1, 0, FragmentKind::kMessage}).error().code == Code::kMalformed);
}

TEST_CASE("a queue of messages is limited") {
  MessageFlow flow(kMiB);
  CHECK_FALSE(flow.has_room(MessageFlow::kWaitingBytesMax + 1));
  for (std::size_t i = 0; i < MessageFlow::kWaitingMax; ++i) {
    REQUIRE(flow.has_room(1));
    flow.add(bytes_of(1), FragmentKind::kMessage);
  }
  CHECK_FALSE(flow.has_room(1));
}

TEST_CASE("one completion ends all entries before it") {
  SendQueue queue(4);
  for (int round = 0; round < 1000; ++round) {
    const std::uint32_t first = queue.push({});
    const std::uint32_t second = queue.push({});
    const std::uint32_t third = queue.push({});
    CHECK(queue.room() == 1);
    CHECK(queue.count_through(first) == 1);
    CHECK(queue.count_through(second) == 2);
    queue.pop();
    queue.pop();
    CHECK(queue.count_through(second) == 0);  // already removed
    CHECK(queue.count_through(third) == 1);
    CHECK(queue.count_through(third + 1) == 0);  // never pushed
    queue.pop();
    CHECK(queue.empty());
  }
}

TEST_CASE("fragments become the message that was cut") {
  Assembler assembler(1000);
  const auto one = bytes_of(10);
  auto message = assembler.add({.message_bytes = 10}, one);
  REQUIRE((message.has_value() && message->has_value()));
  CHECK((**message).data() == one.data());  // not copied
  message = assembler.add({.message_bytes = 0}, {});
  REQUIRE((message.has_value() && message->has_value()));
  CHECK((**message).empty());
  for (int round = 0; round < 2; ++round) {
    REQUIRE_FALSE(assembler.add({.message_bytes = 25}, bytes_of(10, 1))->has_value());
    REQUIRE_FALSE(assembler.add({.message_bytes = 25}, bytes_of(10, 2))->has_value());
    message = assembler.add({.message_bytes = 25}, bytes_of(5, 3));
    REQUIRE((message.has_value() && message->has_value()));
    REQUIRE((**message).size() == 25);
    CHECK(((**message)[9] == std::byte{1} && (**message)[10] == std::byte{2} &&
           (**message)[24] == std::byte{3}));
  }
}

TEST_CASE("fragments that no peer of this version sends are refused") {
  CHECK_FALSE(Assembler(1000).add({.message_bytes = 1001}, bytes_of(10)).has_value());
  CHECK_FALSE(Assembler(1000).add({.message_bytes = 5}, bytes_of(10)).has_value());
  CHECK_FALSE(Assembler(1000).add({.message_bytes = 5}, {}).has_value());
  Assembler assembler(1000);
  REQUIRE(assembler.add({.message_bytes = 25}, bytes_of(20)).has_value());
  CHECK_FALSE(assembler.add({.message_bytes = 25}, bytes_of(6)).has_value());
  CHECK_FALSE(assembler.add({.message_bytes = 25}, {}).has_value());
  CHECK_FALSE(assembler.add({.message_bytes = 1}, bytes_of(1)).has_value());
}

TEST_CASE("only a peer of the same version is greeted, with padding or without") {
  Greeting mine;
  mine.tables = 3;
  std::vector<std::byte> bytes(56);
  std::memcpy(bytes.data(), &mine, sizeof(mine));
  CHECK(greeting_of(bytes) == mine);
  CHECK(greeting_of(ByteSpan(bytes).first(sizeof(mine))) == mine);
  CHECK_FALSE(greeting_of(ByteSpan(bytes).first(sizeof(mine) - 1)).has_value());
  for (std::size_t i = 0; i < offsetof(Greeting, tables); ++i) {
    auto other = bytes;
    other[i] ^= std::byte{1};
    CHECK_FALSE(greeting_of(other).has_value());
  }
}

TEST_CASE("too little lockable memory is seen before it is asked for") {
  constexpr const char* kUser =
      "Name:\tx\nVmLck:\t  64 kB\nVmPin:\t    1024 kB\nCapEff:\t0000000000000000\n";
  constexpr const char* kRoot = "CapEff:\t000001ffffffffff\nVmPin:\t0 kB\n";
  const LockedMemory user = locked_memory(kUser, 8 * kMiB);
  CHECK(user.pinned_bytes == kMiB);
  CHECK(user.check(7 * kMiB, "here").has_value());
  const Status refused = user.check(7 * kMiB + 1, "here");
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == Code::kMemlock);
  CHECK(describe(refused.error()).find("ulimit -l") != std::string::npos);
  CHECK(locked_memory(kUser, ~std::uint64_t{0}).check(1000 * kMiB, "here").has_value());
  CHECK(locked_memory(kRoot, 0).check(1000 * kMiB, "here").has_value());
  CHECK_FALSE(locked_memory("", 0).check(1, "here").has_value());
}

TEST_CASE("an address that no verbs device has is refused with a remedy") {
  SystemClock clock;
  const auto endpoint =
      // a documentation address (RFC 5737), which no interface has
      open_endpoint("verbs", {.clock = &clock, .listen_host = "192.0.2.1"});
  REQUIRE_FALSE(endpoint.has_value());
  CHECK(endpoint.error().code == Code::kUnsupported);
  const std::string text = describe(endpoint.error());
  CHECK((text.find("rdma link") != std::string::npos ||
         text.find("rdma_ucm") != std::string::npos || text.find("install") != std::string::npos));
}

}  // namespace stdchk::transport::verbs
