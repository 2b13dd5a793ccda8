#pragma once

#include <atomic>
#include <cstdint>

namespace stdchk::benefactor {

/// What the jobs of a benefactor have done since it was started. Threads: any; relaxed additions.
struct JobCounts {
  std::atomic<std::uint64_t> copied_bytes{0};   ///< of other benefactors' chunks that came right
  std::atomic<std::uint64_t> copies_failed{0};  ///< chunks that could not be read, or were wrong
  std::atomic<std::uint64_t> built_bytes{0};    ///< blocks of stripes: parity, and what was lost
  std::atomic<std::uint64_t> builds_failed{0};  ///< requests
  std::atomic<std::uint64_t> moved_bytes{0};    ///< inside the arena
  std::atomic<std::uint64_t> checked_bytes{0};  ///< by the scrub
  std::atomic<std::uint64_t> wrong_extents{0};  ///< of those
  std::atomic<std::uint64_t> drained_bytes{0};  ///< written to the drain directory
  std::atomic<std::uint64_t> drained_files{0};  ///< that have got their names there
  std::atomic<std::uint64_t> drains_failed{0};  ///< requests
};

}  // namespace stdchk::benefactor
