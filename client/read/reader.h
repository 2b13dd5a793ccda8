#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/net/memory.h"
#include "client/net/peers.h"
#include "client/net/shared.h"
#include "client/read/chunk_cache.h"
#include "client/read/drained_reader.h"
#include "client/read/file_threads.h"
#include "client/read/part_reader.h"
#include "client/read/stripe_reader.h"
#include "client/read/version_map.h"
#include "core/base/clock.h"
#include "core/chunk/sealed_chunk.h"

namespace stdchk::client {

/// A Unit is a part of a chunk that someone wants to read.
struct Unit {
  Chunk chunk;
  std::uint64_t file_offset = 0;  ///< of the slice, for the drained file
  std::uint32_t slice_length = 0;
  std::uint32_t slice_chunk_offset = 0;
  VersionMapPtr map;                      ///< nullptr: a session's own chunk
  std::shared_ptr<DrainedChunk> part_of;  ///< a part of that one, which has the checksum
  bool learns_parts = false;  ///< the CRCs of the chunk's parts are wanted, see PartReader
};

/// A Reader brings chunks into the cache, checked: from a benefactor by one one-sided read, then
/// from the next copy, made from others of its stripe, then from where the map says it has moved
/// to, then from the drained file.
///
/// Files of the drain directory may hang (DrainedReader). A read that hangs gives its buffer to
/// another user who finds none. A late read has failed, and the reader of the file gets kSystem
/// (EIO).
///
/// Owns: the cache and the fetches under way.
/// Threads: as said at each function.
/// Errors: kWouldBlock: it is on its way, wait for a change. kDataLost: it is nowhere any more.
///   kPermission: it is sealed, and there is no key, or another one.
class Reader {
 public:
  struct Host {
    Shared& shared;
    MapStore& maps;
    Clock& clock;
    std::function<void(Transfer&)> submit;  ///< lock held; soon, on the reactor's thread
    std::function<void(std::function<void()>)> run_later;  ///< lock held; executor work, soon
    std::function<void(FileWork)> read_later;              ///< lock held
    std::string drain_directory;
    const ChunkSealer* sealer = nullptr;  ///< none: sealed chunks cannot be opened
  };
  /// The last PartReader::kMemoryBytes of `memory` are for parts, the rest for chunks.
  Reader(Host host, StripeReader::Host stripes, std::unique_ptr<Memory> memory,
         std::size_t buffer_bytes);
  ~Reader();

  /// The unit's chunk, checked and pinned; to be given back. Lock held; checking lets go
  /// of the lock for a while.
  Result<CachedChunk*> get(Lock& lock, const Unit& unit) STDCHK_REQUIRES(engine_lock);
  /// True when read_part() may read so many bytes of the unit's chunk. Lock held.
  bool reads_part(const Unit& unit, std::uint64_t bytes) STDCHK_REQUIRES(engine_lock) {
    return PartReader::suits(unit.chunk, bytes) && cache_.find(key_of(unit)) == nullptr;
  }
  /// Copies bytes of the unit's chunk from `offset` on, checked, without fetching the whole chunk.
  /// Returns false when get() should fetch it. Lock held; lets go of the lock for a while.
  Result<bool> read_part(Lock& lock, Unit& unit, std::uint32_t offset, MutableByteSpan out)
      STDCHK_REQUIRES(engine_lock);
  /// `bytes` of the chunk were used.
  void give_back(CachedChunk& chunk, std::size_t bytes) STDCHK_REQUIRES(engine_lock);
  /// What is fetched together with the byte at `file_offset` of the unit: the unit, or a part of it
  /// when it is long and in the drained file only. Lock held.
  Unit part_at(Unit unit, std::uint64_t file_offset) const STDCHK_REQUIRES(engine_lock);
  /// Starts to bring the unit, if there is room for it. Lock held.
  void prefetch(const Unit& unit) STDCHK_REQUIRES(engine_lock);
  /// Chunks that were given, that were fetched because a reader wanted them, and ahead of one.
  struct Counts {
    std::uint64_t given = 0;
    std::uint64_t fetched = 0;
    std::uint64_t ahead = 0;
  };
  const Counts& counts() const STDCHK_REQUIRES(engine_lock) { return counts_; }
  const msg::ReaderTotals& totals() const STDCHK_REQUIRES(engine_lock) { return totals_; }
  DrainedReader& drained() STDCHK_REQUIRES(engine_lock) { return drained_; }
  /// How many chunks may be on their way ahead of a reader.
  std::size_t ahead_max() const STDCHK_REQUIRES(engine_lock) {
    return std::max<std::size_t>(cache_.buffer_count() / 2, 1);
  }

 private:
  struct Fetch;
  CacheKey key_of(const Unit& unit) const STDCHK_REQUIRES(engine_lock);
  void start(const Unit& unit, bool ahead) STDCHK_REQUIRES(engine_lock);
  void next_source(Fetch& fetch) STDCHK_REQUIRES(engine_lock);
  void make_from_stripe(Fetch& fetch) STDCHK_REQUIRES(engine_lock);
  void open_drained(Fetch& fetch) STDCHK_REQUIRES(engine_lock);
  void read_drained(Fetch& fetch) STDCHK_REQUIRES(engine_lock);
  bool is_late(const Fetch& fetch) const STDCHK_REQUIRES(engine_lock);
  void give_up(Fetch& fetch) STDCHK_REQUIRES(engine_lock);
  bool make_room(std::uint32_t for_owner) STDCHK_REQUIRES(engine_lock);
  void done(Fetch& fetch, Status status) STDCHK_REQUIRES(engine_lock);
  void check_ahead(const CacheKey& key) STDCHK_EXCLUDES(engine_lock);
  void check(Lock& lock, CachedChunk& entry) STDCHK_REQUIRES(engine_lock);
  Status make_plain(Fetch& fetch) const;
  void note_wrong(Fetch& fetch) STDCHK_REQUIRES(engine_lock);
  void settle(Fetch& fetch, Status good) STDCHK_REQUIRES(engine_lock);
  bool can_open(const Chunk& chunk) const {
    return host_.sealer != nullptr || !is_sealed(chunk.name);
  }

  Host host_;
  StripeReader stripes_;
  std::unique_ptr<Memory> memory_;
  PartReader parts_;
  ChunkCache cache_;
  std::map<CacheKey, std::unique_ptr<Fetch>> fetches_;
  DrainedReader drained_;
  Time said_silent_{};
  bool said_no_key_ = false;
  Counts counts_;
  msg::ReaderTotals totals_;
};

}  // namespace stdchk::client
