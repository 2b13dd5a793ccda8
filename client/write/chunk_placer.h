#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "client/write/chunk_ledger.h"
#include "client/write/chunk_writer.h"
#include "client/write/equal_chunks.h"
#include "client/write/session_core.h"
#include "client/write/space_keeper.h"

namespace stdchk::client {

/// A ChunkPlacer decides where each hashed chunk goes: the pool has it, or it is written. The placer
/// asks the manager in batches. Each call looks names up, and asks for and returns space.
///
/// Threads: any, with the engine's lock held; plan functions on the reactor's thread.
class ChunkPlacer {
 public:
  struct Parts {
    SessionCore& core;
    WrittenFile& written;
    Committer& committer;
    SpaceKeeper& space;
    ChunkLedger& ledger;
    EqualChunks& equal;
    ChunkWriter& writer;
  };
  /// `content_cuts`: chunks end where their content says.
  ChunkPlacer(const Parts& parts, bool content_cuts) : parts_(parts), content_cuts_(content_cuts) {}

  /// Takes a hashed chunk: a chunk with a name is looked up first, others get space at once.
  void place(const OutChunkPtr& chunk) STDCHK_REQUIRES(engine_lock);
  /// Sends batches of chunks that wait for an answer.
  void plan_look_up(Work& work) STDCHK_REQUIRES(engine_lock);
  /// Asks for space, unless the session does not write more and no chunk waits.
  void plan_grants(Work& work, bool writes_more) STDCHK_REQUIRES(engine_lock);
  /// Returns unused grants to the manager, for other sessions.
  void plan_return(Work& work) STDCHK_REQUIRES(engine_lock);
  /// True when a chunk has a random name, or none: no equal chunk can be found by it.
  bool has_unnamed() const STDCHK_REQUIRES(engine_lock) { return has_unnamed_; }
  /// The session has failed.
  void drop_all() STDCHK_REQUIRES(engine_lock);
  void clear() STDCHK_REQUIRES(engine_lock) { to_ask_.clear(); }

 private:
  bool reuse_equal_chunk(const OutChunkPtr& chunk) STDCHK_REQUIRES(engine_lock);
  void alias(const OutChunkPtr& chunk, const OutChunkPtr& target) STDCHK_REQUIRES(engine_lock);
  void count_found(const OutChunk& chunk) STDCHK_REQUIRES(engine_lock);
  bool batch_is_due() STDCHK_REQUIRES(engine_lock);
  void send(Work& work, std::vector<OutChunkPtr> batch, std::uint64_t want)
      STDCHK_REQUIRES(engine_lock);
  void on_placed(const std::vector<OutChunkPtr>& batch, std::uint64_t want,
                 std::uint64_t generation, const rpc::Answer& answer) STDCHK_REQUIRES(engine_lock);
  void take(const std::vector<OutChunkPtr>& batch, const msg::Place::Reply& reply)
      STDCHK_REQUIRES(engine_lock);
  void no_space(const rpc::Failure& failure) STDCHK_REQUIRES(engine_lock);
  bool asks_again(std::uint64_t generation, const rpc::Answer& answer) STDCHK_REQUIRES(engine_lock);

  const Parts parts_;
  const bool content_cuts_;
  std::deque<OutChunkPtr> to_ask_;
  std::size_t batches_in_flight_ = 0;
  std::size_t batch_target_ = 16;
  Time ask_by_{};      ///< latest time to send the batch that is being collected
  Time ask_timer_{};   ///< the `ask_by_` for which a timer is set
  Time lost_since_{};  ///< since when calls get no answer; Time{}: they do
  bool has_unnamed_ = false;
};

}  // namespace stdchk::client
