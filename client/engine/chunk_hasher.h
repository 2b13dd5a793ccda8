#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client/engine/name_cache.h"
#include "client/net/shared.h"
#include "client/write/session.h"
#include "core/base/executor.h"
#include "core/chunk/content_tag.h"
#include "core/chunk/naming.h"
#include "core/chunk/sealed_chunk.h"
#include "core/crypto/secret.h"
#include "core/messages/messages.h"

namespace stdchk::client {

/// A ChunkHasher does what costs processor time for chunks that were cut: their CRC, their name,
/// their encryption, and the search for content-defined boundaries.
///
/// Owns: the names of recently named contents, and engines for naming. Not the executor.
/// Threads: hash threads, the caller's thread and the reactor's; each function says which.
class ChunkHasher {
 public:
  struct Config {
    std::optional<Secret> key;  ///< the key for encrypted chunks
    bool encrypts = false;      ///< encrypt what is written; needs the key
  };
  /// Adds the time that naming takes to `totals`, which the lock guards.
  ChunkHasher(Shared& shared, Executor& executor, msg::WriterTotals& totals, const Config& config);

  bool encrypts() const { return encrypts_; }
  /// Opens encrypted chunks; nullptr when there is no key.
  const ChunkSealer* sealer() const { return sealer_.has_value() ? &*sealer_ : nullptr; }
  /// Bytes whose content had a name already.
  std::uint64_t recognised_bytes() const STDCHK_REQUIRES(engine_lock) { return recognised_bytes_; }

  /// Computes the CRC of a chunk, unless the chunk has it already. Any thread, without the lock.
  static void checksum(OutChunk& chunk);
  /// Computes the CRC of a chunk, with the lock released, and passes the chunk on to be placed.
  /// Does nothing for nullptr. Any thread.
  void finish_checksum(Lock& lock, OutChunkPtr chunk) STDCHK_REQUIRES(engine_lock);
  /// Has a hash thread look for boundaries in a slot, and hash the chunks that end there. The
  /// thread's processor cache still has the bytes then. Any thread.
  void search_later(Work::Search search);
  /// Has a hash thread hash the chunks, which must be of one session. Any thread.
  void hash_later(std::vector<OutChunkPtr> chunks);

 private:
  void hash(std::vector<OutChunkPtr> chunks) STDCHK_EXCLUDES(engine_lock);
  void name(Lock& lock, std::span<const OutChunkPtr> chunks) STDCHK_REQUIRES(engine_lock);
  std::vector<std::size_t> recognise(std::span<const OutChunkPtr> chunks,
                                     const std::vector<ContentTag>& tags)
      STDCHK_REQUIRES(engine_lock);
  std::unique_ptr<Namer> take_namer() STDCHK_REQUIRES(engine_lock);
  void seal(OutChunk& chunk) const;

  Shared& shared_;
  Executor& executor_;
  msg::WriterTotals& totals_ STDCHK_GUARDED_BY(engine_lock);
  const bool encrypts_;
  std::optional<ChunkSealer> sealer_;
  const ContentTagger tagger_;
  NameCache names_ STDCHK_GUARDED_BY(engine_lock);
  std::vector<std::unique_ptr<Namer>> namers_ STDCHK_GUARDED_BY(engine_lock);  ///< idle ones
  std::uint64_t recognised_bytes_ STDCHK_GUARDED_BY(engine_lock) = 0;
};

}  // namespace stdchk::client
