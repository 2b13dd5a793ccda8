#pragma once

#include <chrono>
#include <cstdint>

namespace stdchk {

using Duration = std::chrono::nanoseconds;
/// Monotonic time since an arbitrary start; only differences have a meaning.
using Time = std::chrono::time_point<std::chrono::steady_clock, Duration>;

/// A Clock tells the time to everything that waits, so that a simulator can supply its own time.
///
/// Threads: any.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() const = 0;
  /// Nanoseconds since 1970-01-01 UTC, for timestamps of files.
  virtual std::int64_t wall_ns() const = 0;
};

/// A SystemClock reads the operating system's clocks.
class SystemClock final : public Clock {
 public:
  Time now() const override;
  std::int64_t wall_ns() const override;
};

/// A ManualClock advances only when told to. Threads: one.
class ManualClock final : public Clock {
 public:
  Time now() const override { return now_; }
  std::int64_t wall_ns() const override { return now_.time_since_epoch().count(); }
  void advance(Duration by) { now_ += by; }
  void advance_to(Time to) {
    if (to > now_) now_ = to;
  }

 private:
  Time now_{std::chrono::seconds(1)};
};

/// A Prng makes reproducible pseudo-random numbers (xoshiro256**, Blackman and Vigna 2018).
///
/// Not: secure. Secrets come from the operating system.
class Prng {
 public:
  explicit Prng(std::uint64_t seed);
  std::uint64_t next();
  /// A number in [0, bound). `bound` must not be 0.
  std::uint64_t below(std::uint64_t bound);
  /// True with probability `numerator` / `denominator`.
  bool chance(std::uint64_t numerator, std::uint64_t denominator);

 private:
  std::uint64_t state_[4];
};

}  // namespace stdchk
