#pragma once

#include <cstdint>

#include "core/clock.h"

namespace stdchk::sim {

/// A NodeClock is one process's view of the time that all share: it began elsewhere, it is a little
/// fast or slow, and its time of day jumps.
///
/// Threads: one. Limits: a drift of less than a million in a million.
class NodeClock final : public Clock {
 public:
  /// `of` must outlive this. When it shows its own beginning, this one shows `start` after that.
  NodeClock(const ManualClock& of, std::int64_t drift_ppm, Duration start)
      : of_(of), drift_ppm_(drift_ppm), start_(start) {}

  Time now() const override { return at(of_.now()); }
  std::int64_t wall_ns() const override { return of_.wall_ns() + jumped_.count(); }
  /// now() goes on as before.
  void jump(Duration by) { jumped_ += by; }
  /// The first moment at which now() is `own` or more. Time::max() stays.
  Time true_time(Time own) const {
    if (own == Time::max()) return own;
    const std::int64_t shown = (own - start_).time_since_epoch().count();
    const std::int64_t speed = kMillion + drift_ppm_;
    Time guess{Duration(shown / speed * kMillion + shown % speed * kMillion / speed)};
    while (at(guess) < own) guess += Duration(1);
    return guess;
  }

 private:
  static constexpr std::int64_t kMillion = 1000000;
  Time at(Time of) const {
    const std::int64_t passed = of.time_since_epoch().count();
    return of + start_ + Duration(passed / kMillion * drift_ppm_) +
           Duration(passed % kMillion * drift_ppm_ / kMillion);
  }

  const ManualClock& of_;
  const std::int64_t drift_ppm_;
  const Duration start_;
  Duration jumped_{};
};

}  // namespace stdchk::sim
