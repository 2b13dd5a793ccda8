#pragma once

#include <string>
#include <vector>

#include "client/api/filesystem.h"
#include "tools/base/folder_rules.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// Returns what find_set_faults() says of a folder. `rules` are those in force there.
Outcome<std::vector<std::string>> faults_of_sets(client::Filesystem& filesystem, FileId folder,
                                                 const RulesInForce& rules);

/// A FaultyFolder is a folder whose sets have faults.
struct FaultyFolder {
  std::string path;  ///< relative to the pool's root
  std::vector<std::string> faults;
};

/// Examines folders with an own policy or own rules, 10,000 folders at most.
Outcome<std::vector<FaultyFolder>> find_faulty_folders(client::Filesystem& filesystem);

}  // namespace stdchk::tools
