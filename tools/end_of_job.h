#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/pool_record.h"

namespace stdchk::tools {

/// What was removed at the end of a job that has ended well.
struct Cleared {
  std::string drain_directory;                              ///< empty: there is none
  std::map<std::string, std::vector<std::string>> removed;  ///< images, by folder of the pool
  std::vector<std::string> notes;                           ///< for people
};

/// Removes the sets that the policy "end" of each folder gives up, here and, with the drain, in the
/// drain directory. Pinned sets stay, and with must-be-drained those that are not drained yet.
Outcome<Cleared> clear_sets(const PoolRecord& pool);

/// When the drain has followed: nothing in the drain directory speaks of what was removed any more.
Outcome<void> forget_removed(const Cleared& cleared);

}  // namespace stdchk::tools
