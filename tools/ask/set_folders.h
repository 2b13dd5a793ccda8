#pragma once

#include <string>
#include <vector>

#include "client/api/filesystem.h"
#include "client/api/folder_rules.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// Returns find_set_faults() of the folder at `path`, relative to the pool's root, with the rules in
/// force there. Skips a folder that is a set by the rules of its parent folders.
Outcome<std::vector<std::string>> faults_of_sets(client::Filesystem& filesystem,
                                                 const std::string& path, FileId folder,
                                                 const client::RulesInForce& rules);

/// Returns the path of the set (a directory) that is the folder at `path`, or contains it; empty:
/// there is no such set. Cost: some requests for each folder of the path.
Outcome<std::string> set_above(client::Filesystem& filesystem, const std::string& path);

/// A FaultyFolder is a folder whose sets have faults.
struct FaultyFolder {
  std::string path;  ///< relative to the pool's root
  std::vector<std::string> faults;
};

/// A FittingFolder is a folder without rules of sets whose names look like sets of a known program.
struct FittingFolder {
  std::string path;      ///< relative to the pool's root
  std::string settings;  ///< as `stdchk policy set` takes them
  std::string files;     ///< for people: which files of which program
};

struct SetFolders {
  std::vector<FaultyFolder> faulty;    ///< ordered by path
  std::vector<FittingFolder> fitting;  ///< ordered by path
};

/// Examines folders: the rules of those with an own policy or own rules, and the names of those
/// without rules. Limits: 10,000 folders, and 1000 names of each.
Outcome<SetFolders> examine_set_folders(client::Filesystem& filesystem);

}  // namespace stdchk::tools
