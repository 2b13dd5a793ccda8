#pragma once

#include <string>
#include <vector>

#include "core/clock.h"
#include "tools/doctor.h"
#include "tools/pool_record.h"

namespace stdchk::tools {

/// Whether the pool's metadata outlives its manager, and what to do where it does not.
Finding examine_metadata(const PoolRecord& pool);

/// What endangers the metadata of a pool that has just been started, a sentence each. Waits for
/// `patience` until its benefactors keep the metadata.
std::vector<std::string> metadata_warnings(const PoolRecord& pool, Duration patience);

}  // namespace stdchk::tools
