#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace stdchk::bench {

/// The speed of one basic operation of the machine, in 10^9 bytes a second, over the repetitions of
/// one run.
struct Ceiling {
  std::string name;      ///< key, such as "memcpy_1m"
  std::string measures;  ///< description in one sentence
  double min = 0;
  double median = 0;
  double max = 0;
};

struct CeilingOptions {
  std::uint64_t bytes = 256ull << 20;  ///< bytes of each repetition; far above the caches
  int repetitions = 5;                 ///< counted repetitions; a first one more is dropped
  std::string tmpfs = "/dev/shm";      ///< directory of the new file
};

/// Measures the machine's ceilings on one thread. A bench divides its figures by the ceilings of
/// the same run. Ceilings: memcpy in blocks of 1 MiB and in one call, first touch of memory on
/// small and huge pages, a new tmpfs file, CRC32C. Limits: needs about 12 times `bytes` *
/// repetitions of memory traffic, and 3 times `bytes` of memory. Errors: kNoMemory, or the errno of
/// the tmpfs.
Result<std::vector<Ceiling>> measure_ceilings(const CeilingOptions& options);

/// {"memcpy_1m": {"min": .., "median": .., "max": .., "unit": "GB/s", "measures": ".."}, ...}
nlohmann::json to_json(const std::vector<Ceiling>& ceilings);

}  // namespace stdchk::bench
