#pragma once

#include <cstdint>
#include <ctime>

namespace stdchk {

inline std::int64_t to_ns(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// Returns true when `there` is how a file system stores `wanted`: some round times down to
/// multiples of up to 2 s.
inline bool equals_stored_time(std::int64_t wanted_ns, const timespec& there) {
  const std::int64_t before_ns = wanted_ns - to_ns(there);
  return before_ns >= 0 && before_ns < 2'000'000'000;
}

}  // namespace stdchk
