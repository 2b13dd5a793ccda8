#pragma once

#include <string>
#include <vector>

#include "tools/base/pool_record.h"
#include "tools/doctor/doctor.h"

namespace stdchk::tools {

/// Examines the ports of verbs devices, the transports that work here, and the choice of "auto".
std::vector<Finding> examine_network();

/// Examines how this machine reaches a pool's benefactors, and how fast it writes to them.
std::vector<Finding> examine_pool(const PoolRecord& pool);

}  // namespace stdchk::tools
