#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/messages/messages.h"
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

/// Returns one sentence for each application whose two newest sets are not complete. The program may
/// still write the newest set, so the sentence names the second newest set and its problem.
/// Limits: all sets whose names have no `*` count as sets of one application.
std::vector<std::string> find_incomplete_sets(const msg::ListSets::Reply& sets);

}  // namespace stdchk::tools
