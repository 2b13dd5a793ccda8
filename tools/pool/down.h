#pragma once

#include <string>
#include <vector>

#include "core/base/clock.h"
#include "tools/base/pool_record.h"

namespace stdchk::tools {

/// The result of taking a pool down, for people and for the exit status.
struct DownReport {
  std::vector<std::string> notes;     ///< information: crashes, a lazy unmount
  std::vector<std::string> troubles;  ///< work that is left for the user
  std::string logs;                   ///< folder with the logs of crashed processes; may be empty
  std::string card;  ///< report card, or losses of a dead manager; empty: an unused pool, no
                     ///< losses, or a remote manager
  bool reported_losses = false;  ///< of a job's pool: the manager's node has reported the losses
};

/// Unmounts, takes the report card, ends exactly the processes of the record, and removes the state
/// directory. Works although any part of the pool has crashed.
DownReport stop_pool(const PoolRecord& pool);

/// Cleans up the remains of an earlier pool at `mount`: dead mounts, its state directory (any of
/// `directories`), memory files of killed processes. If `up` was killed before the pool was usable,
/// ends the pool's processes, too, because the pool stores nothing. A Problem: a pool is up there,
/// or parts of one run that may store images.
Outcome<std::vector<std::string>> clean_leftovers(const std::vector<std::string>& directories,
                                                  const std::string& mount);
/// Removes the files of a state directory whose `stdchk` was killed while it made or removed the
/// directory. Keeps a directory with any other file.
void drop_unfinished(const std::string& directory);

}  // namespace stdchk::tools
