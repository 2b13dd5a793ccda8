#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/limits.h"
#include "core/redundancy.h"
#include "core/types.h"

namespace stdchk::manager {

/// A number for a chunk that is valid while anything refers to the chunk. Not kept across restarts.
using ChunkIndex = std::uint32_t;
inline constexpr ChunkIndex kNoChunk = ~ChunkIndex{0};

/// An extent whose last reference went, with the bytes that it takes in the arena.
struct FreedExtent {
  Extent extent;
  std::uint64_t bytes = 0;
  bool operator==(const FreedExtent&) const = default;
};

/// A ChunkTable holds every chunk once, with its places and how often it is referred to.
///
/// References are counted by slices of versions and by holds. `undrained` counts those by slices of
/// versions that are not in the drain directory: while it is above 0 the copies must stay (rule
/// M5). The index that finds names is in parts which grow one by one, so that no call waits until
/// all of a large one is built anew. Threads: one. Limits: 2^32 - 1 chunks, 2^24 benefactors,
/// arenas of 2^46 bytes. 56 bytes an entry with one copy and 5.3 to 6.7 bytes of index
/// (manager/README.md has the sum).
class ChunkTable {
 public:
  ChunkIndex find(const ChunkName& name, std::uint32_t length) const;
  /// A new entry with no references. A name must not be in the table already.
  ChunkIndex add(const Chunk& chunk);
  Chunk get(ChunkIndex index) const;
  std::uint32_t length(ChunkIndex index) const { return entry(index).length; }
  bool is_named(ChunkIndex index) const { return entry(index).name.is_named(); }
  bool has_copies(ChunkIndex index) const { return entry(index).place != 0; }
  std::uint32_t references(ChunkIndex index) const { return entry(index).references; }
  std::uint32_t undrained(ChunkIndex index) const { return entry(index).undrained; }

  /// What the strongest policy of those that have referred to it asks for.
  Redundancy redundancy(ChunkIndex index) const;
  /// How many copies that is; 1 with parity.
  std::uint32_t wanted(ChunkIndex index) const { return redundancy(index).copies; }
  /// Asks for this, if nothing stronger was asked for.
  void want(ChunkIndex index, const Redundancy& redundancy);
  /// A chunk without a name, for which parity was asked, that has a copy there.
  ChunkIndex find_place(const Extent& extent) const;

  void refer(ChunkIndex index, bool undrained);
  /// The entry is gone after its last reference; its extents are appended to `freed`.
  void release(ChunkIndex index, bool undrained, std::vector<FreedExtent>& freed);
  /// The version that refers to the chunk was drained.
  void mark_drained(ChunkIndex index);
  /// It is so no more.
  void mark_undrained(ChunkIndex index) { ++entry(index).undrained; }
  /// Replaces the places; those that are no longer used are appended to `freed`.
  void set_copies(ChunkIndex index, const std::vector<Extent>& copies,
                  std::vector<FreedExtent>& freed);

  std::uint64_t chunk_count() const { return live_; }
  std::uint64_t stored_bytes() const { return stored_bytes_; }
  /// Memory of the table and its index, for the bound of DESIGN: bytes a chunk.
  std::uint64_t memory_bytes() const;

  /// Calls `visit(index)` for each chunk.
  template <class Visit>
  void for_each(Visit visit) const {
    visit_some(0, used_, visit);
  }
  /// The same for those among the `count` entries from `first` on; answers where the next ones
  /// begin, or kNoChunk behind the last.
  template <class Visit>
  ChunkIndex visit_some(ChunkIndex first, ChunkIndex count, Visit visit) const {
    const ChunkIndex end = first < used_ ? first + std::min(count, used_ - first) : used_;
    for (ChunkIndex i = first; i < end; ++i) {
      if (entry(i).references > 0) visit(i);
    }
    return end < used_ ? end : kNoChunk;
  }
  bool exists(ChunkIndex index) const { return index < used_ && entry(index).references > 0; }

 private:
  /// `place`: benefactor in the upper 24 bits, offset / 64 in the lower 40; 0: no copy.
  struct Entry {
    ChunkName name;
    std::uint64_t place = 0;
    std::uint32_t length : 25 = 0;
    std::uint32_t wanted : 7 = 0;  ///< a redundancy, as chunk_table.cpp packs it
    std::uint32_t crc = 0;
    std::uint32_t references = 0;
    std::uint32_t undrained = 0;
  };
  static_assert(sizeof(Entry) == 56);
  static_assert(limits::kChunkBytesMax < (1U << 25));
  static constexpr std::uint32_t kBlock = 8192;

  const Entry& entry(ChunkIndex index) const { return blocks_[index / kBlock][index % kBlock]; }
  Entry& entry(ChunkIndex index) { return blocks_[index / kBlock][index % kBlock]; }
  std::vector<Extent> copies(ChunkIndex index) const;
  bool has_place_index(ChunkIndex index) const;
  /// Open addressing with linear probing; of any length.
  struct IndexPart {
    std::vector<ChunkIndex> slots;
    std::size_t used = 0;

    std::size_t home(std::uint64_t spread) const;
    std::size_t behind(std::size_t slot) const { return slot + 1 < slots.size() ? slot + 1 : 0; }
    /// How many slots `to` lies behind `from`.
    std::size_t distance(std::size_t from, std::size_t to) const {
      return to >= from ? to - from : to + slots.size() - from;
    }
  };
  static constexpr unsigned kPartBits = 10;

  const IndexPart& part_of(std::uint64_t spread) const {
    return index_[spread >> (64 - kPartBits)];
  }
  IndexPart& part_of(std::uint64_t spread) { return index_[spread >> (64 - kPartBits)]; }
  void insert(IndexPart& part, ChunkIndex index);
  void index_insert(ChunkIndex index);
  void index_erase(ChunkIndex index);
  void grow(IndexPart& part);

  std::vector<std::unique_ptr<Entry[]>> blocks_;
  ChunkIndex used_ = 0;           ///< entries ever made
  ChunkIndex unused_ = kNoChunk;  ///< the last that was given up; its `crc` names the one before
  std::unordered_map<ChunkIndex, std::vector<Extent>>
      more_copies_;  ///< all of a chunk with several
  std::vector<IndexPart> index_ = std::vector<IndexPart>(std::size_t{1} << kPartBits);
  std::unordered_map<std::uint64_t, ChunkIndex> by_place_;  ///< for find_place()
  std::uint64_t live_ = 0;
  std::uint64_t stored_bytes_ = 0;
};

}  // namespace stdchk::manager
