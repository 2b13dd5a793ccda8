#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "core/clock.h"

namespace stdchk::benefactor {

/// A RateLimiter is a token bucket that lends: reserve() always succeeds and tells how long to wait
/// before the bytes may go. What was not used for a while is saved up to `burst`.
///
/// Threads: any.
class RateLimiter {
 public:
  /// `rate` in bytes a second, 0: not limited.
  explicit RateLimiter(std::uint64_t rate, Duration burst = std::chrono::milliseconds(100))
      : rate_(rate), burst_(burst) {}

  Duration reserve(std::uint64_t bytes, Time now) {
    if (rate_ == 0) return Duration::zero();
    const std::lock_guard lock(mutex_);
    paid_until_ = std::max(paid_until_, now - burst_);
    // By double: bytes * 10^9 does not fit 64 bits for large requests. The error is below 1 ns a
    // MiB.
    paid_until_ += Duration(
        static_cast<Duration::rep>(static_cast<double>(bytes) * 1e9 / static_cast<double>(rate_)));
    return std::max(Duration::zero(), paid_until_ - now);
  }

 private:
  const std::uint64_t rate_;
  const Duration burst_;
  std::mutex mutex_;
  Time paid_until_{};  ///< when all bytes given out so far are paid for
};

}  // namespace stdchk::benefactor
