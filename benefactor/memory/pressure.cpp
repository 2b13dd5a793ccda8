#include "benefactor/memory/pressure.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/base/limits.h"
#include "core/base/units.h"

namespace stdchk::benefactor {
namespace {

constexpr std::uint64_t kReserveShare = 32;
constexpr std::uint64_t kReserveMax = 2 * limits::kGiB;

/// Keeps in `since` the time since which `holds` has been true without interruption.
void keep_time(std::optional<Time>& since, bool holds, Time now) {
  if (!holds) {
    since.reset();
  } else if (!since) {
    since = now;
  }
}

}  // namespace

std::uint64_t reserve_of(std::uint64_t total_bytes, const PressureLimits& limits) {
  if (limits.reserve_bytes > 0) return std::min(limits.reserve_bytes, total_bytes / 4);
  return std::min(total_bytes / kReserveShare, kReserveMax);
}

Pressure PressureJudge::judge(const std::vector<MemoryScope>& scopes, Time now) {
  bool high = false;
  bool critical = false;
  bool out_of_memory = false;
  near_ = false;
  for (const MemoryScope& scope : scopes) {
    const std::uint64_t reserve = reserve_of(scope.total_bytes, limits_);
    Stalls& stalls = stalls_of(scope, now);
    near_ = near_ || scope.available_bytes < 2 * reserve;
    high = is_high(scope, stalls) || high;
    if (scope.before_oom_bytes < reserve / 2) {
      critical = true;
      reason_ = fmt::format("{} has only {} left before the OOM killer comes", scope.name,
                            format_bytes(scope.before_oom_bytes));
    }
    if (scope.oom_count > stalls.oom_count) {
      out_of_memory = true;
      stalls.oom_count = scope.oom_count;
      reason_ = fmt::format("{} has reached its limit", scope.name);
    }
  }
  keep_time(high_since_, high, now);
  keep_time(critical_since_, critical, now);
  if (out_of_memory || (critical_since_ && now - *critical_since_ >= kCriticalHold)) {
    return Pressure::kCritical;
  }
  return high_since_ && now - *high_since_ >= kHold ? Pressure::kHigh : Pressure::kNone;
}

bool PressureJudge::is_high(const MemoryScope& scope, const Stalls& stalls) {
  const bool already = high_since_.has_value();
  const std::uint64_t reserve = reserve_of(scope.total_bytes, limits_);
  const std::uint64_t enough = already ? reserve + reserve / 4 : reserve;
  if (scope.available_bytes < enough) {
    reason_ = fmt::format("{} has {} available, and {} of it should stay free", scope.name,
                          format_bytes(scope.available_bytes), format_bytes(reserve));
    return true;
  }
  const double limit = limits_.stall_percent / (already ? 200.0 : 100.0);
  if (stalls.share() < limit || scope.available_bytes >= kNear * reserve) return false;
  reason_ = fmt::format("tasks of {} wait for memory {:.0f} % of the time, and {} are available",
                        scope.name, stalls.share() * 100, format_bytes(scope.available_bytes));
  return true;
}

PressureJudge::Stalls& PressureJudge::stalls_of(const MemoryScope& scope, Time now) {
  const std::uint64_t stalled = scope.stalled_us.value_or(0);
  const auto [found, added] = stalls_.try_emplace(scope.name);
  Stalls& stalls = found->second;
  if (added) {
    stalls.window_start = now;
    stalls.at_start_us = stalled;
    stalls.oom_count = scope.oom_count;
    return stalls;
  }
  const Duration passed = now - stalls.window_start;
  if (passed < kStallWindow) return stalls;
  // A counter that has decreased belongs to a new group with the same name.
  const std::uint64_t waited = stalled - std::min(stalled, stalls.at_start_us);
  stalls.before = stalls.last;
  stalls.last = static_cast<double>(waited) * 1000 / static_cast<double>(passed.count());
  stalls.window_start = now;
  stalls.at_start_us = stalled;
  return stalls;
}

void PressureJudge::begin_again() {
  stalls_.clear();
  high_since_.reset();
  critical_since_.reset();
}

}  // namespace stdchk::benefactor
