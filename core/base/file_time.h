#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>

namespace stdchk {

inline constexpr std::int64_t kNsPerSecond = 1'000'000'000;

/// Returns nanoseconds since 1970. 64 bits hold the years 1678 to 2261. An earlier or later time becomes
/// the first or the last second of them: tmpfs, XFS and object stores may have such times.
inline std::int64_t to_ns(const timespec& time) {
  constexpr std::int64_t kSecondsMax = INT64_MAX / kNsPerSecond - 1;
  const std::int64_t seconds = std::clamp<std::int64_t>(time.tv_sec, -kSecondsMax, kSecondsMax);
  return seconds * kNsPerSecond + (seconds == time.tv_sec ? time.tv_nsec : 0);
}

/// The inverse of to_ns(): times before 1970 have negative seconds, and nanoseconds from 0 on.
inline timespec to_timespec(std::int64_t ns) {
  const std::int64_t rest = ns % kNsPerSecond;
  const std::int64_t seconds = ns / kNsPerSecond;
  return rest < 0 ? timespec{seconds - 1, rest + kNsPerSecond} : timespec{seconds, rest};
}

/// Returns true when `there` is how a file system stores `wanted`: some round times down to
/// multiples of up to 2 s.
inline bool equals_stored_time(std::int64_t wanted_ns, const timespec& there) {
  const std::int64_t there_ns = to_ns(there);
  // A difference of two times of any value fits in 64 bits without a sign.
  return wanted_ns >= there_ns &&
         static_cast<std::uint64_t>(wanted_ns) - static_cast<std::uint64_t>(there_ns) <
             2 * kNsPerSecond;
}

}  // namespace stdchk
