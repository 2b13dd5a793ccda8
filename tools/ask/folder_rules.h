#pragma once

#include <map>
#include <string>
#include <string_view>

#include "client/api/filesystem.h"
#include "core/policy/folder_settings.h"

namespace stdchk::tools {

/// A rule of sets that is in force for a folder.
struct RuleInForce {
  std::string value;
  bool is_own = false;  ///< false: from a folder above
};
using RulesInForce = std::map<std::string, RuleInForce, std::less<>>;  ///< by key

/// Returns the rules that the folder itself has.
Result<RulesInForce> own_rules(client::Filesystem& filesystem, FileId folder);
/// Returns the rules in force for the folder at `path`. A key without a rule is absent.
RulesInForce find_rules(const std::string& pool, const std::string& path);
/// Sets and removes the rules of `settings`, and repeats the settings of the policy as an
/// attribute, which goes to the drain directory. `own`: the folder's own policy after the change.
Status store_rules(client::Filesystem& filesystem, FileId folder, const FolderSettings& settings,
                   const Policy& own);

}  // namespace stdchk::tools
