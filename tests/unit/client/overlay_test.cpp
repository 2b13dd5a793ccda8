#include "client/write/overlay.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "client/write/window.h"
#include "client/write/written_file.h"
#include "core/base/clock.h"
#include "tests/support/catch.h"

namespace stdchk::client {
namespace {

void nothing(const Piece&, std::uint64_t) {}

TEST_CASE("holes of the base are joined, and found at each byte") {
  constexpr std::uint64_t kSpace = 300;
  Prng random(7);
  for (int round = 0; round < 200; ++round) {
    WrittenFile file(kSpace, false, false);
    std::vector<bool> model(kSpace, false);
    for (int i = 0; i < 30; ++i) {
      const std::uint64_t from = random.below(kSpace);
      const std::uint64_t to = from + 1 + random.below(std::min<std::uint64_t>(40, kSpace - from));
      file.punch(from, to, nothing);
      std::fill(model.begin() + static_cast<std::ptrdiff_t>(from),
                model.begin() + static_cast<std::ptrdiff_t>(to), true);
    }
    std::uint64_t before = 0;
    for (const auto& [from, to] : file.holes()) {
      CHECK(from < to);
      CHECK((before == 0 || before < from));
      before = to;
    }
    for (std::uint64_t at = 0; at < kSpace;) {
      const auto run = file.hole_at(at, kSpace - at);
      REQUIRE(run.length > 0);
      for (const std::uint64_t end = at + run.length; at < end; ++at) {
        REQUIRE(model[at] == run.is_hole);
      }
    }
    CHECK(file.dirty());
    file.committed(kSpace);
    CHECK(file.holes().empty());
  }
}

TEST_CASE("the last write of each byte wins, whatever the order and sizes") {
  constexpr std::uint64_t kSpace = 400;
  Prng random(11);
  std::vector<Slot> slots(300);
  for (int round = 0; round < 20; ++round) {
    Overlay overlay;
    // model[i]: the slot of byte i, and its position there.
    std::vector<std::optional<std::pair<std::size_t, std::uint64_t>>> model(kSpace);
    std::uint64_t referred = 0;
    std::uint64_t dropped = 0;
    const auto removed = [&](const Piece&, std::uint64_t length) { dropped += length; };
    for (std::size_t write = 0; write < 300; ++write) {
      const std::uint64_t from = random.below(kSpace);
      const std::uint64_t length = 1 + random.below(std::min<std::uint64_t>(60, kSpace - from));
      if (random.chance(1, 8)) {
        overlay.erase(from, from + length, removed);
        for (std::uint64_t i = from; i < from + length; ++i) model[i].reset();
        continue;
      }
      const std::size_t slot = random.below(4) == 0 ? 0 : write;
      const std::uint32_t at = static_cast<std::uint32_t>(from);
      overlay.put(from, length, Piece{&slots[slot], nullptr, at}, removed);
      referred += length;
      for (std::uint64_t i = from; i < from + length; ++i) model[i] = {slot, i};
    }
    std::uint64_t present = 0;
    std::uint64_t next = 0;
    overlay.visit(0, kSpace, [&](std::uint64_t offset, std::uint64_t length, const Piece* piece) {
      REQUIRE(offset == next);
      next = offset + length;
      for (std::uint64_t i = 0; i < length; ++i) {
        REQUIRE(model[offset + i].has_value() == (piece != nullptr));
        if (piece == nullptr) continue;
        ++present;
        REQUIRE(&slots[model[offset + i]->first] == piece->slot);
        REQUIRE(model[offset + i]->second == piece->offset + i);
      }
      return true;
    });
    REQUIRE(next == kSpace);
    // Every referenced byte is present or was reported as dropped.
    REQUIRE(referred == present + dropped);
  }
}

TEST_CASE("sequential small writes into one slot are one entry") {
  Overlay overlay;
  Slot slot;
  for (std::uint32_t i = 0; i < 256; ++i) {
    overlay.put(i * 4096, 4096, Piece{&slot, nullptr, i * 4096}, nothing);
  }
  REQUIRE(overlay.entries().size() == 1);
  REQUIRE(overlay.end() == 256 * 4096);
}

TEST_CASE("a run that starts inside an entry reports the place inside the piece") {
  Overlay overlay;
  Slot slot;
  overlay.put(100, 50, Piece{&slot, nullptr, 7}, nothing);
  std::vector<std::uint32_t> offsets;
  overlay.visit(120, 200, [&](std::uint64_t, std::uint64_t length, const Piece* piece) {
    if (piece != nullptr) {
      offsets.push_back(piece->offset);
      REQUIRE(length == 30);
    }
    return true;
  });
  REQUIRE(offsets == std::vector<std::uint32_t>{27});
}

TEST_CASE("what lay in two slots lies in one chunk, without what was written over it") {
  Overlay overlay;
  std::vector<Slot> slots(3);
  overlay.put(1000, 100, Piece{&slots[0], nullptr, 900}, nothing);
  overlay.put(1100, 100, Piece{&slots[1], nullptr, 0}, nothing);
  overlay.put(1150, 20, Piece{&slots[2], nullptr, 5}, nothing);
  // Any address will do: the overlay never dereferences a chunk.
  const auto owner = std::make_shared<int>();
  const std::shared_ptr<OutChunk> chunk(owner, reinterpret_cast<OutChunk*>(owner.get()));
  // The chunk covers [1040, 1180): it begins and ends inside entries.
  REQUIRE(overlay.refer(1040, 1100, slots[0], chunk, 0) == 60);
  REQUIRE(overlay.refer(1100, 1180, slots[1], chunk, 60) == 60);
  struct Seen {
    std::uint64_t from, length;
    const Slot* slot;
    const OutChunk* chunk;
    std::uint32_t offset;
    bool operator==(const Seen&) const = default;
  };
  std::vector<Seen> seen;
  for (const auto& [from, entry] : overlay.entries()) {
    seen.push_back(
        {from, entry.length, entry.piece.slot, entry.piece.chunk.get(), entry.piece.offset});
  }
  REQUIRE(seen == std::vector<Seen>{{1000, 40, &slots[0], nullptr, 900},
                                    {1040, 110, nullptr, chunk.get(), 0},
                                    {1150, 20, &slots[2], nullptr, 5},
                                    {1170, 10, nullptr, chunk.get(), 130},
                                    {1180, 20, &slots[1], nullptr, 80}});
  REQUIRE(overlay.refer(1000, 1200, slots[0], chunk, 0) == 40);
}

}  // namespace
}  // namespace stdchk::client
