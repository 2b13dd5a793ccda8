#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "client/net/memory.h"
#include "client/net/peers.h"
#include "client/net/shared.h"
#include "client/read/chunk_cache.h"
#include "client/read/part_crcs.h"
#include "core/base/result.h"

namespace stdchk::client {

/// A PartReader reads short ranges of chunks without the rest of the chunk, for readers that jump.
/// Every part that a range touches is read as a whole and checked by its CRC32C (PartCrcs). The
/// parts' CRCs are trusted because joined they gave the chunk's own CRC, which is in the chunk map.
/// docs/decisions/0040 has the reasons.
///
/// A benefactor on this host is read by the caller's thread (transport::DirectMemory). For such a
/// chunk the CRCs of the parts are computed at its first read, which passes over the whole chunk
/// once. For other chunks the caller reads the whole chunk the first time, and calls add_part_crcs().
///
/// Owns: the CRCs of parts, and the fetches under way.
/// Threads: any, with the lock held. read() releases the lock while it moves or checks bytes.
/// Errors: read() never says that bytes are lost. Reader handles parts that read() cannot read or
///   check.
/// Not: for encrypted chunks, or chunks without a CRC or a copy in the pool.
class PartReader {
 public:
  /// Parts kept after a read: kMemoryBytes / PartCrcs::kPartBytes.
  static constexpr std::size_t kMemoryBytes = 2 * limits::kMiB;

  struct Host {
    Shared& shared;
    std::function<void(Transfer&)> submit;  ///< lock held; soon, on the reactor's thread
  };
  /// `room` is kMemoryBytes long and lies in `memory`.
  PartReader(Host host, const Memory& memory, MutableByteSpan room);
  ~PartReader();

  /// True when a range of this length is worth reading without the rest of the chunk.
  static bool suits(const Chunk& chunk, std::uint64_t bytes);
  /// Copies the chunk's bytes from `offset` on to `out`. Returns false when the caller should read
  /// the whole chunk; `out` has no meaning then. kWouldBlock: wait for a change and call again.
  Result<bool> read(Lock& lock, const Chunk& chunk, std::uint32_t offset, MutableByteSpan out)
      STDCHK_REQUIRES(engine_lock);
  /// Takes the parts' CRCs of a chunk whose whole content was found right.
  void add_part_crcs(const Chunk& chunk, PartCrcList parts) STDCHK_REQUIRES(engine_lock);
  /// Takes a benefactor's memory that this process can read directly.
  void add_direct_memory(BenefactorId benefactor, transport::DirectMemoryPtr memory)
      STDCHK_REQUIRES(engine_lock);

 private:
  struct Range;
  struct Fetch;
  struct Burst {
    CacheKey chunk;
    std::uint32_t fetches = 0;
  };
  Result<bool> read_direct(Lock& lock, const Chunk& chunk, const Range& range)
      STDCHK_REQUIRES(engine_lock);
  Result<bool> read_remote(Lock& lock, const Chunk& chunk, const Range& range)
      STDCHK_REQUIRES(engine_lock);
  bool reads_whole_chunk(const CacheKey& key) STDCHK_REQUIRES(engine_lock);
  void start(const CacheKey& key, const Chunk& chunk, const Range& range)
      STDCHK_REQUIRES(engine_lock);
  void check(Lock& lock, CachedChunk& entry, const Chunk& chunk, const Range& range)
      STDCHK_REQUIRES(engine_lock);
  void finished(Fetch& fetch, const Status& status) STDCHK_REQUIRES(engine_lock);

  Host host_;
  const Memory& memory_;
  PartCrcs crcs_ STDCHK_GUARDED_BY(engine_lock);
  ChunkCache cache_ STDCHK_GUARDED_BY(engine_lock);
  std::map<CacheKey, std::unique_ptr<Fetch>> fetches_;
  std::map<BenefactorId, transport::DirectMemoryPtr> direct_;
  Burst burst_;
};

}  // namespace stdchk::client
