#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/clock.h"
#include "core/types.h"
#include "manager/state.h"
#include "tests/support/cluster.h"

namespace stdchk::sim {

/// LostBytes says of which committed chunks the bytes may be lost: of those whose last good copy
/// went with the memory of a benefactor, and that their stripes could not make again. What the
/// manager makes of its map afterwards excuses nothing.
///
/// A copy is good when its benefactor lives and the arena has the chunk's header and bytes there.
/// It counts when the manager has told that the command that made it survives a crash. A block of a
/// stripe counts when, besides, the manager can reach it: a stripe is given up with those that were
/// silent for long, although they may come back. A place that is not good is safe when its chunk
/// had a copy that counts, or a stripe with enough such blocks, at the last look. A chunk that can
/// not be read although all of its places are safe was not lost with any benefactor.
///
/// Threads: one. Not: what no version names any more, and what is in the drain directory.
class LostBytes {
 public:
  LostBytes(Cluster& cluster, std::string drain_directory)
      : cluster_(cluster), drain_directory_(std::move(drain_directory)) {}
  LostBytes(const LostBytes&) = delete;
  LostBytes& operator=(const LostBytes&) = delete;

  /// To be called before the memory of that benefactor goes. `left`: when it began to leave; the
  /// manager has told it since that it may go.
  void benefactor_ends(std::size_t index, std::optional<Time> left);
  /// To be called at each step. Answers what is wrong: of files, what cannot be read and may not be
  /// lost, and what was let go of too early.
  std::vector<std::string> check();
  /// Everything of the newest version of that file is in an arena, or can be made again, or is in
  /// the drain directory. With `copies_only`: in an arena, or in the drain directory.
  bool is_there(const manager::File& file, bool copies_only) const;
  /// That chunk has no good copy, its stripe makes it again, and there is room for it.
  bool could_be_made(manager::ChunkIndex chunk) const;
  /// Something of that file, or of a version of it that is being read, was lost at that time, or
  /// later.
  bool since(FileId file, Time time) const;
  /// Chunks so far that were lost with benefactors.
  std::uint64_t lost() const { return lost_; }

 private:
  enum class Where { kNowhere, kMayBeGivenUp, kHere };
  /// Where a chunk is itself, and what its stripe can count on of it.
  struct Place {
    Where copy = Where::kNowhere;
    Where block = Where::kNowhere;
  };
  /// A place of a copy in the map.
  struct Seen {
    std::uint32_t crc = 0;       ///< of the chunk
    Time first{};                ///< when it was there
    std::uint64_t commands = 0;  ///< so many had been applied then
  };
  using Places = std::unordered_map<manager::ChunkIndex, Place>;

  const manager::State& state() const { return cluster_.manager()->state(); }
  bool is_good(const Chunk& chunk, const Extent& extent, BenefactorId gone) const;
  bool is_durable(const Extent& extent) const;
  void look();
  Places copies_without(BenefactorId gone) const;
  Where place_of(const Places& copies, manager::ChunkIndex chunk) const;
  void note_places(manager::ChunkIndex chunk, bool safe, BenefactorId gone);
  bool has_unknown_loss(manager::ChunkIndex chunk, BenefactorId gone) const;
  bool is_safe(manager::ChunkIndex chunk) const;
  bool in_drain(const manager::File& file, const manager::VersionData& version,
                const manager::PackedSlice& slice) const;
  bool has_room(manager::ChunkIndex chunk, BenefactorId leaving,
                std::uint64_t reserve_percent) const;
  void check_version(const manager::File& file, const manager::VersionData& version,
                     const Places& copies, std::vector<std::string>& wrong);

  Cluster& cluster_;
  const std::string drain_directory_;
  Epoch epoch_;  ///< of what is in `seen_`
  std::map<Extent, Seen> seen_;
  std::set<Extent> safe_;  ///< places that are not good; see above
  std::map<FileId, Time> lost_at_;
  std::vector<std::string> wrong_;
  std::uint64_t lost_ = 0;
};

}  // namespace stdchk::sim
