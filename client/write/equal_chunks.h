#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "client/read/packed_map.h"
#include "client/write/session_core.h"
#include "client/write/space_keeper.h"
#include "client/write/written_file.h"

namespace stdchk::client {

/// An EqualChunks finds chunks that need not be stored again. It knows the chunks of a similar
/// image, which is the previous one of the series, and the session's own chunks.
///
/// Threads: any, with the engine's lock held; plan() on the reactor's thread.
class EqualChunks {
 public:
  /// A found chunk: a stored chunk, or a chunk that this session is storing.
  struct Found {
    std::optional<Chunk> stored;
    OutChunkPtr own;
  };
  EqualChunks(SessionCore& core, WrittenFile& written, SpaceKeeper& space)
      : core_(core), written_(written), space_(space) {}

  /// Compares with this version of a similar image, while it is pinned.
  void compare_with(FileId file, Version version) STDCHK_REQUIRES(engine_lock);
  /// Looks for the chunk's name and length. Remembers the chunk if nothing is found.
  Found find(const OutChunkPtr& chunk) STDCHK_REQUIRES(engine_lock);
  /// Gives up comparing with the similar image: while pinned, its chunks cannot be freed. Asks the
  /// manager for its chunks that this session uses. The manager then holds these chunks.
  void give_up_similar() STDCHK_REQUIRES(engine_lock);
  /// Asks the manager where the copies of a stored chunk are now, because a read did not find them.
  /// Returns false for a chunk of this session's own, and after too many searches.
  bool find_again(const OutChunkPtr& chunk) STDCHK_REQUIRES(engine_lock);
  void plan(Work& work) STDCHK_REQUIRES(engine_lock);
  /// Forgets the session's own chunks, because they are committed.
  void forget_own() STDCHK_REQUIRES(engine_lock) { own_names_.clear(); }
  /// Forgets the similar image, because a new manager does not pin it.
  void forget_similar() STDCHK_REQUIRES(engine_lock);
  /// Drops the references to chunks, because the client ends.
  void clear() STDCHK_REQUIRES(engine_lock) { to_find_.clear(); }

 private:
  void read_similar() STDCHK_REQUIRES(engine_lock);
  void on_found(const std::vector<OutChunkPtr>& batch, const rpc::Answer& answer)
      STDCHK_REQUIRES(engine_lock);

  SessionCore& core_;
  WrittenFile& written_ STDCHK_GUARDED_BY(engine_lock);
  SpaceKeeper& space_;
  std::unordered_map<ChunkName, std::weak_ptr<OutChunk>> own_names_;
  VersionMapPtr similar_;
  VersionMapPtr given_up_;  ///< the former similar_, until its chunks were asked for
  KnownChunks known_;       ///< chunks of similar_
  bool similar_read_ = false;
  std::vector<OutChunkPtr> to_find_;
};

}  // namespace stdchk::client
