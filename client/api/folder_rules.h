#pragma once

#include <map>
#include <string>

#include "client/api/filesystem.h"
#include "core/base/problem.h"
#include "core/base/result.h"
#include "core/policy/folder_settings.h"
#include "core/values/types.h"

namespace stdchk::client {

/// A rule of sets that is in force for a folder.
struct RuleInForce {
  std::string value;
  bool is_own = false;  ///< false: from a folder above
};
using RulesInForce = std::map<std::string, RuleInForce, std::less<>>;  ///< by key

/// Returns the rules that the folder itself has.
Result<RulesInForce> own_rules(Filesystem& filesystem, FileId folder);
/// Changes the policy and the rules of a folder. Repeats the settings of the policy as an attribute,
/// which goes to the drain directory.
Outcome<void> change_settings(Filesystem& filesystem, FileId folder, const FolderSettings& changes);
/// Says that a directory is a whole set, where the rule set=directory is in force.
Status commit_set(Filesystem& filesystem, FileId directory);

}  // namespace stdchk::client
