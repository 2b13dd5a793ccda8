#pragma once

#include <algorithm>
#include <cstdint>

#include "core/base/clock.h"
#include "core/base/mutex.h"

namespace stdchk {

/// A RateLimiter is a token bucket that lends. reserve() always succeeds, and returns how long to
/// wait before the bytes may be sent. Unused time is saved, up to `burst`.
///
/// Threads: any.
class RateLimiter {
 public:
  /// `rate` is in bytes per second; 0: unlimited.
  explicit RateLimiter(std::uint64_t rate, Duration burst = std::chrono::milliseconds(100))
      : burst_(burst), rate_(rate) {}

  /// Applies to the bytes that are reserved later.
  void set_rate(std::uint64_t rate) {
    const MutexLock lock(mutex_);
    rate_ = rate;
  }
  Duration reserve(std::uint64_t bytes, Time now) {
    const MutexLock lock(mutex_);
    if (rate_ == 0) return Duration::zero();
    paid_until_ = std::max(paid_until_, now - burst_);
    // Uses double, because bytes * 10^9 may exceed 64 bits. The error is below 1 ns per MiB.
    paid_until_ += Duration(
        static_cast<Duration::rep>(static_cast<double>(bytes) * 1e9 / static_cast<double>(rate_)));
    return std::max(Duration::zero(), paid_until_ - now);
  }
  /// Returns true when the rate has covered all bytes reserved so far, or is unlimited.
  bool is_free(Time now) const {
    const MutexLock lock(mutex_);
    return rate_ == 0 || now >= paid_until_;
  }

 private:
  const Duration burst_;
  mutable Mutex mutex_;
  std::uint64_t rate_ STDCHK_GUARDED_BY(mutex_);
  /// The time at which the rate has covered all bytes reserved so far.
  Time paid_until_ STDCHK_GUARDED_BY(mutex_){};
};

}  // namespace stdchk
