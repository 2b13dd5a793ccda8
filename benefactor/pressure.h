#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "benefactor/memory_scopes.h"
#include "core/clock.h"

/// When memory is so short that a benefactor should give its own back.
namespace stdchk::benefactor {

enum class Pressure : std::uint8_t {
  kNone,
  kHigh,      ///< others need the memory: leave, and hand over first
  kCritical,  ///< the OOM killer is near: leave now
};

struct PressureLimits {
  /// Of each scope, what should stay available; 0: a thirty-second of it, at most 2 GiB.
  std::uint64_t reserve_bytes = 0;
  /// Of the time, in which some task waits for memory.
  std::uint32_t stall_percent = 20;
};

/// What should stay available of a scope with `total_bytes`: a quarter of it at most.
std::uint64_t reserve_of(std::uint64_t total_bytes, const PressureLimits& limits);

/// A PressureJudge says from one look after another whether memory is short.
///
/// High: for kHold, in some scope less than the reserve is available; or tasks stall more than
/// stall_percent of the time while less than kNear reserves are available. Stalls alone are no
/// reason: they may come from a limit that this process is not under. It has passed when a quarter
/// of the reserve more is available and stalls are half as many.
/// Critical: for kCriticalHold, less than half of the reserve is left before the OOM killer comes;
/// or, at once, a group has reached its limit with nothing left to reclaim.
///
/// Threads: one. Time comes with each look.
class PressureJudge {
 public:
  static constexpr Duration kHold = std::chrono::seconds(3);
  static constexpr Duration kCriticalHold = std::chrono::milliseconds(500);
  static constexpr Duration kStallWindow = std::chrono::seconds(5);  ///< two in a row count
  static constexpr std::uint64_t kNear = 4;
  /// Time between looks, and where less than two reserves are available.
  static constexpr Duration kLook = std::chrono::seconds(1);
  static constexpr Duration kLookSoon = std::chrono::milliseconds(100);

  explicit PressureJudge(const PressureLimits& limits) : limits_(limits) {}

  Pressure look(const std::vector<MemoryScope>& scopes, Time now);
  /// After the last look: until the next one.
  Duration next_look() const { return near_ ? kLookSoon : kLook; }
  /// After a look that found pressure: which scope is short of what, as a sentence.
  const std::string& why() const { return why_; }
  /// Forgets all earlier looks: what is short must be so for the whole time again.
  void begin_again();

 private:
  /// Stalls of one scope, in windows of kStallWindow.
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
  std::string why_;
};

}  // namespace stdchk::benefactor
