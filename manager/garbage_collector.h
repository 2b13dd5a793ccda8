#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "core/messages/messages.h"
#include "manager/chunk_table.h"
#include "manager/garbage_plan.h"
#include "manager/lost_targets.h"
#include "transport/rpc.h"

namespace stdchk::manager {

class Service;

/// A GarbageCollector has benefactors report the extent headers in their arenas and forget those
/// that nothing refers to. Deleting touches only the manager, so the headers of what was deleted
/// stay until then, or until something is written over them.
///
/// What may go is free space at that moment. It is taken from there until the benefactor has
/// answered: nobody is granted it, copies or moves anything there, or commits it meanwhile.
/// A chunk without its header is checked by its benefactor (Scrubber); nothing is given up on such
/// evidence.
///
/// Threads: the reactor's.
/// Errors: what a benefactor does not report is left to the next round; what it does not answer to
///   have forgotten is kept until a later answer says that nothing is under way.
/// Limits: one round at a time; one page of each benefactor in a turn of the tick, and 128 MiB/s
///   in rounds that nobody has asked for.
class GarbageCollector {
 public:
  explicit GarbageCollector(Service& service) : service_(service), lost_(service, later()) {}
  void run();
  /// Has a round made from now on, behind the one under way. Answers its number. False: nothing is
  /// forgotten, and nothing checked.
  std::uint64_t start(bool execute);
  /// `round` has ended; also when it is one of an earlier manager.
  bool ended(std::uint64_t round) const;
  /// What came of the last round that has ended.
  const std::vector<msg::CollectGarbage::Arena>& arenas() const { return arenas_; }
  /// Space will be given back soon.
  bool gives_back() const { return !forgetting_.empty(); }
  /// Calls `visit(benefactor, range)` for the space that is being cleared.
  template <class Visit>
  void for_each_reserved(Visit visit) const {
    for (const auto& [number, forgetting] : forgetting_) {
      for (const Range& range : forgetting.ranges) visit(forgetting.benefactor, range);
    }
    lost_.for_each(visit);
  }

 private:
  /// How far the report of one benefactor is.
  struct Lane {
    msg::CollectGarbage::Arena figures;
    std::uint64_t offset = 0;  ///< of the page that comes next
    std::optional<std::uint64_t> next_extent;
    std::optional<msg::ReportExtents::Reply> reply;  ///< to be looked at in the next turn
    bool in_flight = false;
    bool again = false;  ///< something is missing: the page is asked for a second time
    bool done = false;
    Time next{};
  };
  struct Forgetting {
    BenefactorId benefactor;
    std::uint64_t round = 0;
    std::vector<Range> ranges;
  };
  using Claims = std::map<BenefactorId, std::vector<Claim>>;

  static msg::Request later();
  void begin(bool execute, bool paced);
  void end();
  Claims claims() const;
  void ask(BenefactorId benefactor, Lane& lane);
  void look_at(BenefactorId benefactor, Lane& lane, const std::vector<Claim>& claims);
  void forget(BenefactorId benefactor, const std::vector<msg::FoundExtent>& garbage);
  void forgotten(std::uint64_t number, const rpc::Answer& answer);
  void find_missing();

  Service& service_;
  std::uint64_t round_ = 0;  ///< the newest that was begun
  bool running_ = false;
  bool execute_ = false;
  bool paced_ = false;
  std::optional<bool> asked_;  ///< another round is to come: whether it executes
  std::optional<Time> next_;   ///< when the next one comes by itself
  std::map<BenefactorId, Lane> lanes_;
  std::map<std::uint64_t, Forgetting> forgetting_;  ///< until it is answered
  std::uint64_t forgets_made_ = 0;
  LostTargets lost_;
  std::map<BenefactorId, std::vector<Range>> missing_;
  ChunkIndex cursor_ = 0;  ///< of the walk that finds which chunks are missing
  std::vector<msg::CollectGarbage::Arena> arenas_;
};

}  // namespace stdchk::manager
