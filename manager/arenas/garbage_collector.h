#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "manager/arenas/claims.h"
#include "manager/arenas/garbage_plan.h"
#include "manager/arenas/scrubber.h"
#include "manager/arenas/unanswered_writes.h"
#include "manager/pool/pool.h"
#include "manager/state/chunk_table.h"
#include "transport/rpc.h"

namespace stdchk::manager {

/// A GarbageCollector has benefactors report the extent headers in their arenas, and forget headers
/// that nothing refers to. Deleting touches only the manager. So the headers of deleted extents
/// stay until a round finds them, or something is written over them.
///
/// Only headers in free space are forgotten. Their range is taken from the free space until the
/// benefactor has answered. Meanwhile it cannot be granted or be the target of a copy or move. A
/// chunk without its header is checked by its benefactor (Scrubber); the missing header alone
/// changes nothing.
///
/// Threads: the reactor's.
/// Errors: an arena whose benefactor does not report is left to the next round. The range of a
/// request without an answer stays taken until a later answer proves that the request is over.
/// Limits: one round at a time; one page of each benefactor in a tick; at most 128 MiB/s in
/// periodic rounds.
class GarbageCollector {
 public:
  GarbageCollector(Pool& pool, const Claims& claims, Scrubber& scrubber)
      : pool_(pool), claims_(claims), scrubber_(scrubber), lost_(pool, later()) {}
  void run();
  /// Begins a round, or queues it behind the running one. Returns its number. Without `execute` it
  /// forgets and checks nothing.
  std::uint64_t start(bool execute);
  /// Returns true when `round` has ended, or belongs to an earlier manager.
  bool ended(std::uint64_t round) const;
  /// Results of the last completed round.
  const std::vector<msg::CollectGarbage::Arena>& arenas() const { return arenas_; }
  /// Returns true while space is about to be given back.
  bool is_freeing() const { return !forgetting_.empty(); }
  /// Calls `visit(benefactor, range)` for the ranges that are being cleared.
  template <class Visit>
  void for_each_reserved(Visit visit) const {
    for (const auto& [number, forgetting] : forgetting_) {
      for (const Range& range : forgetting.ranges) visit(forgetting.benefactor, range);
    }
    lost_.for_each(visit);
  }

 private:
  /// The progress of one benefactor's report.
  struct Lane {
    msg::CollectGarbage::Arena figures;
    std::uint64_t offset = 0;  ///< of the next page
    std::optional<std::uint64_t> next_extent;
    std::optional<msg::ReportExtents::Reply> reply;  ///< to be judged in the next turn
    bool in_flight = false;
    bool again = false;  ///< an extent is missing: the page is requested a second time
    bool done = false;
    Time next{};
  };
  struct Forgetting {
    BenefactorId benefactor;
    std::uint64_t round = 0;
    std::vector<Range> ranges;
  };
  using ByArena = std::map<BenefactorId, std::vector<Claim>>;

  static msg::Request later();
  void begin(bool execute, bool paced);
  void end();
  ByArena claims() const;
  void ask(BenefactorId benefactor, Lane& lane);
  void examine(BenefactorId benefactor, Lane& lane, const std::vector<Claim>& claims);
  void forget(BenefactorId benefactor, const std::vector<msg::FoundExtent>& garbage);
  void forgotten(std::uint64_t number, const rpc::Answer& answer);
  void find_missing();

  Pool& pool_;
  const Claims& claims_;
  Scrubber& scrubber_;
  std::uint64_t round_ = 0;  ///< the newest round
  bool running_ = false;
  bool execute_ = false;
  bool paced_ = false;
  std::optional<bool> asked_;  ///< set: another round follows; whether it executes
  std::optional<Time> next_;   ///< time of the next periodic round
  std::map<BenefactorId, Lane> lanes_;
  std::map<std::uint64_t, Forgetting> forgetting_;  ///< requests without an answer yet
  std::uint64_t forgets_made_ = 0;
  UnansweredWrites lost_;
  std::map<BenefactorId, std::vector<Range>> missing_;
  ChunkIndex cursor_ = 0;  ///< of the walk that finds the missing chunks
  std::vector<msg::CollectGarbage::Arena> arenas_;
};

}  // namespace stdchk::manager
