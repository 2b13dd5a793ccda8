#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "client/api/filesystem.h"
#include "tools/base/problem.h"
#include "tools/drained/file_groups.h"

namespace stdchk::tools {

/// A NewestFirst asks a pool to drain files in the order of sort_by_need(): the newest complete set
/// of each application comes first.
///
/// Each step examines all names and requests only the first undrained files. Therefore a set that
/// becomes complete during the drain overtakes older sets.
///
/// Threads: one.
/// Limits: a look at all names takes at most a tenth of the time.
class NewestFirst {
 public:
  NewestFirst(client::Filesystem& filesystem, std::string path, Attributes start)
      : filesystem_(filesystem), path_(std::move(path)), start_(start) {}

  /// Looks which files are not drained, if a look is due, and asks for the first ones.
  Outcome<void> step();
  /// Looks now.
  Outcome<void> look();
  /// The groups at the last look, in the order of sort_by_need().
  const std::vector<FileGroup>& groups() const { return groups_; }

 private:
  using Time = std::chrono::steady_clock::time_point;

  Outcome<void> ask_for_first();
  Outcome<void> ask_for(FileId file);

  client::Filesystem& filesystem_;
  const std::string path_;
  const Attributes start_;
  std::vector<FileGroup> groups_;
  Time look_at_{};                ///< when the next look is due
  std::map<FileId, Time> asked_;  ///< files that were asked for, and when
};

}  // namespace stdchk::tools
