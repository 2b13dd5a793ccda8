#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/result.h"

namespace stdchk::bench {

/// What one step of the machine can do, in 10^9 bytes a second, over the repetitions of one run.
struct Ceiling {
  std::string name;      ///< a key: "memcpy_1m"
  std::string measures;  ///< one sentence
  double min = 0;
  double median = 0;
  double max = 0;
};

struct CeilingOptions {
  std::uint64_t bytes = 256ull << 20;  ///< of each repetition; far above the caches
  int repetitions = 5;                 ///< counted; one more goes before them and is dropped
  std::string tmpfs = "/dev/shm";      ///< where the new file is written
};

/// Measures, on one thread: copying memory in blocks of 1 MiB and in one call, the first touch of
/// new memory on small and on huge pages, a new file on tmpfs, CRC32C. For a bench to divide its
/// own figures by, in the same run. Takes about 12 times `bytes` * repetitions of memory traffic,
/// and 3 times `bytes` of memory. kNoMemory, or the errno of the tmpfs.
Result<std::vector<Ceiling>> measure_ceilings(const CeilingOptions& options);

/// {"memcpy_1m": {"min": .., "median": .., "max": .., "unit": "GB/s", "measures": ".."}, ...}
nlohmann::json to_json(const std::vector<Ceiling>& ceilings);

}  // namespace stdchk::bench
