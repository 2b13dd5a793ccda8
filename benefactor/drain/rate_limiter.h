#pragma once

#include <algorithm>
#include <cstdint>

#include "core/base/clock.h"
#include "core/base/mutex.h"

namespace stdchk::benefactor {

/// A RateLimiter is a token bucket that lends. reserve() always succeeds, and returns how long to
/// wait before the bytes may be sent. Unused time is saved, up to `burst`.
///
/// Threads: any.
class RateLimiter {
 public:
  /// `rate` is in bytes per second; 0: unlimited.
  explicit RateLimiter(std::uint64_t rate, Duration burst = std::chrono::milliseconds(100))
      : rate_(rate), burst_(burst) {}

  Duration reserve(std::uint64_t bytes, Time now) {
    if (rate_ == 0) return Duration::zero();
    const MutexLock lock(mutex_);
    paid_until_ = std::max(paid_until_, now - burst_);
    // Uses double, because bytes * 10^9 may exceed 64 bits. The error is below 1 ns per MiB.
    paid_until_ += Duration(
        static_cast<Duration::rep>(static_cast<double>(bytes) * 1e9 / static_cast<double>(rate_)));
    return std::max(Duration::zero(), paid_until_ - now);
  }

 private:
  const std::uint64_t rate_;
  const Duration burst_;
  Mutex mutex_;
  /// The time at which the rate has covered all bytes reserved so far.
  Time paid_until_ STDCHK_GUARDED_BY(mutex_){};
};

}  // namespace stdchk::benefactor
