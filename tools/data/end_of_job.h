#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/base/pool_record.h"

namespace stdchk::tools {

/// The files removed at the end of a successful job.
struct Cleared {
  std::string drain_directory;                              ///< empty: none
  std::map<std::string, std::vector<std::string>> removed;  ///< files, by folder of the pool
  std::map<std::string, std::set<std::string>> sets;        ///< names of sets, by folder
  std::vector<std::string> notes;                           ///< messages for people
};

/// Removes the sets that the policy "end" of each folder gives up, in the pool and, with a drain,
/// in the drain directory. Keeps pinned sets and, with must-be-drained, undrained sets.
Outcome<Cleared> clear_sets(const PoolRecord& pool);

/// Removes the last traces in the drain directory, once the drain has executed the removals.
Outcome<void> forget_removed(const Cleared& cleared);

}  // namespace stdchk::tools
