#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/range_set.h"
#include "core/result.h"
#include "core/types.h"

namespace stdchk::client {

/// Bytes in front of a slot's data that belong to the slot: a caller that receives requests puts
/// their heads there; later the extent headers of the slot's chunks lie there.
inline constexpr std::size_t kSlotHeadroom = 4096;
/// Separate written ranges in one slot; the next one seals it.
inline constexpr std::size_t kSlotRangesMax = 32;
/// Chunks that begin in one slot: a whole one divides into 16 and one that ends in it, and each
/// further range adds one.
inline constexpr std::size_t kSlotCutsMax = kSlotRangesMax + 17;

/// Who may touch a slot's bytes, by state:
///
/// | state    | may write                               | may read                       |
/// |----------|-----------------------------------------|--------------------------------|
/// | free     | nobody                                  | nobody                         |
/// | borrowed | who called borrow()                     | the same                       |
/// | filling  | callers between begin_copy and end_copy | callers that hold a read pin   |
/// | sealed   | copies that had begun before            | the same                       |
/// | hashing  | nobody; a hash thread that seals chunks | a hash thread, read pins       |
/// | placing  | nobody                                  | read pins                      |
/// | writing  | nobody; headroom: the reactor           | the transport, read pins       |
/// | open     | nobody                                  | who cuts the run, read pins    |
/// | stored   | nobody                                  | read pins; then it is free     |
/// Where chunks are sealed (client encryption) their bytes are read under the lock, without a pin,
/// and not at all from the moment that OutChunk::sealed is set.
/// Settled: sealed, and no copy is under way; waits for the slot in front of it in the file.
/// Open: its last bytes belong to a chunk that does not end in it; the bytes that follow in the
/// file are waited for.
enum class SlotState : std::uint8_t {
  kFree,
  kBorrowed,
  kFilling,
  kSealed,
  kHashing,
  kPlacing,
  kWriting,
  kOpen,
  kStored
};

/// A Slot is one buffer of the window: a part of one file while it is not free.
struct Slot {
  std::byte* data = nullptr;  ///< chunk_bytes of it, aligned to 64; kSlotHeadroom bytes before it
  std::uint32_t index = 0;
  SlotState state = SlotState::kFree;
  std::uint64_t owner = 0;  ///< the session's key
  std::uint64_t part = 0;   ///< file offset / chunk size
  RangeSet dirty;
  std::uint32_t copies = 0;   ///< begun, not ended
  std::uint32_t readers = 0;  ///< read pins
  std::uint32_t hashing = 0;  ///< chunks cut from it, by state; and who looks for boundaries in it
  std::uint32_t placing = 0;
  std::uint32_t writing = 0;
  std::uint32_t held = 0;  ///< runs that have bytes in it which are in no chunk yet
  std::uint32_t cuts = 0;  ///< chunks that begin in it
  std::uint64_t age = 0;   ///< order of acquire(); that of an older slot whose bytes it has, too
};

/// A Window is the bounded set of buffers between write() and storage, shared by all sessions of a
/// process. It never grows.
///
/// Owns: the slots' states; not their memory.
/// Threads: one at a time (the engine's lock). The bytes themselves follow the table above.
/// Errors: acquire() and borrow() answer nullptr when there is no free slot.
class Window {
 public:
  /// `memory` is divided into slots; kInvalidArgument when fewer than two fit.
  static Result<Window> create(MutableByteSpan memory, std::uint32_t chunk_bytes);
  /// Memory for `window_bytes` of data.
  static std::size_t memory_bytes(std::uint64_t window_bytes, std::uint32_t chunk_bytes);

  std::uint32_t chunk_bytes() const { return chunk_bytes_; }
  std::size_t slot_count() const { return slots_.size(); }
  std::size_t free_count() const { return free_.size(); }
  /// Slots on their way from cut() to release(), and those that are copied into after seal().
  std::size_t busy_count() const {
    return slots_.size() - free_.size() - borrowed_ - waiting_count();
  }
  /// Slots that wait for more bytes: they are filling, settled, or open.
  std::size_t waiting_count() const { return filling_ + settled_ + open_; }

  /// free -> filling.
  Slot* acquire(std::uint64_t owner, std::uint64_t part);
  /// free -> borrowed. At most half of the slots can be borrowed.
  Slot* borrow();
  /// borrowed -> filling, for the whole part.
  void adopt(Slot& slot, std::uint64_t owner, std::uint64_t part);
  /// borrowed -> free.
  void give_back(Slot& slot);

  /// A copy into the slot begins; only while it is filling.
  void begin_copy(Slot& slot);
  /// The copy has ended, [from, to) of the slot was written.
  void end_copy(Slot& slot, std::uint32_t from, std::uint32_t to);
  bool full(const Slot& slot) const { return slot.dirty.covers(0, chunk_bytes_); }
  /// filling -> sealed. What is written from now on goes to another slot.
  void seal(Slot& slot);
  /// True when the slot is sealed and no copy into it is under way: it can be cut.
  static bool settled(const Slot& slot) {
    return slot.state == SlotState::kSealed && slot.copies == 0;
  }
  /// sealed -> hashing: the slot was cut into `chunks` chunks. 0: nothing needs it, it is released.
  void cut(Slot& slot, std::uint32_t chunks);
  /// A chunk more was cut from the slot, which is not released yet; to be hashed.
  void add_chunk(Slot& slot);
  /// A run has bytes in the slot that are in no chunk; unhold: they are in chunks now.
  void hold(Slot& slot);
  void unhold(Slot& slot);
  /// One of the slot's chunks goes from a state to another; to kStored: it does not need the slot
  /// any more, and the last one releases it. A slot is in the state of the chunk that is furthest
  /// behind.
  void move(Slot& slot, SlotState from, SlotState to);
  /// The slot's bytes are not needed any more. It is free now, or when the last reader ends.
  void release(Slot& slot);

  /// The `age` of the slot that was acquired last.
  std::uint64_t newest_age() const { return acquired_; }
  /// The owner's slots up to this age whose bytes are not stored.
  std::size_t unstored(std::uint64_t owner, std::uint64_t age) const;

  void begin_read(Slot& slot);
  void end_read(Slot& slot);

  /// Of the slots that are open or settled, or filling with no copy under way, the one taken first;
  /// nullptr: none.
  Slot* oldest_waiting();

 private:
  Window() = default;
  void make_free(Slot& slot);
  void set_state(Slot& slot);
  static std::uint32_t& chunks_in(Slot& slot, SlotState state);

  std::uint32_t chunk_bytes_ = 0;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::size_t borrowed_ = 0;
  std::size_t filling_ = 0;
  std::size_t settled_ = 0;
  std::size_t open_ = 0;
  std::uint64_t acquired_ = 0;
};

}  // namespace stdchk::client
