#pragma once

#include <cstdint>

#include "core/base/clock.h"

namespace stdchk::sim {

/// A NodeClock is one process's view of the common time. It begins at another time, drifts, and its
/// time of day jumps.
///
/// Threads: one. Limits: a drift below one million ppm.
class NodeClock final : public Clock {
 public:
  /// `of` must outlive this clock. At the beginning of `of` this clock shows `start` after its own
  /// beginning.
  NodeClock(const ManualClock& of, std::int64_t drift_ppm, Duration start)
      : of_(of), drift_ppm_(drift_ppm), start_(start) {}

  Time now() const override { return at(of_.now()); }
  std::int64_t wall_ns() const override { return of_.wall_ns() + jumped_.count(); }
  /// Jumps the time of day; now() is unaffected.
  void jump(Duration by) { jumped_ += by; }
  /// The earliest common time at which now() has reached `own`. Time::max() stays.
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
