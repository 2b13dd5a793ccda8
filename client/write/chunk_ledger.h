#pragma once

#include <cstdint>

#include "client/write/committer.h"
#include "client/write/session_core.h"
#include "client/write/space_keeper.h"

namespace stdchk::client {

/// A ChunkLedger counts the chunks that are cut but not stored yet, and ends each: stored or
/// dropped. It gives back the extents of chunks that nothing refers to.
///
/// Threads: any, with the engine's lock held.
class ChunkLedger {
 public:
  ChunkLedger(SessionCore& core, SpaceKeeper& space, Committer& committer)
      : core_(core), space_(space), committer_(committer) {}

  /// Counts a chunk whose bytes are in the window. It keeps the session until it ends.
  void begin(OutChunk& chunk) STDCHK_REQUIRES(engine_lock);
  /// The number of chunks that have begun and not ended.
  std::uint64_t count() const STDCHK_REQUIRES(engine_lock) { return count_; }
  void stored(OutChunk& chunk, SlotState from) STDCHK_REQUIRES(engine_lock);
  void drop(OutChunk& chunk, SlotState from) STDCHK_REQUIRES(engine_lock);
  /// Ends an unneeded chunk in state placing. If the chunk has written copies, it counts as stored,
  /// so that their extents are given back.
  void finish_unneeded(OutChunk& chunk) STDCHK_REQUIRES(engine_lock);
  /// Records that `length` bytes of the file no longer refer to the piece's chunk.
  void removed(const Piece& piece, std::uint64_t length) STDCHK_REQUIRES(engine_lock);
  /// Returns true when no byte of the file refers to the chunk, or when the session has failed.
  bool unneeded(const OutChunk& chunk) const STDCHK_REQUIRES(engine_lock) {
    return core_.error.has_value() || chunk.live_bytes == 0;
  }

 private:
  void finish(const Segments& segments, SlotState from) STDCHK_REQUIRES(engine_lock);
  void release_unreferenced(OutChunk& chunk) STDCHK_REQUIRES(engine_lock);

  SessionCore& core_;
  SpaceKeeper& space_;
  Committer& committer_;
  std::uint64_t count_ = 0;
};

}  // namespace stdchk::client
