#pragma once

#include <optional>
#include <string>

#include "tools/pool_record.h"

namespace stdchk::tools {

/// The record of a pool that runs on this host at `path` or above it, found by its processes: one
/// of another session, with another runtime folder, or one whose state directory was removed.
///
/// A directory that was removed is made again with the record, the secret and the key that the
/// pool's processes keep (SpareRecord), and standard error says so. When no process keeps them, the
/// record has only the processes, which `down` can end. Nothing: no such pool runs.
std::optional<PoolRecord> find_running(const std::string& path);
/// The same by its state directory, when that has no record any more.
std::optional<PoolRecord> find_running_in(const std::string& directory);

}  // namespace stdchk::tools
