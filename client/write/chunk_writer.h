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
  void add(const OutChunkPtr& chunk);
  /// Chunks that wait for extents.
  const SpaceKeeper::Waiting& waiting() const { return to_carve_; }
  void plan(Work& work);
  /// Takes the end of a write.
  void written(const ChunkWrite& write, const Status& status);
  std::uint64_t in_transport() const { return in_transport_; }
  /// True when this process itself copies bytes to benefactors, and enough chunks wait for that.
  /// There is no network latency to hide then, and slots filled further ahead would have left the
  /// processor's caches.
  bool enough_to_copy() const;
  /// True when this process itself copies bytes, and it has fewer than two chunks to copy,
  /// `to_checksum` included.
  bool mover_idles(std::size_t to_checksum) const {
    return copies_itself_ && to_checksum + to_carve_.size() + in_transport_ < 2;
  }
  /// A new manager: chunks that lack copies are written anew.
  void forget_copies();
  /// A new manager has accepted the session: failed writes need no pause.
  void resumed() { not_before_ = {}; }
  /// The session has failed.
  void drop_all();
  void clear() { to_carve_.clear(); }

 private:
  void write(const OutChunkPtr& chunk, const std::vector<Extent>& places, Work& work);

  SessionCore& core_;
  SpaceKeeper& space_;
  ChunkLedger& ledger_;
  SpaceKeeper::Waiting to_carve_;
  std::uint64_t in_transport_ = 0;
  bool copies_itself_ = false;  ///< this process itself copied the last chunk without a name
  Time not_before_{};           ///< set after repeated failures of a chunk's writes
};

}  // namespace stdchk::client
