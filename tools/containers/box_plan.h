#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "container/job/coordinator.h"
#include "tools/containers/base_system.h"
#include "tools/containers/commands.h"

namespace stdchk::tools {

/// Container 0 for the launcher, and one for each rank. MPI libraries find in their environment
/// where ranks go, how to start them, and that they talk by TCP, which CRIU can save.
std::map<container::BoxId, container::BoxDescription> plan_boxes(const RunOptions& options,
                                                                 const BaseSystem& base);

/// Plans the start of each node's daemon: on this host, or on each host of the file.
Outcome<std::vector<container::NodeStart>> plan_nodes(const RunOptions& options,
                                                      const std::string& folder,
                                                      const std::string& invoked_as);

std::string new_job_name();
bool is_job_name(const std::string& name);
/// A random number, which differs from the numbers of other jobs of a host, but for chance. The
/// nodes of a killed coordinator may still have the network of its number.
std::uint32_t new_network_number();

}  // namespace stdchk::tools
