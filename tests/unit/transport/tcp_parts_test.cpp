// Tests the parts of a TcpLink that need no socket.
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/limits.h"
#include "tests/support/catch.h"
#include "transport/tcp/arrivals.h"
#include "transport/tcp/clear_content.h"
#include "transport/tcp/incoming_frame.h"
#include "transport/tcp/poller.h"
#include "transport/tcp/send_queue.h"
#include "transport/tcp/transfer_table.h"

namespace stdchk::transport::tcp {
namespace {

using namespace std::chrono_literals;

/// Counts its ends; may end the table, as a handler may destroy its link.
struct Probe final : Operation {
  explicit Probe(std::unique_ptr<TransferTable>* to_end = nullptr) : ends(to_end) {}
  void complete(Status status) override {
    ++count;
    good = status.has_value();
    if (ends != nullptr) ends->reset();
  }
  int count = 0;
  bool good = false;
  std::unique_ptr<TransferTable>* ends;
};

struct Table {
  ManualClock clock;
  std::size_t all = 0;
  std::unique_ptr<TransferTable> table = std::make_unique<TransferTable>(clock, all);
};

/// The frames that a queue sends, as their peer collects them. Content goes to `into`.
std::vector<FrameHeader> sent_by(SendQueue& queue, std::vector<std::byte>& into) {
  std::vector<FrameHeader> headers;
  IncomingFrame frame;
  while (queue.has_frames()) {
    ByteSpan record = queue.next_record();
    REQUIRE(record.size() <= TlsSession::kRecordBytesMax);
    while (!record.empty()) {
      const MutableByteSpan room = frame.room();
      const std::size_t part = std::min(room.size(), record.size());
      std::memcpy(room.data(), record.data(), part);
      record = record.subspan(part);
      if (frame.add(part)) {
        REQUIRE(frame.decode());
        headers.push_back(frame.header());
        if (frame.header().type == FrameType::kMessage) frame.expect_message();
        if (frame.header().type == FrameType::kWrite) {
          const auto offset = static_cast<std::size_t>(frame.header().offset);
          frame.expect_content(
              {.pieces = Pieces(MutableByteSpan(into).subspan(offset, frame.header().length))});
        }
      }
      if (frame.is_complete()) frame.next();
    }
  }
  return headers;
}

/// The counted part of an IPv4 or IPv6 address in text form.
Arrivals::Address address_of(const char* text) {
  sockaddr_storage peer{};
  auto& in = reinterpret_cast<sockaddr_in&>(peer);
  auto& in6 = reinterpret_cast<sockaddr_in6&>(peer);
  if (::inet_pton(AF_INET, text, &in.sin_addr) == 1) {
    peer.ss_family = AF_INET;
  } else {
    REQUIRE(::inet_pton(AF_INET6, text, &in6.sin6_addr) == 1);
    peer.ss_family = AF_INET6;
  }
  return Arrivals::address_of(peer);
}

}  // namespace

TEST_CASE(
    "hosts are counted by their IPv4 address, or by the first 64 bits of their IPv6 address") {
  CHECK(address_of("10.1.2.3") == address_of("::ffff:10.1.2.3"));
  CHECK(address_of("10.1.2.3") != address_of("10.1.2.4"));
  CHECK(address_of("::ffff:10.1.2.3") != address_of("::ffff:10.1.2.4"));
  CHECK(address_of("2001:db8:1:2::1") == address_of("2001:db8:1:2:ffff::9"));
  CHECK(address_of("2001:db8:1:2::1") != address_of("2001:db8:1:3::1"));
}

TEST_CASE("beyond the limit of an address, its own oldest connection goes") {
  const auto flooding = address_of("10.0.0.1");
  const auto other = address_of("10.0.0.2");
  Arrivals arrivals(100, 3);
  CHECK(arrivals.admit(1, other) == std::nullopt);
  for (std::uint64_t number = 2; number <= 4; ++number) {
    CHECK(arrivals.admit(number, flooding) == std::nullopt);
  }
  for (std::uint64_t number = 5; number <= 50; ++number) {
    CHECK(arrivals.admit(number, flooding) == number - 3);
    CHECK(arrivals.size() == 4);
  }
  arrivals.leave(49);  // its peer is proven
  arrivals.leave(49);
  CHECK(arrivals.size() == 3);
  CHECK(arrivals.admit(51, flooding) == std::nullopt);
}

TEST_CASE("beyond the limit of all, the oldest connection of the address with most goes") {
  const std::array hosts{address_of("10.0.0.1"), address_of("10.0.0.2"), address_of("10.0.0.3")};
  Arrivals arrivals(6, 4);
  std::uint64_t number = 0;
  CHECK(arrivals.admit(++number, hosts[0]) == std::nullopt);
  CHECK(arrivals.admit(++number, hosts[1]) == std::nullopt);
  for (int i = 0; i < 4; ++i) CHECK(arrivals.admit(++number, hosts[2]) == std::nullopt);
  CHECK(arrivals.size() == 6);
  // A host without a connection gets a place. The host with four connections loses its oldest.
  CHECK(arrivals.admit(++number, address_of("10.0.0.4")) == 3);
  CHECK(arrivals.admit(++number, hosts[0]) == 4);
  CHECK(arrivals.size() == 6);
  // Many hosts with one connection each never hold more than the limit of all.
  for (int i = 0; i < 200; ++i) {
    const std::string host = "10.0.1." + std::to_string(i);
    CHECK(arrivals.admit(++number, address_of(host.c_str())).has_value());
    CHECK(arrivals.size() == 6);
  }
  std::optional<std::uint64_t> last = 0;
  for (int i = 0; i < 6; ++i) {
    const auto oldest = arrivals.take_oldest();
    REQUIRE(oldest.has_value());
    CHECK(*oldest > *last);
    last = oldest;
  }
  CHECK(arrivals.take_oldest() == std::nullopt);
}

TEST_CASE("a transfer is found by its number and kind, until it finishes") {
  Table t;
  Probe probe;
  Transfer* const started = t.table->start(true, {}, probe);
  REQUIRE(started != nullptr);
  const std::uint64_t id = started->id;
  CHECK(t.all == 1);
  CHECK(t.table->find(id, true) == started);
  CHECK(t.table->find(id, false) == nullptr);
  CHECK(t.table->find(id + 1, true) == nullptr);
  t.table->finish(*started, {});
  CHECK(probe.good);
  CHECK(t.all == 0);
  CHECK(t.table->find(id, true) == nullptr);
  Probe next;
  Transfer* const again = t.table->start(true, {}, next);
  CHECK(again == started);  // the same place
  CHECK(again->id != id);
  CHECK(t.table->finish_all({Code::kPeerLost, 0, "test"}));
}

TEST_CASE("a table of transfers is limited") {
  Table t;
  std::array<Probe, kTransfersMax + 1> probes;
  for (std::size_t i = 0; i < kTransfersMax; ++i) REQUIRE(t.table->start(false, {}, probes[i]));
  CHECK(t.table->start(false, {}, probes.back()) == nullptr);
  CHECK_FALSE(probes.back().in_flight());
  CHECK(t.table->finish_all({Code::kPeerLost, 0, "test"}));
  CHECK(t.all == 0);
}

TEST_CASE("an operation that destroys the link ends the end of the others") {
  Table t;
  Probe first(&t.table);
  REQUIRE(t.table->start(true, {}, first));
  CHECK_FALSE(t.table->finish_all({Code::kPeerLost, 0, "test"}));
  CHECK(first.count == 1);
  CHECK(t.table == nullptr);
}

TEST_CASE("a transfer is late only when no part of any has moved") {
  Table t;
  Probe probe;
  CHECK_FALSE(t.table->has_overdue(t.clock.now() + limits::kRmaDeadline));
  REQUIRE(t.table->start(true, {}, probe));
  t.clock.advance(limits::kRmaDeadline - 1ms);
  CHECK_FALSE(t.table->has_overdue(t.clock.now()));
  t.table->part_moved();
  t.clock.advance(1ms);
  CHECK_FALSE(t.table->has_overdue(t.clock.now()));
  t.clock.advance(limits::kRmaDeadline);
  CHECK(t.table->has_overdue(t.clock.now()));
  CHECK(t.table->finish_all({Code::kDeadline, 0, "test"}));
}

TEST_CASE("messages and content take turns, and a write arrives whole with its end marked once") {
  Table t;
  Poller poller;
  ClearContent clear(poller, 1);
  SendQueue queue(*t.table, clear);
  std::vector<std::byte> memory(700'000, std::byte{5});
  const std::vector<std::byte> message(100, std::byte{1});
  Probe probe;
  const Transfer* const write = t.table->start(true, Pieces(MutableByteSpan(memory)), probe);
  queue.add_content(
      {.next = {.type = FrameType::kWrite, .id = write->id, .key = 9}, .pieces = write->pieces});
  REQUIRE(queue.add_message(message));
  REQUIRE(queue.add_message(message));
  std::vector<std::byte> copy(memory.size());
  const auto headers = sent_by(queue, copy);
  std::vector<FrameType> kinds;
  kinds.reserve(headers.size());
  for (const FrameHeader& header : headers) kinds.push_back(header.type);
  CHECK(kinds == std::vector{FrameType::kMessage, FrameType::kWrite, FrameType::kMessage,
                             FrameType::kWrite, FrameType::kWrite});
  CHECK(copy == memory);
  CHECK(std::ranges::count_if(headers, &FrameHeader::last) == 1);
  CHECK(headers.back().last);
  CHECK(write->sent);
  CHECK(t.table->finish_all({Code::kPeerLost, 0, "test"}));
}

TEST_CASE("the last record of a message stays valid when all of it is message") {
  Table t;
  Poller poller;
  ClearContent clear(poller, 1);
  SendQueue queue(*t.table, clear);
  const std::size_t bytes = 4 * TlsSession::kRecordBytesMax - FrameHeader::kBytes;
  const std::vector<std::byte> message(bytes, std::byte{1});
  REQUIRE(queue.add_message(message));
  ByteSpan record;
  while (queue.has_frames()) record = queue.next_record();
  // Messages of the same length would get its memory, if the queue had freed it.
  const std::vector<std::byte> other(bytes, std::byte{2});
  for (int i = 0; i < 4; ++i) REQUIRE(queue.add_message(other));
  CHECK(record.size() == TlsSession::kRecordBytesMax);
  CHECK(std::ranges::count(record, std::byte{1}) ==
        static_cast<std::ptrdiff_t>(TlsSession::kRecordBytesMax));
}

TEST_CASE("a queue of messages is limited, and so are the answers to the peer") {
  Table t;
  Poller poller;
  ClearContent clear(poller, 1);
  SendQueue queue(*t.table, clear);
  const std::array<std::byte, 1> byte{};
  for (std::size_t i = 0; i < SendQueue::kQueuedMessagesMax; ++i) REQUIRE(queue.add_message(byte));
  CHECK_FALSE(queue.add_message(byte));
  for (std::size_t i = 0; i < kTransfersMax; ++i) REQUIRE(queue.reserve_answer());
  CHECK_FALSE(queue.reserve_answer());
  queue.answer_write(1);
  std::vector<std::byte> none;
  CHECK(sent_by(queue, none).front().type == FrameType::kWritten);  // before messages
  CHECK(queue.reserve_answer());                                    // the sent answer has made room
}

TEST_CASE("content in clear is announced four frames ahead at most") {
  Table t;
  Poller poller;
  ClearContent clear(poller, 1);
  clear.agree(true);
  SendQueue queue(*t.table, clear);
  std::vector<std::byte> memory(2'000'000);
  Probe probe;
  const Transfer* const write = t.table->start(true, Pieces(MutableByteSpan(memory)), probe);
  queue.add_content(
      {.next = {.type = FrameType::kWrite, .id = write->id, .key = 9}, .pieces = write->pieces});
  std::size_t headers = 0;
  while (queue.has_frames()) headers += queue.next_record().size() / FrameHeader::kBytes;
  CHECK(headers == ClearContent::kOutgoingMax);
  clear.end_send();
  CHECK(queue.has_frames());
  CHECK(t.table->finish_all({Code::kPeerLost, 0, "test"}));
}

}  // namespace stdchk::transport::tcp
