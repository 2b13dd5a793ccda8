#pragma once

#include <string>

#include "core/policy/policy.h"
#include "manager/sets/image_set.h"
#include "manager/state/state.h"

namespace stdchk::manager {

/// Returns what keeps the set from being complete, for people; empty for a complete set. `policy`:
/// the one in force for `folder`. Cost: reads the names of the set's files if images are missing.
std::string why_incomplete(const State& state, const File& folder, const ImageSet& set,
                           const Policy& policy);

}  // namespace stdchk::manager
