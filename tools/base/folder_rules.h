#pragma once

#include <string>
#include <string_view>

#include "client/api/filesystem.h"
#include "client/api/folder_rules.h"
#include "core/policy/set_naming.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// Returns the rules in force for the folder at `path`, which is relative to the pool's root. A key
/// without a rule is absent. Cost: two requests for each folder of the path.
Outcome<client::RulesInForce> find_rules(client::Filesystem& filesystem, const std::string& path);
/// Returns the value of a rule; empty without the rule. It refers to `rules`.
std::string_view value_of(const client::RulesInForce& rules, std::string_view key);
/// Returns how names of images are read where `rules` are in force and sets are no directories.
SetNaming naming_of(const client::RulesInForce& rules);

}  // namespace stdchk::tools
