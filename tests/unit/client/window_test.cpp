#include "client/write/window.h"

#include <vector>

#include "tests/support/catch.h"

namespace stdchk::client {
namespace {

constexpr std::uint32_t kChunk = 65536;

struct Fixture {
  explicit Fixture(std::size_t slots)
      : memory(Window::memory_bytes(slots * kChunk, kChunk)),
        window(std::move(*Window::create(memory, kChunk))) {}
  std::vector<std::byte> memory;
  Window window;
};

TEST_CASE("a range set joins ranges that touch or overlap and keeps others apart") {
  RangeSet set;
  set.add(10, 20);
  set.add(30, 40);
  REQUIRE(set.count() == 2);
  set.add(20, 30);
  REQUIRE(set.ranges() == std::vector<RangeSet::Range>{{10, 40}});
  set.add(0, 5);
  set.add(4, 60);
  REQUIRE(set.ranges() == std::vector<RangeSet::Range>{{0, 60}});
  REQUIRE(set.covers(0, 60));
  REQUIRE_FALSE(set.covers(0, 61));
}

TEST_CASE("a window hands out each slot once and never more than it has") {
  Fixture f(4);
  REQUIRE(f.window.slot_count() == 4);
  std::vector<Slot*> taken;
  for (std::uint64_t part = 0; part < 4; ++part) taken.push_back(f.window.acquire(1, part));
  for (Slot* slot : taken) {
    REQUIRE(slot != nullptr);
    REQUIRE(slot->data >= f.memory.data() + kSlotHeadroom);
    REQUIRE(slot->data + kChunk <= f.memory.data() + f.memory.size());
  }
  REQUIRE(f.window.acquire(1, 9) == nullptr);
  f.window.seal(*taken[0]);
  f.window.release(*taken[0]);
  REQUIRE(f.window.acquire(2, 9) == taken[0]);
}

TEST_CASE("a sealed slot settles when the last copy into it has ended") {
  Fixture f(2);
  Slot* slot = f.window.acquire(1, 0);
  f.window.begin_copy(*slot);
  f.window.begin_copy(*slot);
  f.window.seal(*slot);
  REQUIRE_FALSE(Window::settled(*slot));
  f.window.end_copy(*slot, 0, 100);
  REQUIRE_FALSE(Window::settled(*slot));
  f.window.end_copy(*slot, 200, 300);
  REQUIRE(Window::settled(*slot));
  REQUIRE(slot->dirty.count() == 2);
}

TEST_CASE("a slot is not free before its last reader ends") {
  Fixture f(2);
  Slot* slot = f.window.acquire(1, 0);
  f.window.seal(*slot);
  f.window.begin_read(*slot);
  f.window.release(*slot);
  REQUIRE(f.window.free_count() == 1);
  f.window.end_read(*slot);
  REQUIRE(f.window.free_count() == 2);
}

TEST_CASE("a slot is in the state of its chunk that is furthest behind, and free after the last") {
  Fixture f(2);
  Slot* slot = f.window.acquire(1, 0);
  f.window.seal(*slot);
  f.window.cut(*slot, 2);
  f.window.move(*slot, SlotState::kHashing, SlotState::kPlacing);
  REQUIRE(slot->state == SlotState::kHashing);
  f.window.move(*slot, SlotState::kPlacing, SlotState::kWriting);
  f.window.move(*slot, SlotState::kHashing, SlotState::kPlacing);
  REQUIRE(slot->state == SlotState::kPlacing);
  f.window.move(*slot, SlotState::kWriting, SlotState::kStored);
  REQUIRE(f.window.free_count() == 1);
  f.window.move(*slot, SlotState::kPlacing, SlotState::kStored);
  REQUIRE(f.window.free_count() == 2);
}

TEST_CASE("the oldest slot without a copy under way is the one to seal under pressure") {
  Fixture f(3);
  Slot* first = f.window.acquire(1, 5);
  Slot* second = f.window.acquire(2, 0);
  f.window.begin_copy(*first);
  REQUIRE(f.window.oldest_waiting() == second);
  f.window.end_copy(*first, 0, 1);
  REQUIRE(f.window.oldest_waiting() == first);
  f.window.begin_copy(*first);
  f.window.seal(*first);
  REQUIRE(f.window.oldest_waiting() == second);
  f.window.end_copy(*first, 1, 2);
  REQUIRE(f.window.oldest_waiting() == first);  // the slot waits to be cut
  REQUIRE(f.window.waiting_count() == 2);
  REQUIRE(f.window.busy_count() == 0);
  f.window.cut(*first, 1);
  f.window.seal(*second);
  f.window.cut(*second, 1);
  REQUIRE(f.window.oldest_waiting() == nullptr);
  REQUIRE(f.window.busy_count() == 2);
}

TEST_CASE("borrowed slots leave half of the window to others, and become slots when adopted") {
  Fixture f(4);
  Slot* one = f.window.borrow();
  Slot* two = f.window.borrow();
  REQUIRE(one != nullptr);
  REQUIRE(two != nullptr);
  REQUIRE(f.window.borrow() == nullptr);
  f.window.adopt(*one, 7, 3);
  REQUIRE(f.window.full(*one));
  REQUIRE(one->part == 3);
  REQUIRE(f.window.borrow() != nullptr);
  f.window.give_back(*two);
  REQUIRE(f.window.free_count() == 2);
}

TEST_CASE("a window with room for one slot only is refused") {
  std::vector<std::byte> memory(Window::memory_bytes(kChunk, kChunk));
  REQUIRE(Window::create(memory, kChunk).error().code == Code::kInvalidArgument);
}

}  // namespace
}  // namespace stdchk::client
