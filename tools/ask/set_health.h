#pragma once

#include "tools/base/pool_record.h"
#include "tools/doctor/doctor.h"

namespace stdchk::tools {

/// Names the folders of the pool whose sets can never be complete, or whose rules have no effect.
/// Also names folders without rules whose names match a preset.
Finding examine_sets(const PoolRecord& pool);

}  // namespace stdchk::tools
