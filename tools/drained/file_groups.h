#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "client/api/filesystem.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// A FileGroup is a set with all its files, or one file that belongs to no set.
struct FileGroup {
  /// Path in the pool: of a set with "*" for the rank, such as "run/heat.*.T120".
  std::string name;
  /// Folder and application: the sets of one series follow each other. Empty: no set.
  std::string series;
  bool is_complete = false;    ///< a whole set, from which a program can start again
  std::int64_t newest_ns = 0;  ///< time of the newest commit, since 1970
  std::size_t files = 0;       ///< with a committed version
  std::size_t missing = 0;     ///< files that are not drained
  std::uint64_t missing_bytes = 0;
  std::vector<FileId> to_drain;  ///< files whose drain is pending, running or has failed

  bool is_set() const { return !series.empty(); }
};

/// Finds the groups at and below a path of the pool. A set counts as the manager lists it.
/// Cost: all names there, and two requests for each folder.
Outcome<std::vector<FileGroup>> find_groups(client::Filesystem& filesystem, const std::string& path,
                                            const Attributes& start);

/// Sorts groups for a drain before memory is lost. The order is: the newest complete set of each
/// series, other complete sets, incomplete sets, other files. In each part the newest comes first.
void sort_by_need(std::vector<FileGroup>& groups);

/// Returns a line for each group that is not drained, in order, and one line for the rest of a long
/// list.
std::vector<std::string> missing_lines(const std::vector<FileGroup>& groups);

/// Returns the newest complete set that is drained whole; nullptr: no set is.
const FileGroup* newest_safe_set(const std::vector<FileGroup>& groups);
/// Returns a set's name and the time of its newest commit: as UTC, and in ns since 1970.
nlohmann::json to_json(const FileGroup& set);

}  // namespace stdchk::tools
