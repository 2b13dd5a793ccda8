#pragma once

#include <optional>
#include <string>

#include "tools/base/pool_record.h"

namespace stdchk::tools {

/// Finds a pool that runs on this host at `path` or above it by its processes. Its record may lie
/// in another session's runtime folder, or its state directory was removed.
///
/// A removed directory is made again with the record, the secret and the key that the pool's
/// processes keep (SpareRecord). Standard error says so. When no process keeps them, the record has
/// only the processes, which `down` can end. Nothing: no such pool runs.
std::optional<PoolRecord> find_running(const std::string& path);
/// Finds a pool by its state directory, whose record was removed.
std::optional<PoolRecord> find_running_in(const std::string& directory);

}  // namespace stdchk::tools
