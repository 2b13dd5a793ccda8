#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/api/filesystem.h"
#include "tools/base/connection.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// A SetImage is a file of a set with content. It has a rank only if its name has one: files of a
/// directory, and files such as "melt.100.base", belong to all ranks.
struct SetImage {
  std::optional<std::uint64_t> rank;
  std::string name;  ///< path below the folder of the set: "heat.N3.T7", "step-7/model.pt"
  Attributes attributes;
};

/// A ChosenSet is a set and its files.
struct ChosenSet {
  std::string name;  ///< as `stdchk set list` shows it
  bool is_directory = false;
  /// The images with a rank come first, by rank; then all others, by name.
  std::vector<SetImage> images;
  // Paths below the folder of the set, if the set is a directory:
  std::vector<std::string> folders;                        ///< the directory, then folders in it
  std::vector<std::pair<std::string, std::string>> links;  ///< symbolic links with their targets

  /// "images" or "files", for messages.
  const char* word() const { return is_directory ? "files" : "images"; }
};

/// Returns the wanted set, otherwise the newest complete set of the folder; nothing when no set is
/// complete. `wanted` is a name as `stdchk set list` shows it: A.*.Tj, another pattern, or the name
/// of a directory. A folder that is itself a set is an error, which names the command to use.
Outcome<std::optional<ChosenSet>> choose_set(const Located& folder, const std::string& wanted);

}  // namespace stdchk::tools
