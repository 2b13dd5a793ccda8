#pragma once

#include <string>
#include <vector>

#include "tools/doctor.h"
#include "tools/pool_record.h"

namespace stdchk::tools {

/// Ports of verbs devices, the transports that work here, and what "auto" chooses.
std::vector<Finding> examine_network();

/// What a pool's benefactors are reached by from here, and how fast writes to them are.
std::vector<Finding> examine_pool(const PoolRecord& pool);

}  // namespace stdchk::tools
