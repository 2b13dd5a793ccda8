#pragma once

#include <functional>
#include <string>

#include "core/clock.h"
#include "core/limits.h"
#include "core/result.h"
#include "manager/command.h"

namespace stdchk::manager {

/// Shows what a drain directory has, as commands for an empty state: files become drained versions
/// without copies in memory, with the checksums that the manifests beside them have. Left-over
/// temporary files are removed. `.stdchk-drain` is not shown.
/// Limits: blocks while it reads the tree; a path longer than limits::kPathBytesMax is left out. It
///   stops reading manifests after `manifests_longest`: what it has not met is not known.
Status import_drained(const std::string& directory, const std::function<void(Command)>& emit,
                      Duration manifests_longest = limits::kManifestsLongest);

}  // namespace stdchk::manager
