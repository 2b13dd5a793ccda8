#pragma once

#include <algorithm>

#include "core/base/clock.h"

namespace stdchk {

/// A BackOff doubles the wait between attempts, from a first wait to a longest one.
///
/// Threads: one.
class BackOff {
 public:
  /// 0 < first <= longest.
  constexpr BackOff(Duration first, Duration longest) : first_(first), longest_(longest) {}

  /// An attempt has failed. Returns the wait before the next attempt.
  Duration next() {
    wait_ = std::clamp(wait_ * 2, first_, longest_);
    return wait_;
  }
  /// An attempt has failed, and the next attempt may well succeed. Returns the first wait. A later
  /// next() continues the doubling.
  Duration retry_soon() {
    wait_ = std::max(wait_, first_);
    return first_;
  }
  /// An attempt has succeeded.
  void reset() { wait_ = Duration::zero(); }
  /// Returns true when an attempt has failed since the last success.
  bool is_failing() const { return wait_ > Duration::zero(); }
  /// The wait that the last next() returned; 0 after a success.
  Duration wait() const { return wait_; }

 private:
  Duration first_;
  Duration longest_;
  Duration wait_{};
};

}  // namespace stdchk
