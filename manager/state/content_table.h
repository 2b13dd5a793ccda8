#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/values/types.h"
#include "manager/journal/command.h"
#include "manager/state/chunk_table.h"
#include "manager/state/file.h"
#include "manager/state/slices.h"
#include "manager/state/stripe_table.h"

namespace stdchk::manager {

/// A ContentTable has the chunks of all versions and the stripes that protect them. It counts the
/// references to chunks, and collects the extents that lose their last one.
///
/// Owns: the chunk table, the stripe table. Threads: one.
/// Not: it knows no names and no files but those that a call passes.
class ContentTable {
 public:
  const ChunkTable& chunks() const { return chunks_; }
  const StripeTable& stripes() const { return stripes_; }
  /// Returns true when more than its stripe refers to this data chunk.
  bool is_used(ChunkIndex member) const { return chunks_.references(member) > 1; }
  /// Returns true when no undrained version uses a data chunk of the stripe: memory may lose them.
  bool may_be_lost(const Stripe& stripe) const;
  /// Finds the chunk by its name or, if parity is wanted for it, by its first copy; otherwise
  /// returns kNoChunk.
  ChunkIndex find_member(const Chunk& chunk) const {
    if (!chunk.name.is_named() && chunk.copies.empty()) return kNoChunk;
    return find_chunk(chunk.name, chunk.length,
                      chunk.copies.empty() ? Extent{} : chunk.copies.front());
  }
  /// Returns slices [first, first + count) with their chunks.
  ChunkMap map_page(const VersionData& version, std::size_t first, std::size_t count) const;
  /// Returns the homes of the version's chunks, in the order of a map_page() with all slices. Empty
  /// when no chunk has a home.
  std::vector<BenefactorId> homes_of(const VersionData& version) const;
  /// Returns true when bytes of the version may have to be read from the drain directory.
  bool needs_drained(const VersionData& version) const;
  /// Returns true when older pinned versions need the file in the drain directory and were not set
  /// aside. A newer version must not take that name before.
  bool older_needs_name(const File& file) const;

  /// Returns the extents that lost their last reference since the last call.
  std::vector<FreedExtent> take_freed() { return std::exchange(freed_, {}); }
  /// Returns data chunks of stripes that since the last call became unused except by their stripe.
  std::vector<ChunkIndex> take_unused_stripe_members() {
    return std::exchange(unused_stripe_members_, {});
  }

  struct Resolved {
    PackedSlices slices;
    std::vector<ChunkIndex> held;   ///< a hold on each chunk, to be released
    std::uint64_t added_bytes = 0;  ///< bytes of chunks new to the table
  };
  /// Finds or adds the chunks. Counts a hold on each, so that none is freed while the commit runs.
  /// `homes` are those of the map's chunks; chunks without an entry have none.
  /// `file`: chunks without names are looked for in its newest version; nullptr: nowhere.
  Resolved resolve(const ChunkMap& written, const std::vector<BenefactorId>& homes,
                   const File* file);
  /// Counts the references of a version.
  void refer(const VersionData& version);
  /// Releases the references of a version, and empties it.
  void drop(VersionData& version);
  void hold(ChunkIndex chunk) { chunks_.refer(chunk, false); }
  void release(ChunkIndex chunk) { release(chunk, false); }
  void mark_drained(const VersionData& version);
  void mark_undrained(const VersionData& version);
  /// Takes the chunks of these slices, by number, out of memory. Fails and changes nothing when one
  /// must stay.
  Status evict(const VersionData& version, const std::vector<std::uint32_t>& slices);

  Result<Affected> run(const MoveChunks& command);
  Result<Affected> run(const ChangeCopies& command);
  Result<Affected> run(const MakeStripes& command);

 private:
  void release(ChunkIndex chunk, bool undrained);
  bool change_copies(ChunkIndex index, const ChangeCopies::Change& change);
  ChunkIndex find_chunk(const ChunkName& name, std::uint32_t length, const Extent& at) const;
  void make_stripe(const MakeStripes::Stripe& wanted, const std::map<Extent, ChunkIndex>& places);
  void end_stripe(StripeIndex index);
  void end_if_unused(ChunkIndex member);

  ChunkTable chunks_;
  StripeTable stripes_;
  std::vector<FreedExtent> freed_;
  std::vector<ChunkIndex> unused_stripe_members_;
};

/// Returns kInvalidArgument unless the slices are in order, and lie in chunks of valid lengths.
Status check_map(const ChunkMap& map);

}  // namespace stdchk::manager
