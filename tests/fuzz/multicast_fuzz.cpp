// Gives a sender and a receiver of a multicast the datagrams of strangers and of members. A
// stranger sends any bytes, a member sealed datagrams with any content. No datagram of a stranger
// is opened. An opened message can be sealed and opened again.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <variant>
#include <vector>

#include "core/base/assert.h"
#include "fork/multicast/demand.h"
#include "fork/multicast/messages.h"
#include "fork/multicast/receiver.h"
#include "fork/multicast/relay_tree.h"
#include "fork/multicast/sender.h"
#include "tests/fuzz/choices.h"

using namespace stdchk;
using namespace stdchk::multicast;

namespace {

constexpr std::uint32_t kUnits = 40;
constexpr std::uint32_t kCells = 12;

std::vector<std::byte> little(std::uint64_t value) {
  std::vector<std::byte> bytes;
  for (unsigned i = 0; i < sizeof(value); ++i) {
    bytes.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  return bytes;
}

/// Seals `plain` as the member `id` would, with the format that fork/multicast/messages.h states.
std::vector<std::byte> sealed(const Secret& group, std::uint64_t id, std::uint64_t number,
                              ByteSpan plain) {
  Sealer sealer;
  sealer.set_key(derive(group, "stdchk.multicast.datagram", little(id)));
  std::vector<std::byte> out;
  for (const char each : {'S', 'D', 'M', '1'}) out.push_back(static_cast<std::byte>(each));
  for (const std::uint64_t each : {id, number}) {
    const auto bytes = little(each);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  out.resize(kHeaderBytes + plain.size());
  const Sealer::Tag tag = sealer.seal(number, plain, MutableByteSpan(out).subspan(kHeaderBytes));
  out.insert(out.end(), tag.begin(), tag.end());
  return out;
}

/// The state machines of both ends, which see what was opened.
class Ends {
 public:
  Ends()
      : sender_({.units = kUnits, .cells = kCells}),
        relay_({.units = kUnits, .cells = kCells, .holds_all = false}),
        receiver_(receiver_options()),
        demand_({.units = kUnits, .cells = kCells}) {
    for (std::uint32_t unit = 0; unit < kUnits; unit += 3) demand_.want(unit);
  }

  void hear(const Opened& opened) {
    now_ += std::chrono::microseconds(100);
    if (const auto* asked = std::get_if<AskMessage>(&opened.message)) {
      sender_.on_ask(now_, opened.from, asked->ask);
      relay_.on_ask(now_, opened.from, asked->ask);
    }
    if (const auto* cell = std::get_if<Cell>(&opened.message)) {
      const bool needed = receiver_.needs(cell->unit, cell->cell);
      STDCHK_ASSERT(!needed || (cell->unit < kUnits && cell->cell < kCells));
      if (receiver_.on_cell(now_, cell->unit, cell->cell, cell->bytes.size())) {
        STDCHK_ASSERT(needed);
        cell->bytes.front() == std::byte{0} ? receiver_.reject(cell->unit)
                                            : receiver_.accept(cell->unit);
      }
      fetch(*cell);
    }
    if (const auto* join = std::get_if<Join>(&opened.message)) {
      const ReceiverId relay =
          tree_.place(now_, opened.from, {join->by_unicast, join->relays}, join->avoid);
      STDCHK_ASSERT(relay == 0 || relay != opened.from);
      STDCHK_ASSERT(tree_.members() <= RelayTree::kMembersMax);
    }
    turn();
  }
  void pause(Duration time) {
    now_ += time;
    turn();
  }

 private:
  void fetch(const Cell& cell) {
    const bool needed = demand_.needs(cell.unit, cell.cell);
    STDCHK_ASSERT(!needed || (cell.unit < kUnits && cell.cell < kCells));
    if (!demand_.on_cell(now_, cell.unit, cell.cell, cell.bytes.size())) return;
    STDCHK_ASSERT(needed);
    if (cell.bytes.front() == std::byte{0}) return demand_.reject(cell.unit);
    demand_.accept(cell.unit);
    relay_.have(cell.unit);
  }
  static ReceiverOptions receiver_options() {
    return {.units = kUnits, .cells = kCells, .begin = 7, .in_front = 2};
  }
  void turn() {
    for (int i = 0; i < 8; ++i) {
      const auto next = sender_.next(now_, kUnitBytes / kCells);
      if (!next) break;
      STDCHK_ASSERT(next->unit < kUnits && next->cell < kCells);
    }
    for (int i = 0; i < 8; ++i) {
      const auto next = relay_.next(now_, kUnitBytes / kCells);
      if (!next) break;
      // A relay sends to one receiver, never to the group.
      STDCHK_ASSERT(next->unit < kUnits && next->cell < kCells && next->to != 0);
    }
    for (int i = 0; i < 8; ++i) {
      const auto ask = demand_.next(now_);
      if (!ask) break;
      STDCHK_ASSERT(ask->wants.size() <= Ask::kWantsMax);
    }
    demand_.drop_old(now_);
    for (int i = 0; i < 8; ++i) {
      const auto ask = receiver_.next(now_);
      if (!ask) break;
      STDCHK_ASSERT(ask->wants.size() <= Ask::kWantsMax);
    }
    STDCHK_ASSERT(sender_.receivers() <= Sender::kReceiversMax);
    STDCHK_ASSERT(receiver_.accepted() <= kUnits);
    static_cast<void>(sender_.all_done(now_));
  }

  Sender sender_;
  Sender relay_;
  Receiver receiver_;
  Demand demand_;
  RelayTree tree_;
  Time now_ = Time{} + std::chrono::seconds(1);
};

void play(fuzz::Choices& choices) {
  Secret group;
  group.bytes.fill(std::byte{5});
  Datagrams here(group);
  Datagrams again(group);
  Ends ends;
  while (!choices.empty()) {
    const unsigned what = choices.below(4);
    if (what == 0) {
      ends.pause(std::chrono::milliseconds(choices.byte()));
      continue;
    }
    const std::size_t length = choices.byte() * (choices.flag() ? 1U : 7U);
    if (what == 1) {
      // A stranger's: without the key no bytes pass.
      STDCHK_ASSERT(!here.open(choices.bytes(length)));
      continue;
    }
    const std::uint64_t from = what == 2 ? choices.byte() : choices.number();
    const std::vector<std::byte> datagram =
        sealed(group, from, choices.number(), choices.bytes(length));
    const auto opened = here.open(datagram);
    if (!opened) continue;
    STDCHK_ASSERT(opened->from == from);
    const auto repeated = again.open(here.seal(opened->message));
    STDCHK_ASSERT(repeated && repeated->message.index() == opened->message.index());
    if (const auto* asked = std::get_if<AskMessage>(&opened->message)) {
      STDCHK_ASSERT(std::get<AskMessage>(repeated->message).ask == asked->ask);
    }
    // seal() has replaced the bytes that a cell of `opened` lies in.
    ends.hear({from, opened->number, repeated->message});
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Choices choices(ByteSpan(reinterpret_cast<const std::byte*>(data), size));
  play(choices);
  return 0;
}
