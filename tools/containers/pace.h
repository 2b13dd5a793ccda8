#pragma once

#include <cstddef>
#include <optional>

#include "core/base/clock.h"
#include "tools/base/problem.h"
#include "tools/containers/commands.h"

namespace stdchk::tools {

/// A Pace says how often a job is saved.
///
/// Errors: of() names the option that is not valid.
class Pace {
 public:
  /// Makes the Pace for a job on `nodes` nodes.
  static Outcome<Pace> of(const PaceOptions& options, std::size_t nodes);

  /// The times come from the cost model of `stdchk advise`, not from --every.
  bool advised() const { return advised_; }
  /// The fixed interval; when advised, the time until the first set. Nothing: only on demand.
  std::optional<Duration> every() const { return every_; }
  /// Daly's interval for a set that stopped the job for `pause`. At least `complete`, the time
  /// until the set was in the pool: one set follows the other.
  Duration after(Duration pause, Duration complete) const;

 private:
  bool advised_ = false;
  std::optional<Duration> every_;
  double job_mtbf_s_ = 0;
};

}  // namespace stdchk::tools
