#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/problem.h"

namespace stdchk::tools {

/// Has the entries of the manifest of one folder of the drain directory changed: reads them, calls
/// `change` and replaces the file, which is durable, and whole from its first moment. One without
/// entries goes.
///
/// Several may do so at once, on any hosts: a lock on the file has one wait for the other, for a
/// minute at most. `change` may be called again, with the entries that another has left. Where the
/// file system has no locks an entry of another one may be lost until that is written again.
///
/// What somebody who was killed has left beside the manifest is removed when it is ten minutes old.
Outcome<void> change_manifest(const std::string& folder,
                              const std::function<void(nlohmann::json& entries)>& change);

/// Takes files that were removed out of the manifest of one folder.
Outcome<void> forget_in_manifest(const std::string& folder, const std::vector<std::string>& names);

}  // namespace stdchk::tools
