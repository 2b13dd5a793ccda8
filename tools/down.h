#pragma once

#include <string>
#include <vector>

#include "core/clock.h"
#include "tools/pool_record.h"

namespace stdchk::tools {

/// What taking a pool down came to, for people and as exit status.
struct DownReport {
  std::vector<std::string> notes;     ///< worth knowing: crashes, a lazy unmount
  std::vector<std::string> troubles;  ///< what is left for a person to do
  std::string logs;  ///< where the logs of crashed processes are kept; may be empty
  std::string card;  ///< the report card, or what is lost with the manager; empty: the pool was not
                     ///< used, nothing is known to be lost, or its manager is not here
  bool told_losses = false;  ///< of a job's pool: the node with the manager has told what is lost
};

/// Unmounts, takes the report card, ends exactly the processes of the record, and removes the state
/// directory. Works for a pool of which any part has crashed.
DownReport stop_pool(const PoolRecord& pool);

/// Cleans up what an earlier pool at `mount` left: dead mounts, its state directory, which may be
/// any of `directories`, memory files of killed processes. A pool whose `up` was killed before the
/// pool was usable goes with its processes, because nothing is stored in it. The Problem says so
/// when a pool is up there, or when parts of one run that may have something.
Outcome<std::vector<std::string>> clean_leftovers(const std::vector<std::string>& directories,
                                                  const std::string& mount);
/// Removes the files of a state directory that was being made or removed when its `stdchk` was
/// killed; nothing of one that holds anything else.
void drop_unfinished(const std::string& directory);

}  // namespace stdchk::tools
