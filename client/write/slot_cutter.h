#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "client/write/chunk_ledger.h"
#include "client/write/content_cutter.h"
#include "client/write/hash_queue.h"
#include "client/write/session_core.h"
#include "client/write/written_file.h"

namespace stdchk::client {

/// A SlotCutter makes chunks of the slots that applications fill. A full slot is sealed, and so is
/// a slot whose bytes a sync or commit waits for. A sealed slot is cut after its last copy. Slots
/// whose chunks are content-defined are cut in the order of the file: a slot waits for the slot
/// before it, but not for ever.
///
/// Threads: any, with the engine's lock held; plan() on the reactor's thread.
class SlotCutter {
 public:
  struct Parts {
    SessionCore& core;
    WrittenFile& written;
    Committer& committer;
    ChunkLedger& ledger;
    HashQueue& hashes;
  };
  SlotCutter(const Parts& parts, bool content_cuts);

  /// Finds boundaries of content-defined chunks; for hash threads.
  const BoundaryFinder& boundaries() const { return boundaries_; }
  /// True when no slot is filling.
  bool idle() const STDCHK_REQUIRES(engine_lock) { return filling_.empty(); }
  /// True when all written bytes belong to chunks.
  bool all_cut() const STDCHK_REQUIRES(engine_lock) { return sealed_.empty() && cutter_.empty(); }

  /// Returns the slot in which `part` fills. Takes a new slot if need be, unless `may_begin` is
  /// false. Returns nullptr when the writer must wait.
  Slot* slot_for(std::uint64_t part, bool may_begin) STDCHK_REQUIRES(engine_lock);
  /// True when a write to `part` must wait. A thread that lost its processor has left a hole, and
  /// as many slots as allowed already wait behind it. Applies only after slots were filled out of
  /// order, and for at most kHeldBack.
  bool must_hold_back(std::uint64_t part) STDCHK_REQUIRES(engine_lock);
  /// A copy into the slot has ended. Returns a chunk whose CRC the caller should compute, or
  /// nullptr.
  OutChunkPtr end_copy(Slot& slot) STDCHK_REQUIRES(engine_lock);
  /// Seals the slot in which `part` fills, if there is one.
  void seal_part(std::uint64_t part) STDCHK_REQUIRES(engine_lock);
  /// Seals all slots, and keeps no run open.
  void seal_all() STDCHK_REQUIRES(engine_lock);
  /// Seals or cuts `slot` although more bytes may come, because no slot is free.
  void seal_early(Slot& slot) STDCHK_REQUIRES(engine_lock);
  /// Takes the boundaries found in a slot. Returns the chunks that the caller should hash now.
  std::vector<OutChunkPtr> scanned(const Scan& scan) STDCHK_REQUIRES(engine_lock);
  /// Ends waits for missing bytes, and passes on slots to be searched for boundaries.
  void plan(Work& work) STDCHK_REQUIRES(engine_lock);

 private:
  struct Sealed {
    Slot* slot = nullptr;
    Time since;
  };
  struct Waiting {
    std::size_t count = 0;
    Slot* first = nullptr;
  };
  void seal(Slot& slot) STDCHK_REQUIRES(engine_lock);
  OutChunkPtr cut_or_wait(Slot& slot) STDCHK_REQUIRES(engine_lock);
  OutChunkPtr cut_in_order(Slot& slot) STDCHK_REQUIRES(engine_lock);
  OutChunkPtr cut(Slot& slot) STDCHK_REQUIRES(engine_lock);
  OutChunkPtr make_chunk(std::uint64_t file_offset, const Segments& segments)
      STDCHK_REQUIRES(engine_lock);
  bool waits_for_preceding_slot(const Slot& slot) const STDCHK_REQUIRES(engine_lock);
  bool is_filling_or_sealed(std::uint64_t part) const STDCHK_REQUIRES(engine_lock);
  Waiting waiting() const STDCHK_REQUIRES(engine_lock);
  std::size_t waiting_max() const STDCHK_REQUIRES(engine_lock);
  void stop_holding_back() STDCHK_REQUIRES(engine_lock);
  void limit_waiting() STDCHK_REQUIRES(engine_lock);
  Time cut_behind_holes(Duration wait) STDCHK_REQUIRES(engine_lock);

  const Parts parts_;
  const bool content_cuts_;                           ///< chunks end where their content says
  std::unordered_map<std::uint64_t, Slot*> filling_;  ///< keyed by part
  /// Not cut yet: copies are under way, or the slot before is awaited.
  std::vector<Sealed> sealed_;
  Time hole_timer_{};          ///< when plan() checks waiting slots again
  bool out_of_order_ = false;  ///< slots were recently filled out of order
  Time held_back_{};           ///< since when writers are held back; Time{}: they are not
  const BoundaryFinder boundaries_;
  ContentCutter cutter_;
  std::vector<ScanPtr> to_scan_;
};

}  // namespace stdchk::client
