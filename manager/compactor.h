#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "core/messages/messages.h"
#include "manager/chunk_table.h"
#include "manager/space.h"

namespace stdchk::manager {

class Service;
class State;

/// One step of compaction: which extents of one arena go where. Targets are taken from the space.
struct CompactionPlan {
  std::vector<msg::MoveExtents::Move> moves;
  std::vector<ChunkIndex> chunks;  ///< of each move
};

/// Plans moves that make one free range of `want_bytes`, or of less down to `need_bytes`: the
/// window of the arena with the fewest bytes in use is emptied into holes elsewhere. No moves: it
/// cannot be.
CompactionPlan plan_compaction(const State& state, Space& space, BenefactorId benefactor,
                               std::uint64_t need_bytes, std::uint64_t want_bytes);

/// A Compactor joins the holes of arenas when grants no longer fit: the benefactor copies, then a
/// command changes the map. Readers with an old map see a wrong checksum and ask again.
///
/// Threads: the reactor's. Limits: one step at a time in the pool.
class Compactor {
 public:
  explicit Compactor(Service& service) : service_(service) {}
  /// A grant of `unit_bytes` did not fit. True when there is something to join.
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

  Service& service_;
  Time wanted_until_{};
  std::uint64_t unit_ = 0;  ///< the largest that is wanted
  Time next_{};
  bool running_ = false;
  std::vector<std::pair<BenefactorId, Range>> targets_;  ///< of the step under way
  /// Of steps without an answer: the copies may still be made.
  struct Lost {
    BenefactorId benefactor;
    std::vector<Range> targets;
    Time next{};
  };
  std::map<std::uint64_t, Lost> lost_;
  std::uint64_t lost_made_ = 0;
};

}  // namespace stdchk::manager
