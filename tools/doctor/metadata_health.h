#pragma once

#include <string>
#include <vector>

#include "core/base/clock.h"
#include "tools/base/pool_record.h"
#include "tools/doctor/doctor.h"

namespace stdchk::tools {

/// Whether the pool's metadata survive the loss of its manager, and the remedy if not.
Finding examine_metadata(const PoolRecord& pool);

/// The dangers to the metadata of a newly started pool, a sentence each. Waits for `patience` until
/// the benefactors keep the metadata.
std::vector<std::string> metadata_warnings(const PoolRecord& pool, Duration patience);

}  // namespace stdchk::tools
