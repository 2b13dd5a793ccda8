#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/base/problem.h"
#include "core/policy/policy.h"

namespace stdchk {

/// The FolderSettings are all that `stdchk policy set` changes: settings of the policy, and rules
/// of sets (core/policy/set_rules.h).
struct FolderSettings {
  Policy policy;
  std::map<std::string, std::string, std::less<>> rules;  ///< by key; an empty value removes a rule
};

/// Parses settings separated by spaces or commas, such as "keep=3 marker=.metadata". The setting
/// preset=NAME stands for several ones (core/policy/presets.h). The value "inherit" removes a rule.
Outcome<FolderSettings> parse_folder_settings(std::string_view text);

}  // namespace stdchk
