#pragma once

#include <cstdint>
#include <vector>

#include "client/write/chunk_ledger.h"
#include "client/write/session_core.h"
#include "client/write/space_keeper.h"

namespace stdchk::client {

/// A ChunkWriter gives chunks extents and writes them there. A chunk whose write fails goes
/// elsewhere.
///
/// Threads: any, with the engine's lock held; plan() and written() on the reactor's thread.
class ChunkWriter {
 public:
  ChunkWriter(SessionCore& core, SpaceKeeper& space, ChunkLedger& ledger)
      : core_(core), space_(space), ledger_(ledger) {}

  /// Takes a chunk whose content the pool does not have.
  void add(const OutChunkPtr& chunk) STDCHK_REQUIRES(engine_lock);
  /// Bytes of the session's grants that no chunk uses.
  std::uint64_t unused_bytes() const STDCHK_REQUIRES(engine_lock) { return space_.unused_bytes(); }
  /// Chunks that wait for extents.
  const SpaceKeeper::Waiting& waiting() const STDCHK_REQUIRES(engine_lock) { return to_carve_; }
  void plan(Work& work) STDCHK_REQUIRES(engine_lock);
  /// Takes the end of a write.
  void written(const ChunkWrite& write, const Status& status) STDCHK_REQUIRES(engine_lock);
  std::uint64_t in_transport() const STDCHK_REQUIRES(engine_lock) { return in_transport_; }
  /// True when this process itself copies bytes to benefactors, and enough chunks wait for that.
  /// There is no network latency to hide then, and slots filled further ahead would have left the
  /// processor's caches.
  bool has_enough_to_copy() const STDCHK_REQUIRES(engine_lock);
  /// True when this process itself copies bytes, and it has fewer than two chunks to copy,
  /// `to_checksum` included.
  bool is_copier_idle(std::size_t to_checksum) const STDCHK_REQUIRES(engine_lock) {
    return copies_itself_ && to_checksum + to_carve_.size() + in_transport_ < 2;
  }
  /// A new manager: chunks that lack copies are written anew.
  void forget_copies() STDCHK_REQUIRES(engine_lock);
  /// A new manager has accepted the session: failed writes need no pause.
  void resumed() STDCHK_REQUIRES(engine_lock) { not_before_ = {}; }
  /// The session has failed.
  void drop_all() STDCHK_REQUIRES(engine_lock);
  void clear() STDCHK_REQUIRES(engine_lock) { to_carve_.clear(); }

 private:
  void write(const OutChunkPtr& chunk, const std::vector<Extent>& places, Work& work)
      STDCHK_REQUIRES(engine_lock);

  SessionCore& core_;
  SpaceKeeper& space_;
  ChunkLedger& ledger_;
  SpaceKeeper::Waiting to_carve_;
  std::uint64_t in_transport_ = 0;
  bool copies_itself_ = false;  ///< this process itself copied the last chunk without a name
  Time not_before_{};           ///< set after repeated failures of a chunk's writes
};

}  // namespace stdchk::client
