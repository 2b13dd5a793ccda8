#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "client/write/chunk_ledger.h"
#include "client/write/session_core.h"

namespace stdchk::client {

/// A HashQueue holds chunks that were cut and wait for a thread that computes their CRC and name.
///
/// Threads: any, with the engine's lock held; plan() on the reactor's thread.
class HashQueue {
 public:
  HashQueue(SessionCore& core, ChunkLedger& ledger) : core_(core), ledger_(ledger) {}

  /// Has a hash thread compute the chunk's CRC and, if wanted, its name.
  void add(OutChunkPtr chunk) STDCHK_REQUIRES(engine_lock) {
    to_hash_.push_back(std::move(chunk));
    core_.schedule();
  }
  /// Has the reactor's thread compute the CRC.
  void add_for_reactor(OutChunkPtr chunk) STDCHK_REQUIRES(engine_lock) {
    to_checksum_.push_back(std::move(chunk));
    core_.schedule();
  }
  /// The number of chunks that wait for the reactor's thread to compute their CRC.
  std::size_t reactor_count() const STDCHK_REQUIRES(engine_lock) { return to_checksum_.size(); }
  /// Returns the chunks for hash threads. Drops chunks that are no longer needed.
  std::vector<OutChunkPtr> take() STDCHK_REQUIRES(engine_lock);
  void plan(Work& work) STDCHK_REQUIRES(engine_lock);
  /// The session has failed.
  void drop_all() STDCHK_REQUIRES(engine_lock);
  void clear() STDCHK_REQUIRES(engine_lock) {
    to_hash_.clear();
    to_checksum_.clear();
  }

 private:
  SessionCore& core_;
  ChunkLedger& ledger_;
  std::deque<OutChunkPtr> to_hash_;
  std::deque<OutChunkPtr> to_checksum_;
};

}  // namespace stdchk::client
