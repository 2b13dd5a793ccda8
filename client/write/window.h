#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/write/range_set.h"
#include "core/base/result.h"
#include "core/values/types.h"

namespace stdchk::client {

/// Bytes in front of a slot's data that belong to the slot. A receiver of requests puts their
/// headers there; later they hold the extent headers of the slot's chunks.
inline constexpr std::size_t kSlotHeadroom = 4096;
/// Separate written ranges that a slot may have. The next one seals the slot.
inline constexpr std::size_t kSlotRangesMax = 32;
/// Chunks that begin in one slot. A slot that was written as a whole has at most 17 chunks; each
/// further range adds one.
inline constexpr std::size_t kSlotCutsMax = kSlotRangesMax + 17;

/// A slot's bytes may be touched as follows:
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
///
/// With client encryption, bytes are read under the lock and without a pin. Once OutChunk::sealed
/// is set, nobody reads them. A sealed slot is "settled" when all copies into the slot have ended.
/// It may wait until the previous slot of the file is cut. A run is a series of written bytes that
/// are adjacent in the file, in whatever slots. It is cut as one stream (content_cutter.h). A slot is
/// "open" when its last bytes belong to a chunk of a run that ends in a later slot.
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

/// A Slot is one buffer of the window. In every state but free and borrowed it holds a part of one
/// file.
struct Slot {
  /// `chunk_bytes` long, aligned to 64 bytes; kSlotHeadroom bytes before it.
  std::byte* data = nullptr;
  std::uint32_t index = 0;
  SlotState state = SlotState::kFree;
  std::uint64_t owner = 0;  ///< key of the session
  std::uint64_t part = 0;   ///< file offset / chunk size
  RangeSet dirty;
  std::uint32_t copies = 0;   ///< copies into the slot that are under way
  std::uint32_t readers = 0;  ///< read pins
  std::uint32_t hashing = 0;  ///< chunks cut from it, by state; also counts searches for boundaries
  std::uint32_t placing = 0;
  std::uint32_t writing = 0;
  std::uint32_t held = 0;  ///< runs that still need bytes of the slot for a chunk
  std::uint32_t cuts = 0;  ///< chunks that begin in it
  /// Order of acquire(); lower when it also stores the bytes of an older slot.
  std::uint64_t age = 0;
};

/// A Window is the fixed set of buffers between write() and storage, shared by all sessions of a
/// process.
///
/// Owns: the slots' states; not their memory.
/// Threads: one at a time (the engine's lock). The bytes follow the table above.
/// Errors: acquire() and borrow() return nullptr when there is no free slot.
class Window {
 public:
  /// Divides `memory` into slots. kInvalidArgument when fewer than two fit.
  static Result<Window> create(MutableByteSpan memory, std::uint32_t chunk_bytes);
  /// The memory that `window_bytes` of data need, headroom included.
  static std::size_t memory_bytes(std::uint64_t window_bytes, std::uint32_t chunk_bytes);

  std::uint32_t chunk_bytes() const { return chunk_bytes_; }
  std::size_t slot_count() const { return slots_.size(); }
  std::size_t free_count() const { return free_.size(); }
  /// Slots between cut() and release(), and sealed slots with copies under way.
  std::size_t busy_count() const {
    return slots_.size() - free_.size() - borrowed_ - waiting_count();
  }
  /// Slots that wait for more bytes: filling, settled, or open.
  std::size_t waiting_count() const { return filling_ + settled_ + open_; }

  /// free -> filling.
  Slot* acquire(std::uint64_t owner, std::uint64_t part);
  /// free -> borrowed. Lends at most half of the slots.
  Slot* borrow();
  /// borrowed -> filling, with the whole part written.
  void adopt(Slot& slot, std::uint64_t owner, std::uint64_t part);
  /// borrowed -> free.
  void give_back(Slot& slot);

  /// Begins a copy into the slot, which must be filling.
  void begin_copy(Slot& slot);
  /// Ends a copy that has written [from, to) of the slot.
  void end_copy(Slot& slot, std::uint32_t from, std::uint32_t to);
  bool full(const Slot& slot) const { return slot.dirty.covers(0, chunk_bytes_); }
  /// filling -> sealed. Later writes go to another slot.
  void seal(Slot& slot);
  /// True when the slot is sealed and no copy is under way: it can be cut.
  static bool settled(const Slot& slot) {
    return slot.state == SlotState::kSealed && slot.copies == 0;
  }
  /// sealed -> hashing: the slot was cut into `chunks` chunks. With 0 chunks, releases the slot.
  void cut(Slot& slot, std::uint32_t chunks);
  /// Counts one more chunk, in state hashing, of a slot that is still in use.
  void add_chunk(Slot& slot);
  /// Keeps the slot while a run has bytes in it that are in no chunk. unhold() ends that.
  void hold(Slot& slot);
  void unhold(Slot& slot);
  /// Moves one chunk of the slot from one state to another. In kStored the chunk no longer needs
  /// the slot; the last chunk to get there releases it. The slot's state is that of the chunk
  /// furthest behind.
  void move(Slot& slot, SlotState from, SlotState to);
  /// Declares the slot's bytes unneeded. The slot becomes free now, or when its last reader ends.
  void release(Slot& slot);

  /// The `age` of the last acquired slot.
  std::uint64_t newest_age() const { return acquired_; }
  /// Counts the owner's slots up to this age whose bytes are not stored.
  std::size_t unstored(std::uint64_t owner, std::uint64_t age) const;

  void begin_read(Slot& slot);
  void end_read(Slot& slot);

  /// Returns the oldest slot that is open, settled, or filling without a copy under way; nullptr
  /// when there is none.
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
