#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "benefactor/memory/memory_scopes.h"
#include "core/base/clock.h"

/// Decides when memory is so short that a benefactor should give its own back.
namespace stdchk::benefactor {

enum class Pressure : std::uint8_t {
  kNone,
  kHigh,      ///< others need the memory: leave after a hand-over
  kCritical,  ///< the OOM killer is near: leave at once
};

struct PressureLimits {
  /// Bytes of each scope that should stay available; 0: 1/32 of it, at most 2 GiB.
  std::uint64_t reserve_bytes = 0;
  /// Percentage of time in which tasks wait for memory that counts as high.
  std::uint32_t stall_percent = 20;
};

/// Returns the bytes that should stay available in a scope of `total_bytes`:
/// at most a quarter of it.
std::uint64_t reserve_of(std::uint64_t total_bytes, const PressureLimits& limits);

/// A PressureJudge decides, from a series of samples, whether memory is short.
///
/// Pressure is high after one of two conditions has held in some scope for kHold. Either less than
/// the reserve is available; or tasks stall more than stall_percent of the time while less than
/// kNear reserves are available. Stalls alone do not count: they may come from a limit that this
/// process is not under. High pressure ends when 1.25 reserves are available and stalls are below
/// half the limit. Pressure is critical when, for kCriticalHold, less than half the reserve was
/// left before the OOM killer acts. It is critical at once when a group reached its limit with
/// nothing left to reclaim.
///
/// Threads: one. Each sample comes with its time.
class PressureJudge {
 public:
  static constexpr Duration kHold = std::chrono::seconds(3);
  static constexpr Duration kCriticalHold = std::chrono::milliseconds(500);
  static constexpr Duration kStallWindow = std::chrono::seconds(5);  ///< the last two windows count
  static constexpr std::uint64_t kNear = 4;
  /// Interval of samples; kSampleIntervalShort when less than two reserves are available.
  static constexpr Duration kSampleInterval = std::chrono::seconds(1);
  static constexpr Duration kSampleIntervalShort = std::chrono::milliseconds(100);

  explicit PressureJudge(const PressureLimits& limits) : limits_(limits) {}

  Pressure judge(const std::vector<MemoryScope>& scopes, Time now);
  /// Returns the wait until the next sample is due.
  Duration next_sample() const { return near_ ? kSampleIntervalShort : kSampleInterval; }
  /// After a sample with pressure, returns a sentence: which scope lacks what.
  const std::string& reason() const { return reason_; }
  /// Forgets all earlier samples: a shortage must last for the whole time again.
  void begin_again();

 private:
  /// Stalls of a scope, in windows of kStallWindow.
  struct Stalls {
    Time window_start{};
    std::uint64_t at_start_us = 0;
    double before = 0;  ///< share of the time, 0 to 1, in the window before the last one
    double last = 0;
    std::uint64_t oom_count = 0;
    double share() const { return before < last ? before : last; }
  };

  Stalls& stalls_of(const MemoryScope& scope, Time now);
  bool is_high(const MemoryScope& scope, const Stalls& stalls);

  PressureLimits limits_;
  std::map<std::string, Stalls> stalls_;
  std::optional<Time> high_since_;
  std::optional<Time> critical_since_;
  bool near_ = false;
  std::string reason_;
};

}  // namespace stdchk::benefactor
