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

#include "core/base/clock.h"
#include "core/values/types.h"
#include "manager/state/state.h"
#include "tests/support/cluster.h"

namespace stdchk::sim {

/// LostBytes decides which committed chunks may be lost. A chunk may be lost if its last good copy
/// went with a benefactor's memory and its stripe could not make it again. Later changes to the
/// manager's map excuse nothing.
///
/// A copy is good when its benefactor lives and the arena holds the chunk's header and bytes there.
/// A copy counts when the command that made it is durable. A block of a stripe counts when the
/// manager can also reach it. The reason: the manager gives up stripes with long silent
/// benefactors, although they may come back. A bad place is safe when, at the last check, its chunk
/// had a counting copy or enough counting blocks in its stripe. A chunk that is unreadable although
/// all its places are safe was not lost with a benefactor: a bug.
///
/// Threads: one. Not: chunks that no version names, or that are in the drain directory.
class LostBytes {
 public:
  LostBytes(Cluster& cluster, std::string drain_directory)
      : cluster_(cluster), drain_directory_(std::move(drain_directory)) {}
  LostBytes(const LostBytes&) = delete;
  LostBytes& operator=(const LostBytes&) = delete;

  /// Call this before the memory of that benefactor is freed. `left`: when it began to leave, if
  /// the manager has since allowed it to end.
  void benefactor_ends(std::size_t index, std::optional<Time> left);
  /// Call this at each step. Answers violations: unreadable chunks that may not be lost, and
  /// departures that were allowed too early.
  std::vector<std::string> check();
  /// Whether the file's newest version is whole: each chunk is in an arena, can be made from its
  /// stripe, or is drained. With `copies_only`, stripes do not count.
  bool is_there(const manager::File& file, bool copies_only) const;
  /// Whether the chunk has no good copy, its stripe can make it, and benefactors have room.
  bool could_be_made(manager::ChunkIndex chunk) const;
  /// Whether bytes of that file, or of a version under read, were lost at that time or later.
  bool since(FileId file, Time time) const;
  /// The number of chunks that were lost with benefactors.
  std::uint64_t lost() const { return lost_; }

 private:
  enum class Where { kNowhere, kMayBeGivenUp, kHere };
  /// The state of a chunk's own copies, and of the block that its stripe can count on.
  struct Place {
    Where copy = Where::kNowhere;
    Where block = Where::kNowhere;
  };
  /// A place of a copy in the map.
  struct Seen {
    std::uint32_t crc = 0;       ///< checksum of the chunk
    Time first{};                ///< when the place was first seen
    std::uint64_t commands = 0;  ///< commands appended by then
  };
  using Places = std::unordered_map<manager::ChunkIndex, Place>;

  const manager::State& state() const { return cluster_.manager()->state(); }
  bool is_good(const Chunk& chunk, const Extent& extent, BenefactorId gone) const;
  bool is_durable(const Extent& extent) const;
  void note_all_places();
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
  Epoch epoch_;  ///< epoch of the manager that `seen_` describes
  std::map<Extent, Seen> seen_;
  std::set<Extent> safe_;  ///< bad places that are safe (see above)
  std::map<FileId, Time> lost_at_;
  std::vector<std::string> wrong_;
  std::uint64_t lost_ = 0;
};

}  // namespace stdchk::sim
