#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "core/base/clock.h"
#include "manager/clients/sessions.h"
#include "manager/drain/drain_checks.h"
#include "manager/drain/drain_planner.h"
#include "manager/journal/command.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {

/// An Evictor frees memory of drained versions when space is short, the oldest first (rule M5). It
/// frees only versions that no session or reader uses. A benefactor must have seen their files in
/// the drain directory within the last 3 s (kSeenFor).
///
/// Threads: the reactor's.
/// Errors: none. A version whose file could not be checked is kept, and checked again later.
class Evictor {
 public:
  Evictor(Pool& pool, const DrainPlanner& drain, DrainChecks& checks, const SessionTable& sessions)
      : pool_(pool), drain_(drain), checks_(checks), sessions_(sessions) {}
  /// Returns true when it freed memory, or when a check of files is under way that may allow it to.
  /// With `on`, it frees memory of that benefactor only.
  bool evict(std::uint64_t want_bytes, BenefactorId on = {});
  /// Valid after evict(): there are drained versions, but their files cannot be checked now, or
  /// their names are being changed.
  bool is_blocked() const { return blocked_; }

 private:
  struct Choice {
    std::vector<Evict> commands;
    std::uint64_t bytes = 0;
    std::uint64_t newest = 0;  ///< sequence of the newest chosen version
  };
  using Filter = std::function<bool(const File&)>;
  template <class Visit>
  void for_each_candidate(const Filter& counts, Visit visit) const;
  Choice choose(std::uint64_t bytes, std::uint64_t newest, const Filter& counts,
                BenefactorId on) const;
  bool is_seen(const File& file) const;
  std::vector<FileId> unseen(const Choice& choice) const;
  void check_ahead(std::uint64_t want_bytes, BenefactorId on);

  struct Seen {
    Version version = 0;
    Time until{};
  };

  Pool& pool_;
  const DrainPlanner& drain_;
  DrainChecks& checks_;
  const SessionTable& sessions_;
  std::unordered_map<FileId, std::uint32_t> pins_without_bytes_;  ///< valid during evict()
  std::map<FileId, Seen> seen_;  ///< files seen in the drain directory within kSeenFor
  bool blocked_ = false;
  bool checking_ = false;
  std::uint64_t wanted_bytes_ = 0;  ///< the largest request since the check began
  BenefactorId wanted_on_{};        ///< the benefactor that this request names
  Time check_after_{};
};

}  // namespace stdchk::manager
