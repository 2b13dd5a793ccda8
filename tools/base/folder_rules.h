#pragma once

#include <map>
#include <string>
#include <string_view>

#include "client/api/filesystem.h"
#include "core/policy/folder_settings.h"
#include "core/policy/set_naming.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// A rule of sets that is in force for a folder.
struct RuleInForce {
  std::string value;
  bool is_own = false;  ///< false: from a folder above
};
using RulesInForce = std::map<std::string, RuleInForce, std::less<>>;  ///< by key

/// Returns the rules that the folder itself has.
Result<RulesInForce> own_rules(client::Filesystem& filesystem, FileId folder);
/// Returns the rules in force for the folder at `path`, which is relative to the pool's root. A key
/// without a rule is absent. Cost: two requests for each folder of the path.
Outcome<RulesInForce> find_rules(client::Filesystem& filesystem, const std::string& path);
/// Returns the value of a rule; empty without the rule. It refers to `rules`.
std::string_view value_of(const RulesInForce& rules, std::string_view key);
/// Returns how names of images are read where `rules` are in force and sets are no directories.
SetNaming naming_of(const RulesInForce& rules);
/// Sets and removes the rules of `settings`, and repeats the settings of the policy as an
/// attribute, which goes to the drain directory. `own`: the folder's own policy after the change.
Status store_rules(client::Filesystem& filesystem, FileId folder, const FolderSettings& settings,
                   const Policy& own);

}  // namespace stdchk::tools
