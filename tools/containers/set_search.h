#pragma once

#include <cstdint>
#include <string>

#include "container/description/description.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// A FoundSet is the set to restart from, and the number of the job's newest set.
struct FoundSet {
  container::SetDescription set;
  std::uint64_t last = 0;
};

/// Finds the set that `wanted` names, or by default the newest complete set of the job.
Outcome<FoundSet> find_set(const std::string& folder, const std::string& job,
                           const std::string& wanted);

/// Whether the pool at `mount` may have a complete set of the job in `folder`. The answer is false
/// only if a working mount has no such set. A dead mount and an unreadable folder say nothing about
/// the sets in the pool.
bool may_have_set(const std::string& folder, const std::string& job, const std::string& mount);

}  // namespace stdchk::tools
