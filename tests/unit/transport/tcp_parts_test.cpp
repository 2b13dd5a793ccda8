// Tests the parts of a TcpLink that need no socket.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "core/base/limits.h"
#include "tests/support/catch.h"
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

}  // namespace

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
  CHECK_FALSE(t.table->any_late(t.clock.now() + limits::kRmaDeadline));
  REQUIRE(t.table->start(true, {}, probe));
  t.clock.advance(limits::kRmaDeadline - 1ms);
  CHECK_FALSE(t.table->any_late(t.clock.now()));
  t.table->part_moved();
  t.clock.advance(1ms);
  CHECK_FALSE(t.table->any_late(t.clock.now()));
  t.clock.advance(limits::kRmaDeadline);
  CHECK(t.table->any_late(t.clock.now()));
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
  for (const FrameHeader& header : headers) kinds.push_back(header.type);
  CHECK(kinds == std::vector{FrameType::kMessage, FrameType::kWrite, FrameType::kMessage,
                             FrameType::kWrite, FrameType::kWrite});
  CHECK(copy == memory);
  CHECK(std::ranges::count_if(headers, &FrameHeader::last) == 1);
  CHECK(headers.back().last);
  CHECK(write->sent);
  CHECK(t.table->finish_all({Code::kPeerLost, 0, "test"}));
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
