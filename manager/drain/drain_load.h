#pragma once

#include <cstdint>
#include <map>

#include "core/base/clock.h"
#include "manager/drain/drain_job.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {

/// Returns the time that a request for so many bytes may take at a benefactor.
Duration drain_deadline(const Pool& pool, std::uint64_t bytes);

/// A DrainLoad counts the requests for pieces that each benefactor has, and knows which benefactors
/// answer.
///
/// Threads: the reactor's.
/// Limits: a benefactor whose answer was lost gets no pieces for kParked. A hanging request does not
/// count against the pace, up to kHangingMax at each benefactor.
class DrainLoad {
 public:
  static constexpr Duration kParked = std::chrono::seconds(2);
  /// A request hangs when it has no answer for 10 s, and for 4 times as long as the last one took.
  /// More requests would only make slow storage slower.
  static constexpr Duration kHangsAfter = std::chrono::seconds(10);
  static constexpr int kHangsAfterFactor = 4;
  static constexpr std::uint32_t kHangingMax = 16;

  explicit DrainLoad(const Pool& pool) : pool_(pool) {}

  /// Returns true when the benefactor has a link and is not parked.
  bool is_usable(BenefactorId benefactor) const;
  /// Returns true when the benefactor may get one more request. `at_once` is the pace's limit.
  bool has_room(BenefactorId benefactor, bool hangs, std::uint32_t at_once) const;
  /// Returns true when the request hangs, see kHangsAfter, and may be counted as hanging.
  bool is_stuck(const DrainRequest& request) const;

  void sent(const DrainRequest& request) { ++count_of(request); }
  /// Counts a request that is_stuck() as hanging from now on.
  void hangs(DrainRequest& request);
  void ended(const DrainRequest& request) { --count_of(request); }
  /// Notes the duration of a request that was answered now.
  void answered(const DrainRequest& request);
  void park(BenefactorId benefactor) { parked_[benefactor] = pool_.now() + kParked; }

 private:
  using Counts = std::map<BenefactorId, std::uint32_t>;
  std::uint32_t& count_of(const DrainRequest& request) {
    return (request.hangs ? hanging_ : in_flight_)[request.benefactor];
  }

  const Pool& pool_;
  std::map<BenefactorId, Time> parked_;
  Counts in_flight_;
  Counts hanging_;                         ///< requests that in_flight_ does not count
  std::map<BenefactorId, Duration> took_;  ///< duration of the last answered request
};

}  // namespace stdchk::manager
