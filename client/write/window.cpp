#include "client/write/window.h"

#include <algorithm>

#include "core/base/assert.h"
#include "core/base/limits.h"

namespace stdchk::client {

std::size_t Window::memory_bytes(std::uint64_t window_bytes, std::uint32_t chunk_bytes) {
  return window_bytes / chunk_bytes * (chunk_bytes + kSlotHeadroom);
}

Result<Window> Window::create(MutableByteSpan memory, std::uint32_t chunk_bytes) {
  static_assert(kSlotHeadroom >= 128 + kSlotCutsMax * limits::kExtentHeaderBytes);
  const std::size_t stride = chunk_bytes + kSlotHeadroom;
  const std::size_t count = memory.size() / stride;
  if (count < 2) return fail(Code::kInvalidArgument, "client.window");
  Window window;
  window.chunk_bytes_ = chunk_bytes;
  window.slots_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    window.slots_[i].index = static_cast<std::uint32_t>(i);
    window.slots_[i].data = memory.data() + i * stride + kSlotHeadroom;
    window.free_.push_back(static_cast<std::uint32_t>(count - 1 - i));
  }
  return window;
}

Slot* Window::acquire(std::uint64_t owner, std::uint64_t part) {
  if (free_.empty()) return nullptr;
  Slot& slot = slots_[free_.back()];
  free_.pop_back();
  slot.state = SlotState::kFilling;
  ++filling_;
  slot.owner = owner;
  slot.part = part;
  slot.age = ++acquired_;
  return &slot;
}

Slot* Window::borrow() {
  if (free_.empty() || borrowed_ >= slots_.size() / 2) return nullptr;
  Slot& slot = slots_[free_.back()];
  free_.pop_back();
  slot.state = SlotState::kBorrowed;
  ++borrowed_;
  return &slot;
}

void Window::adopt(Slot& slot, std::uint64_t owner, std::uint64_t part) {
  STDCHK_ASSERT(slot.state == SlotState::kBorrowed);
  --borrowed_;
  slot.state = SlotState::kFilling;
  ++filling_;
  slot.owner = owner;
  slot.part = part;
  slot.age = ++acquired_;
  slot.dirty.add(0, chunk_bytes_);
}

void Window::give_back(Slot& slot) {
  STDCHK_ASSERT(slot.state == SlotState::kBorrowed);
  --borrowed_;
  make_free(slot);
}

void Window::begin_copy(Slot& slot) {
  STDCHK_ASSERT(slot.state == SlotState::kFilling);
  ++slot.copies;
}

void Window::end_copy(Slot& slot, std::uint32_t from, std::uint32_t to) {
  STDCHK_ASSERT(slot.copies > 0 && to <= chunk_bytes_);
  STDCHK_ASSERT(slot.state == SlotState::kFilling || slot.state == SlotState::kSealed);
  --slot.copies;
  if (settled(slot)) ++settled_;
  slot.dirty.add(from, to);
}

void Window::seal(Slot& slot) {
  STDCHK_ASSERT(slot.state == SlotState::kFilling);
  slot.state = SlotState::kSealed;
  --filling_;
  if (settled(slot)) ++settled_;
}

std::uint32_t& Window::chunks_in(Slot& slot, SlotState state) {
  switch (state) {
    case SlotState::kHashing:
      return slot.hashing;
    case SlotState::kPlacing:
      return slot.placing;
    default:
      STDCHK_ASSERT(state == SlotState::kWriting);
      return slot.writing;
  }
}

void Window::cut(Slot& slot, std::uint32_t chunks) {
  STDCHK_ASSERT(settled(slot));
  --settled_;
  slot.hashing = chunks;
  slot.state = SlotState::kHashing;
  if (chunks == 0) release(slot);
}

void Window::move(Slot& slot, SlotState from, SlotState to) {
  std::uint32_t& left = chunks_in(slot, from);
  STDCHK_ASSERT(left > 0);
  --left;
  if (to != SlotState::kStored) ++chunks_in(slot, to);
  set_state(slot);
}

void Window::add_chunk(Slot& slot) {
  ++slot.hashing;
  set_state(slot);
}

void Window::hold(Slot& slot) { ++slot.held; }

void Window::unhold(Slot& slot) {
  STDCHK_ASSERT(slot.held > 0);
  --slot.held;
  set_state(slot);
}

/// Sets the slot's state to that of the chunk that is furthest behind.
void Window::set_state(Slot& slot) {
  if (slot.state == SlotState::kOpen) --open_;
  if (slot.hashing > 0) {
    slot.state = SlotState::kHashing;
  } else if (slot.placing > 0) {
    slot.state = SlotState::kPlacing;
  } else if (slot.writing > 0) {
    slot.state = SlotState::kWriting;
  } else if (slot.held > 0) {
    slot.state = SlotState::kOpen;
    ++open_;
  } else {
    release(slot);
  }
}

void Window::release(Slot& slot) {
  STDCHK_ASSERT(slot.state != SlotState::kFree && slot.state != SlotState::kBorrowed);
  STDCHK_ASSERT(slot.copies == 0);
  slot.state = SlotState::kStored;
  if (slot.readers == 0) make_free(slot);
}

std::size_t Window::unstored(std::uint64_t owner, std::uint64_t age) const {
  return static_cast<std::size_t>(
      std::count_if(slots_.begin(), slots_.end(), [&](const Slot& slot) {
        return slot.owner == owner && slot.age <= age && slot.state != SlotState::kStored;
      }));
}

void Window::begin_read(Slot& slot) {
  STDCHK_ASSERT(slot.state != SlotState::kFree && slot.state != SlotState::kBorrowed);
  ++slot.readers;
}

void Window::end_read(Slot& slot) {
  STDCHK_ASSERT(slot.readers > 0);
  --slot.readers;
  if (slot.readers == 0 && slot.state == SlotState::kStored) make_free(slot);
}

Slot* Window::oldest_waiting() {
  Slot* oldest = nullptr;
  for (Slot& slot : slots_) {
    const bool is_filling = slot.state == SlotState::kFilling && slot.copies == 0;
    if (!is_filling && !settled(slot) && slot.state != SlotState::kOpen) continue;
    if (oldest == nullptr || slot.age < oldest->age) oldest = &slot;
  }
  return oldest;
}

void Window::make_free(Slot& slot) {
  slot.state = SlotState::kFree;
  slot.owner = 0;
  slot.dirty.clear();
  slot.hashing = slot.placing = slot.writing = slot.held = slot.cuts = 0;
  free_.push_back(slot.index);
}

}  // namespace stdchk::client
