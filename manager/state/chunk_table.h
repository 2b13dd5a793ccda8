#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/base/limits.h"
#include "core/policy/redundancy.h"
#include "core/values/types.h"

namespace stdchk::manager {

/// Identifies a chunk as long as anything refers to it. Not kept across restarts.
using ChunkIndex = std::uint32_t;
inline constexpr ChunkIndex kNoChunk = ~ChunkIndex{0};

/// An extent that lost its last reference, with the bytes that it takes in the arena.
struct FreedExtent {
  Extent extent;
  std::uint64_t bytes = 0;
  bool operator==(const FreedExtent&) const = default;
};

/// A ChunkTable holds every chunk once, with its places and its number of references.
///
/// Slices of versions and holds count as references. `undrained` counts the slices of versions
/// that are not in the drain directory. While it is above 0 the copies must stay (rule M5).
/// A chunk of an image that is placed by node has a home: the benefactor on its writer's node.
/// Chunks of equal content with different homes are different chunks (docs/decisions/0070).
/// The index of names is divided into parts that grow one by one, so that no call waits while
/// a large index is rebuilt.
///
/// Threads: one. Limits: 2^32 - 1 chunks, 2^24 benefactors, arenas of 2^46 bytes. An entry with one
/// copy takes 56 bytes, and 5.3 to 6.7 bytes of index (manager/README.md has the sum). A home takes
/// 40 bytes.
class ChunkTable {
 public:
  /// Finds the chunk with that name, length and home.
  ChunkIndex find(const ChunkName& name, std::uint32_t length, BenefactorId home = {}) const;
  /// Finds the chunk with that name and length that has a copy at `extent`. When no chunk has a
  /// home, the name suffices.
  ChunkIndex find_at(const ChunkName& name, std::uint32_t length, const Extent& extent) const;
  /// Finds the chunks with that name and length, whatever their homes.
  std::vector<ChunkIndex> find_all(const ChunkName& name, std::uint32_t length) const;
  /// Adds an entry without references. The table must not contain its name with this home.
  ChunkIndex add(const Chunk& chunk, BenefactorId home = {});
  /// Returns the home of the chunk; none when its images are striped.
  BenefactorId home(ChunkIndex index) const;
  bool has_homes() const { return !homes_.empty(); }
  Chunk get(ChunkIndex index) const;
  std::uint32_t length(ChunkIndex index) const { return entry(index).length; }
  bool is_named(ChunkIndex index) const { return entry(index).name.is_named(); }
  bool has_copies(ChunkIndex index) const { return entry(index).place != 0; }
  std::uint32_t references(ChunkIndex index) const { return entry(index).references; }
  std::uint32_t undrained(ChunkIndex index) const { return entry(index).undrained; }

  /// The strongest redundancy that a policy has asked for this chunk.
  Redundancy redundancy(ChunkIndex index) const;
  /// The number of copies wanted; 1 with parity.
  std::uint32_t wanted(ChunkIndex index) const { return redundancy(index).copies; }
  /// Raises the chunk's redundancy to `redundancy`, if that is stronger.
  void strengthen(ChunkIndex index, const Redundancy& redundancy);
  /// Finds the chunk with a copy at `extent`, among chunks without names that want parity.
  ChunkIndex find_place(const Extent& extent) const;

  void refer(ChunkIndex index, bool undrained);
  /// Drops a reference. The last release removes the entry and appends its extents to `freed`.
  void release(ChunkIndex index, bool undrained, std::vector<FreedExtent>& freed);
  /// Notes that a version which refers to the chunk was drained.
  void mark_drained(ChunkIndex index);
  /// Undoes mark_drained().
  void mark_undrained(ChunkIndex index);
  /// Replaces the places of the chunk; places that it loses are appended to `freed`.
  void set_copies(ChunkIndex index, const std::vector<Extent>& copies,
                  std::vector<FreedExtent>& freed);

  std::uint64_t chunk_count() const { return live_; }
  std::uint64_t stored_bytes() const { return stored_bytes_; }
  /// Bytes in arenas of chunks whose copies may be given up: no undrained version has them. A chunk
  /// that several files share counts once.
  std::uint64_t drained_bytes() const { return stored_bytes_ - undrained_bytes_; }
  /// The memory that the table and its index take, in bytes.
  std::uint64_t memory_bytes() const;

  /// Calls `visit(index)` for each chunk.
  template <class Visit>
  void for_each(Visit visit) const {
    visit_some(0, used_, visit);
  }
  /// The same for the chunks among the `count` entries from `first` on. Returns where the next
  /// entries begin, or kNoChunk behind the last.
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
  /// `place` has the benefactor in the upper 24 bits and offset / 64 in the lower 40. 0: no copy.
  struct Entry {
    ChunkName name;
    std::uint64_t place = 0;
    std::uint32_t length : 25 = 0;
    std::uint32_t wanted : 7 = 0;  ///< a redundancy, packed as in chunk_table.cpp
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
  template <class Accepts>
  ChunkIndex find_if(const ChunkName& name, std::uint32_t length, Accepts accepts) const;
  std::uint64_t bytes_of(ChunkIndex index) const;
  bool has_place_index(ChunkIndex index) const;
  /// A hash table with open addressing and linear probing; any number of slots.
  struct IndexPart {
    std::vector<ChunkIndex> slots;
    std::size_t used = 0;

    std::size_t home(std::uint64_t spread) const;
    std::size_t behind(std::size_t slot) const { return slot + 1 < slots.size() ? slot + 1 : 0; }
    /// The number of slots from `from` forward to `to`, around the end.
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
  ChunkIndex unused_ = kNoChunk;  ///< head of the free list; `crc` of a free entry is its next
  std::unordered_map<ChunkIndex, std::vector<Extent>>
      more_copies_;  ///< all copies of a chunk that has several
  std::unordered_map<ChunkIndex, BenefactorId> homes_;
  std::vector<IndexPart> index_ = std::vector<IndexPart>(std::size_t{1} << kPartBits);
  std::unordered_map<std::uint64_t, ChunkIndex> by_place_;  ///< for find_place()
  std::uint64_t live_ = 0;
  std::uint64_t stored_bytes_ = 0;
  std::uint64_t undrained_bytes_ = 0;  ///< of stored_bytes_: chunks with `undrained` above 0
};

}  // namespace stdchk::manager
