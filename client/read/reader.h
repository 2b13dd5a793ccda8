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
#include "client/read/near_places.h"
#include "client/read/part_reader.h"
#include "client/read/stripe_reader.h"
#include "client/read/version_map.h"
#include "core/base/clock.h"
#include "core/chunk/sealed_chunk.h"

namespace stdchk::client {

/// A Unit is a slice of a chunk that a reader wants.
struct Unit {
  Chunk chunk;
  std::uint64_t file_offset = 0;  ///< offset of the slice in the file, also in the drained file
  std::uint32_t slice_length = 0;
  std::uint32_t slice_chunk_offset = 0;
  VersionMapPtr map;                      ///< nullptr: an uncommitted chunk of a session
  std::shared_ptr<DrainedChunk> part_of;  ///< set: this unit is a part of that drained chunk
  bool learns_parts = false;              ///< PartReader wants the CRCs of the chunk's parts
};

/// A Reader brings chunks into the cache and checks them. It tries the copies first, each by one
/// one-sided read; of a file that several hosts read, a copy on this host (NearPlaces). Then it tries the other blocks of the stripe, then the drained file. At last it
/// fetches the map again, which may name new places.
///
/// Reads from the drain directory may hang (DrainedReader). If another user finds no free buffer, a
/// read that hangs loses its buffer to him. A read past its deadline has failed, and the reader of
/// the file gets kSystem (EIO).
///
/// Owns: the cache and the fetches under way.
/// Threads: any, as the attributes say.
/// Errors: kDataLost: no source has the chunk. kPermission: the key of an encrypted chunk is absent
///   or wrong. After kWouldBlock, wait for a change and call again.
class Reader {
 public:
  struct Host {
    Shared& shared;
    MapStore& maps;
    Clock& clock;
    std::function<void(Transfer&)> submit;  ///< lock held; starts on the reactor's thread
    std::function<void(std::function<void()>)> run_later;  ///< lock held; starts on an executor
    std::function<void(FileWork)> read_later;              ///< lock held
    std::string drain_directory;
    const ChunkSealer* sealer = nullptr;  ///< nullptr: encrypted chunks cannot be read
  };
  /// The last PartReader::kMemoryBytes of `memory` are for parts, the rest for chunks.
  Reader(Host host, StripeReader::Host stripes, std::unique_ptr<Memory> memory,
         std::size_t buffer_bytes);
  ~Reader();

  /// Returns the unit's chunk, checked and pinned. The caller gives it back. Releases the lock
  /// while it checks.
  Result<CachedChunk*> get(Lock& lock, const Unit& unit) STDCHK_REQUIRES(engine_lock);
  /// True when read_part() may read so many bytes of the unit's chunk.
  bool reads_part(const Unit& unit, std::uint64_t bytes) STDCHK_REQUIRES(engine_lock) {
    return PartReader::suits(unit.chunk, bytes) && cache_.find(key_of(unit)) == nullptr;
  }
  /// Copies bytes of the unit's chunk from `offset` on, checked, without fetching the whole chunk.
  /// Returns false when get() should fetch it. Releases the lock meanwhile.
  Result<bool> read_part(Lock& lock, Unit& unit, std::uint32_t offset, MutableByteSpan out)
      STDCHK_REQUIRES(engine_lock);
  /// Unpins the chunk, of which the caller has used `bytes`.
  void give_back(CachedChunk& chunk, std::size_t bytes) STDCHK_REQUIRES(engine_lock);
  /// Returns the part of the unit to be fetched for the byte at `file_offset`. This is the whole
  /// unit, except for a long unit that only the drained file has.
  Unit part_at(Unit unit, std::uint64_t file_offset) const STDCHK_REQUIRES(engine_lock);
  /// Says whether the manager answers. If not, fetches read stored copies without a question.
  void set_manager_answers(bool answers) STDCHK_REQUIRES(engine_lock) {
    near_.set_manager_answers(answers);
  }
  /// Starts to fetch the unit, if the cache has room.
  void prefetch(const Unit& unit) STDCHK_REQUIRES(engine_lock);
  /// Numbers of chunks.
  struct Counts {
    std::uint64_t given = 0;    ///< to readers
    std::uint64_t fetched = 0;  ///< when a reader asked for them
    std::uint64_t ahead = 0;    ///< fetched before a reader asked
  };
  const Counts& counts() const STDCHK_REQUIRES(engine_lock) { return counts_; }
  const msg::ReaderTotals& totals() const STDCHK_REQUIRES(engine_lock) { return totals_; }
  DrainedReader& drained() STDCHK_REQUIRES(engine_lock) { return drained_; }
  /// Returns the most chunks to be fetched ahead of one reader.
  std::size_t ahead_max() const STDCHK_REQUIRES(engine_lock) {
    return std::max<std::size_t>(cache_.buffer_count() / 2, 1);
  }

 private:
  struct Fetch;
  CacheKey key_of(const Unit& unit) const STDCHK_REQUIRES(engine_lock);
  void start(const Unit& unit, bool ahead) STDCHK_REQUIRES(engine_lock);
  void next_source(Fetch& fetch) STDCHK_REQUIRES(engine_lock);
  bool try_near(Fetch& fetch) STDCHK_REQUIRES(engine_lock);
  void read_copy(Fetch& fetch, const Extent& copy) STDCHK_REQUIRES(engine_lock);
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
  NearPlaces near_;
  StripeReader stripes_;
  std::unique_ptr<Memory> memory_;
  PartReader parts_;
  ChunkCache cache_ STDCHK_GUARDED_BY(engine_lock);
  std::map<CacheKey, std::unique_ptr<Fetch>> fetches_ STDCHK_GUARDED_BY(engine_lock);
  DrainedReader drained_;
  Time logged_silent_ STDCHK_GUARDED_BY(engine_lock){};
  bool logged_no_key_ STDCHK_GUARDED_BY(engine_lock) = false;
  Counts counts_ STDCHK_GUARDED_BY(engine_lock);
  msg::ReaderTotals totals_ STDCHK_GUARDED_BY(engine_lock);
};

}  // namespace stdchk::client
