#pragma once

#include <cstdint>

#include "tools/ask/commands.h"

namespace stdchk::tools {

/// Drains files in the order of sort_by_need() and returns after `seconds` at the latest. A silent
/// manager or drain directory does not delay the return. Prints the undrained sets and files.
/// Returns the exit status; kExitNo: something is not drained.
int drain_within(const DrainOptions& options, std::uint64_t seconds);

}  // namespace stdchk::tools
