#pragma once

#include <functional>
#include <string>

#include "core/base/clock.h"
#include "core/base/limits.h"
#include "core/base/result.h"
#include "manager/journal/command.h"

namespace stdchk::manager {

/// Emits commands that, applied to an empty state, show the files of a drain directory. Files
/// become drained versions without copies in memory, with the checksums that manifests beside them
/// have. Left-over temporary files are removed; `.stdchk-drain` is not shown.
///
/// Limits: blocks while it reads the tree. Leaves out paths longer than limits::kPathBytesMax.
/// Stops reading manifests after `manifests_longest`: the checksums of the rest are unknown.
Status import_drained(const std::string& directory, const std::function<void(Command)>& emit,
                      Duration manifests_longest = limits::kManifestsLongest);

}  // namespace stdchk::manager
