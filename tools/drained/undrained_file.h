#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/base/pool_record.h"

namespace stdchk::tools {

/// The undrained part of a pool. A file keeps it for the case that the pool is lost with its job.
struct Undrained {
  struct Entry {
    std::string path;           ///< path of a file, or of a set as FOLDER/A.*.Tj
    std::uint64_t missing = 0;  ///< files that are not drained
    std::uint64_t files = 0;    ///< files of the set in the pool
    bool operator==(const Entry&) const = default;
  };
  std::string when;            ///< text_of_now() at the query
  std::vector<Entry> entries;  ///< newer sets of an application before older sets
};

/// Replaces the whole file durably; removes it when nothing is undrained.
Outcome<void> save_undrained(const Undrained& undrained, const std::string& path);
/// Loads the file. Returns no entries if it does not exist; skips invalid lines.
Undrained load_undrained(const std::string& path);

}  // namespace stdchk::tools
