#pragma once

#include <string>
#include <vector>

#include "tools/base/pool_record.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// A PoolIdentity names one life of one pool. A later pool at the same mount differs.
struct PoolIdentity {
  std::string directory;  ///< the state directory; empty: no pool
  std::string mount;
  std::string created;
  ProcessId starter;
  std::string starter_boot;
  bool operator==(const PoolIdentity&) const = default;
};

PoolIdentity identity_of(const PoolRecord& pool);

/// Finds the folder of a job's sets in the pool at `mount`. `folder` is a path in this pool, or in
/// an earlier pool at `earlier_mount`, or relative to the pool's root. The default mount of a batch
/// job has the job's number, so mounts of two batch jobs differ. Errors: a path in neither pool.
Outcome<std::string> folder_in_pool(const std::string& folder, const std::string& earlier_mount,
                                    const std::string& mount);

/// Refuses options of `stdchk up` that hide its answer from `stdchk run`, or make no mount.
Outcome<void> check_up_words(const std::vector<std::string>& words);

}  // namespace stdchk::tools
