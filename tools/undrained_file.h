#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/pool_record.h"

namespace stdchk::tools {

/// What a pool has that is not in the drain directory, as a file keeps it for when the pool is lost
/// with its job.
struct Undrained {
  struct Entry {
    std::string path;           ///< of a file, or of a set as FOLDER/A.*.Tj
    std::uint64_t missing = 0;  ///< files that are not drained
    std::uint64_t files = 0;    ///< of the set that the pool has
    bool operator==(const Entry&) const = default;
  };
  std::string when;            ///< text_of_now() of the look
  std::vector<Entry> entries;  ///< newer sets of an application before older ones
};

/// Replaces the file as a whole, durably; removes it when nothing is undrained.
Outcome<void> save_undrained(const Undrained& undrained, const std::string& path);
/// Without entries when there is no such file, and without lines that are none.
Undrained load_undrained(const std::string& path);

}  // namespace stdchk::tools
