#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/policy/set_naming.h"

namespace stdchk::tools {

/// The names in a folder, which show the program that has written them.
struct FolderNames {
  std::vector<std::string> files;
  std::map<std::string, std::vector<std::string>> directories;  ///< with the files in each
};

/// A Suggestion is a policy for which a folder has names.
struct Suggestion {
  std::string settings;    ///< as `stdchk policy set` takes them
  std::string files;       ///< for people: which files of which program
  std::uint64_t sets = 0;  ///< sets that the folder has with this policy
};

/// Sets that must be there before a file counts as missing: a program may still write its only set.
inline constexpr std::uint64_t kSetsJudgedMin = 2;

/// Returns the naming that the rules say, by key; without `series` the form A.Ni.Tj.
SetNaming naming_of(const std::map<std::string, std::string, std::less<>>& rules);
bool any_is_image(const SetNaming& naming, const FolderNames& names);

/// Returns the presets that fit the names, in the order of core/policy/presets.cpp, where special
/// forms of names come before general ones.
std::vector<Suggestion> suggest_policies(const FolderNames& names);

/// Returns one sentence for each rule without effect: a pattern matches no name, or another rule
/// switches the rule off. `rules` are those in force, by key.
std::vector<std::string> find_idle_rules(
    const std::map<std::string, std::string, std::less<>>& rules, const FolderNames& names);

}  // namespace stdchk::tools
