#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "manager/pool/pool.h"
#include "manager/space/space.h"
#include "manager/state/chunk_table.h"

namespace stdchk::manager {

/// A step of compaction in a single arena: which extents move where. Its targets are already taken
/// from the space.
struct CompactionPlan {
  std::vector<msg::MoveExtents::Move> moves;
  std::vector<ChunkIndex> chunks;  ///< the chunk of each move
};

/// Plans moves that make one free range of `want_bytes`, or less, down to `need_bytes`. They empty
/// the window of the arena that has the fewest used bytes into holes elsewhere. Returns no moves
/// when that is impossible.
CompactionPlan plan_compaction(const State& state, Space& space, BenefactorId benefactor,
                               std::uint64_t need_bytes, std::uint64_t want_bytes);

/// A Compactor joins the holes of arenas when grants no longer fit. The benefactor copies the
/// extents, then a journalled command changes the map. A reader with an old map gets a wrong
/// checksum and asks again.
///
/// Threads: the reactor's. Limits: one step at a time in the whole pool.
class Compactor {
 public:
  explicit Compactor(Pool& pool) : pool_(pool) {}
  /// Requests compaction because a grant of `unit_bytes` did not fit. Returns true when there are
  /// holes to join.
  bool wanted(std::uint64_t unit_bytes);
  void run();
  /// Calls `visit(benefactor, range)` for the targets of moves.
  template <class Visit>
  void for_each_reserved(Visit visit) const {
    for (const auto& [benefactor, range] : targets_) visit(benefactor, range);
    for (const auto& [number, lost] : lost_) {
      for (const Range& range : lost.targets) visit(lost.benefactor, range);
    }
  }

 private:
  std::optional<BenefactorId> candidate(std::uint64_t unit_bytes) const;
  void moved(BenefactorId benefactor, CompactionPlan plan, const msg::MoveExtents::Reply* reply);
  void settle(BenefactorId benefactor, const CompactionPlan& plan);
  void ask_lost();

  Pool& pool_;
  Time wanted_until_{};
  std::uint64_t unit_ = 0;  ///< the largest grant requested within kWanted
  Time next_{};
  bool running_ = false;
  std::vector<std::pair<BenefactorId, Range>> targets_;  ///< of the step under way
  /// Targets of a step without an answer: the benefactor may still write to them.
  struct Lost {
    BenefactorId benefactor;
    std::vector<Range> targets;
    Time next{};
  };
  std::map<std::uint64_t, Lost> lost_;
  std::uint64_t lost_made_ = 0;
};

}  // namespace stdchk::manager
