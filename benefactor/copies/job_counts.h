#pragma once

#include <atomic>
#include <cstdint>

namespace stdchk::benefactor {

/// Counts of the jobs of a benefactor since its start. Threads: any; relaxed additions.
struct JobCounts {
  /// Chunks of other benefactors, copied correctly.
  std::atomic<std::uint64_t> copied_bytes{0};
  std::atomic<std::uint64_t> copies_failed{0};  ///< unreadable or wrong chunks
  /// Blocks of stripes: parity and reconstructed chunks.
  std::atomic<std::uint64_t> built_bytes{0};
  std::atomic<std::uint64_t> builds_failed{0};  ///< requests
  std::atomic<std::uint64_t> moved_bytes{0};    ///< inside the arena
  std::atomic<std::uint64_t> checked_bytes{0};  ///< by the scrub
  std::atomic<std::uint64_t> wrong_extents{0};  ///< chunks that the scrub found wrong
  std::atomic<std::uint64_t> drained_bytes{0};  ///< written to the drain directory
  /// Files that got their names in the drain directory.
  std::atomic<std::uint64_t> drained_files{0};
  std::atomic<std::uint64_t> drains_failed{0};  ///< requests
};

}  // namespace stdchk::benefactor
