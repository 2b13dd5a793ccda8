#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/policy/policy.h"
#include "tools/ask/suggest.h"

namespace stdchk::tools {

/// A SetFolder is a folder with the settings in force for it, as `stdchk set list` judges it.
struct SetFolder {
  FolderNames names;
  std::map<std::string, std::string, std::less<>> rules;  ///< by key
  Policy policy;
  bool pool_drains = false;  ///< the pool has a drain directory
};

/// Returns one sentence for each rule without effect, and for each reason why sets in the folder
/// can never be complete.
std::vector<std::string> find_set_faults(const SetFolder& folder);

}  // namespace stdchk::tools
