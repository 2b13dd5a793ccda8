#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/problem.h"

namespace stdchk {

/// An extended attribute of a folder with this prefix and the key of a rule holds the rule's value.
inline constexpr std::string_view kXattrRule = "user.stdchk.rule.";
/// The key of the attribute that holds the folder's policy as a text, for the drain directory.
inline constexpr std::string_view kRulePolicy = "policy";

/// SetRules define the sets of a folder. Like a policy, a rule of a folder also holds for the
/// folders below. Rules are extended attributes because their values are texts; a PolicySetting is
/// a number.
struct SetRules {
  bool by_directory = false;  ///< "set": sets are subdirectories, each with all files below
  std::string set_names;      ///< "set-names": NamePatterns of these subdirectories
  std::string marker;         ///< "marker": NamePatterns of the file that makes a directory whole
  std::string pointer;        ///< "pointer": NamePatterns of files beside the sets that name one
};

/// A rule as people set it with `stdchk policy set`. The rule "series" is a SetNaming.
struct SetRule {
  std::string_view key;
  std::string_view meaning;  ///< one sentence
  std::string_view otherwise;
};
std::span<const SetRule> set_rules();
bool is_set_rule(std::string_view key);
/// Refuses a value that the rule `key` cannot have.
Outcome<void> check_rule(std::string_view key, std::string_view value);

/// In msg::ListSets, a set with this timestep is called as its application says. The name of all
/// other sets is set_name().
inline constexpr std::uint64_t kNamedTimestep = ~std::uint64_t{0};

}  // namespace stdchk
